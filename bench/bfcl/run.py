"""BFCL's 800 multi-turn conversations under each execution mode, judged by BFCL's own checker.

python bench/bfcl/run.py                  # all of them; about a minute and a half; exit code 1 when a bar is missed
python bench/bfcl/run.py --every 40       # a slice
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from environment import ROOT, NotInstalledError, figures, python_with  # noqa: E402

PACKAGES = ("bfcl-eval==2026.3.23", "mpmath==1.3.0", "msgspec")
BAR = 4  # conversations may fail: their gold calls pass a str where BFCL's own annotation says int


def fly(every=1, modes=("auto", "parallel", "sequential")):
    """The figures of each mode; raises `NotInstalledError` where bfcl-eval cannot be had."""
    python = python_with("bfcl", PACKAGES)
    return figures(python, HERE / "fly.py", "--every", str(every), "--modes", ",".join(modes))


def misses(report):
    """The bars that are not met."""
    auto = report["auto"]
    found = []
    if auto["conversations"] - auto["passed"] > BAR:
        found.append(f"AUTO passes {auto['passed']} of {auto['conversations']}: {', '.join(auto['failed'])}")
    for mode, figures_of in report.items():
        if figures_of["lost"]:
            found.append(f"{mode}: {figures_of['lost']} results became errors after the tool had run")
        if figures_of["guards"]:
            found.append(f"{mode}: guards intervened {figures_of['guards']} times")
    return found


def table(report):
    rows = [("mode", "conversations passed", "calls", "refused", "errors after the tool had run", "guards")]
    for mode, one in report.items():
        passed = f"{one['passed']} of {one['conversations']}"
        refused = one["calls"] - one["returned"]
        rows.append((f"`{mode.upper()}`", passed, f"{one['calls']:,}", refused, one["lost"], one["guards"]))
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (rows[0], ("---",) * 6, *rows[1:]))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--every", type=int, default=1, help="fly every Nth conversation")
    chosen = options.parse_args()
    try:
        report = fly(chosen.every)
    except NotInstalledError as error:
        sys.exit(str(error))
    out = ROOT / "build" / "bfcl.json"
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(table(report))
    sys.exit("\n".join(misses(report)) or 0)


if __name__ == "__main__":
    main()
