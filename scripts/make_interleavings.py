"""Write the tables in docs/every-interleaving.md from what was measured.

python scripts/make_interleavings.py                 # rewrite the tables from tests/interleavings/measured.json
python scripts/make_interleavings.py --check         # exit with 1 when they are not up to date
python scripts/make_interleavings.py --measure       # try everything and look for all planted bugs first: half an hour
python scripts/make_interleavings.py --measure-bugs  # only those
"""

import argparse
import json
import logging
import re
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "every-interleaving.md"
MEASURED = ROOT / "tests" / "interleavings" / "measured.json"
WHERE = re.compile(r"replay(?:_crash)?\([^)]*\)|seed \d+|it does not end")
sys.path.insert(0, str(ROOT))


def measure_examinations() -> list[dict[str, Any]]:
    """Run every examination of the campaign; how much each has tried."""
    from tests.interleavings.examinations import EXAMINATIONS

    logging.disable(logging.CRITICAL)
    found = []
    for one in EXAMINATIONS:
        began, wall = time.process_time(), time.monotonic()
        counts = one.run(True)
        seconds = round(time.process_time() - began, 1)
        found.append({"name": one.name, "bound": one.bound, "counts": counts, "seconds": seconds})
        print(found[-1], f"({time.monotonic() - wall:.0f} s by the clock)", flush=True)
    return found


def measure_bugs(measured: dict[str, Any]) -> None:
    """Look for every planted bug; which examination found it, with which schedule or seed, and how long it took.

    What was found is written at once: those that were never measured come first, and those that nothing finds last.
    """
    from tests.interleavings.planted import BUGS, MISSED
    from tests.interleavings.planting import Bug, hunt

    known = {one["what"]: one for one in measured.get("bugs", ())}
    lock = threading.Lock()

    def look(bug: Bug) -> None:
        with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
            found = hunt(bug, small) or hunt(bug, large, whole=True)
        where = None if found is None else WHERE.search(found["said"])
        entry = {"area": bug.area, "what": bug.what, "by": None, "where": "", "seconds": 0.0, "why": bug.why_missed}
        if found is not None:
            entry |= {"by": found["by"], "where": where[0] if where else "", "seconds": found["seconds"]}
        print(entry, flush=True)
        with lock:
            known[bug.what] = entry
            measured["bugs"] = [known[one.what] for one in (*BUGS, *MISSED) if one.what in known]
            write(measured)

    order = sorted((*BUGS, *MISSED), key=lambda bug: (bool(bug.why_missed), bug.what in known))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(look, order))


def write(measured: dict[str, Any]) -> None:
    """Keep what was measured."""
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def tables(measured: dict[str, Any]) -> dict[str, str]:
    """The generated parts of the page, by name."""
    tried = ["| what | bound | tried | seconds |", "|---|---|---|---|"]
    for one in measured["examinations"]:
        counts = ", ".join(f"{count:,} {what}" for what, count in one["counts"].items() if count)
        tried.append(f"| {one['name']} | {one['bound']} | {counts} | {one['seconds']:g} |")
    found = [one for one in measured["bugs"] if one["by"]]
    bugs = [f"{len(found)} planted bugs are found.", ""]
    bugs += ["| where | the mistake | found by | schedule or seed | seconds |", "|---|---|---|---|---|"]
    for one in found:
        where = one["where"] if len(one["where"]) <= 40 else f"{one['where'][:37]}..."
        bugs.append(f"| {one['area']} | {one['what']} | {one['by']} | `{where}` | {one['seconds']:g} |")
    missed = [one for one in measured["bugs"] if not one["by"]]
    if missed:
        bugs += ["", "These were planted as well, and nothing here finds them:", ""]
        bugs += ["| where | the mistake | why |", "|---|---|---|"]
        bugs += [f"| {one['area']} | {one['what']} | {one['why']} |" for one in missed]
    return {"tried": "\n".join(tried), "bugs": "\n".join(bugs)}


def updated(page: str) -> str:
    """The page with its tables as they must be."""
    for name, table in tables(json.loads(MEASURED.read_text(encoding="utf-8"))).items():
        begin, end = f"<!-- begin {name}: made by scripts/make_interleavings.py -->", f"<!-- end {name} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


def main() -> int:
    """Measure, write the page, or check it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--measure-bugs", action="store_true")
    options = parser.parse_args()
    if options.measure or options.measure_bugs:
        measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
        if options.measure:
            measured |= {"examinations": measure_examinations()}
            write(measured)
        measure_bugs(measured)
    page = PAGE.read_text(encoding="utf-8")
    if options.check:
        return int(updated(page) != page)
    PAGE.write_text(updated(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
