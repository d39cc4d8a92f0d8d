"""One case of one framework in the current interpreter; the last line it prints is the verdict as JSON."""

import argparse
import asyncio
import importlib
import json
import logging
import os
import sys
import threading
import time
import warnings
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, HARD_SECONDS, Ending, Truth, verdict


def tell(figures: dict) -> None:
    print(json.dumps(figures), flush=True)
    os._exit(0)  # what a framework leaves running must not keep the matrix waiting


async def warm_up(adapter) -> None:
    """Slow imports are paid before the clock starts."""
    await adapter.fly(CASES["control"], Truth(CASES["control"]))


async def fly(adapter, name: str) -> None:
    case = CASES[name]
    if name != "control":
        await warm_up(adapter)
    truth = Truth(case)

    def kill() -> None:
        tell(verdict(truth, None, time.perf_counter() - truth.began))

    watchdog = threading.Timer(HARD_SECONDS, kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        ending = await adapter.fly(case, truth)
    except BaseException as error:
        ending = Ending("crashed", detail=f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - truth.began
    await asyncio.sleep(0.5)  # what still runs now was left behind
    watchdog.cancel()
    tell(verdict(truth, ending, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework")
    parser.add_argument("case")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    adapter = importlib.import_module(f"adapters.{options.framework}")
    if options.case == "about":
        versions = {package: version(package) for package in adapter.PACKAGES}
        tell({"name": adapter.NAME, "versions": versions, "lacks": adapter.LACKS})
    asyncio.run(fly(adapter, options.case))


if __name__ == "__main__":
    main()
