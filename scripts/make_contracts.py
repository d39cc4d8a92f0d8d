"""Write docs/contracts.md from the docstrings of the conformance kit, so that the page cannot fall behind the code.

python scripts/make_contracts.py           # rewrite docs/contracts.md
python scripts/make_contracts.py --check   # exit with 1 when it is not up to date
"""

import argparse
import inspect
import sys
from pathlib import Path

from glidepath.spi import HOOKS
from glidepath.testing.conformance import CONTRACTS
from glidepath.testing.conformance.contract import Contract, clauses_of
from glidepath.testing.conformance.plugin import HookContract

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "contracts.md"
HEAD = """# Contracts
<!-- made by scripts/make_contracts.py -->
Every extension point has a contract class in `glidepath.conformance`. Each clause is one test with a number. The
built-in implementations keep them, and for every clause the tests have something broken that fails it.
[Certifying your implementation](certifying.md) says how to use them.
"""


def clauses(contract: type[Contract], without: type[Contract] | None = None) -> list[str]:
    """The table of a contract's clauses."""
    known = {clause.number for clause in clauses_of(without)} if without is not None else set()
    rows = [f"| {clause.number} | {clause.text} |" for clause in clauses_of(contract) if clause.number not in known]
    return ["", "| clause | what it says |", "|---|---|", *[row.replace(" | None", " or None") for row in rows]]


def section(contract: type[Contract], without: type[Contract] | None = None) -> list[str]:
    """What a contract asks for, and its clauses."""
    return ["", f"### {contract.__name__}", inspect.getdoc(contract) or "", *clauses(contract, without)]


def page() -> str:
    """The whole page."""
    sys.path.insert(0, str(ROOT))
    from tests.extension_points import EXTENSION_POINTS, TEXTBOOK

    points = {point.name: point for point in EXTENSION_POINTS}
    names = [name for name in points if name not in HOOKS]
    contracts = [contract for kinds in CONTRACTS.values() for contract in kinds]
    total = len({clause.number for contract in contracts for clause in clauses_of(contract)})
    lines = [HEAD, f"{len(points)} extension points, {len(set(contracts))} contracts, {total} clauses."]
    for name in [*names, *HOOKS]:
        point = points[name]
        if name == HOOKS[0]:
            lines += ["", "## Hooks of a plugin", inspect.getdoc(HookContract) or "", "These clauses are in every one."]
            lines += clauses(HookContract)
        made = ", ".join(f"`{path.partition(':')[2].lstrip('_')}`" for path in point.implementations) or "none"
        lines += ["", f"## {name}", f"Port: `{point.port.replace(':', '.')}`. Implementations here: {made}."]
        if name in TEXTBOOK:
            lines.append(f"Fewer than two: {TEXTBOOK[name]}.")
        for contract in CONTRACTS[name]:
            lines += section(contract, HookContract if name in HOOKS else None)
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the page is out of date")
    options = parser.parse_args()
    if options.check:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        print("up to date" if current else "docs/contracts.md is out of date: run scripts/make_contracts.py")
        return int(not current)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
