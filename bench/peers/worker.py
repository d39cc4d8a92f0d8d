"""One workload of one framework in the current interpreter; the last line it prints is the figures as JSON."""

import argparse
import asyncio
import gc
import importlib
import json
import logging
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import workloads

IMPORTING = """
import sys, time
known = len(sys.modules)
began = time.process_time()
{statement}
spent = time.process_time() - began
import json, resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({{"cost_us": spent * 1e6, "modules": len(sys.modules) - known, "peak_kib": peak}}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework")
    parser.add_argument("workload")
    parser.add_argument("--options", type=json.loads, default={})
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    adapter = importlib.import_module(f"adapters.{options.framework}")
    if options.workload == "about":
        figures = {
            "name": adapter.NAME,
            "versions": {package: version(package) for package in adapter.PACKAGES},
            "statement": adapter.STATEMENT,
            "store": adapter.STORE,
            "extras": adapter.EXTRAS,
        }
    elif options.workload == "import":
        # A fresh interpreter: everything this one has loaded so far must not count.
        code = IMPORTING.format(statement=adapter.STATEMENT)
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-c", code])  # noqa: S606
    elif (options.workload in {"checks", "plugins"} and options.workload not in adapter.EXTRAS) or (
        options.workload == "persist" and adapter.STORE is None
    ):
        figures = {"absent": True}
    else:
        gc.freeze()
        figures = asyncio.run(getattr(workloads, options.workload)(adapter, **options.options))
    print(json.dumps(figures), flush=True)
    os._exit(0)  # what a framework leaves running must not keep the benchmark waiting


if __name__ == "__main__":
    main()
