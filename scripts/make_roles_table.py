"""Write the tables of roles in docs/server.md from the table that the server obeys.

python scripts/make_roles_table.py           # rewrite the tables in docs/server.md
python scripts/make_roles_table.py --check   # exit with 1 when they are not up to date
"""

import argparse
import re
import sys
from pathlib import Path

from glidepath.apps.server.route_rights import DOORS
from glidepath.serve.locks import RIGHTS, ROLES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "server.md"
BEGIN = "<!-- begin: made by scripts/make_roles_table.py -->"
END = "<!-- end -->"


def tables() -> str:
    """Which role has which right, and which right each path takes."""
    lines = [f"| right | it may | {' | '.join(ROLES)} |", "|---|---|" + "---|" * len(ROLES)]
    for name, right in RIGHTS.items():
        marks = [("yes*" if right.whole else "yes") if role in right.roles else "" for role in ROLES]
        lines.append(f"| `{name}` | {right.does} | {' | '.join(marks)} |")
    lines += ["", "| takes | paths |", "|---|---|"]
    taken: dict[str, list[str]] = {}
    for (method, path), rights in DOORS.items():
        said = " or ".join(f"`{right}`" for right in rights) or "nothing"
        shown = re.sub(r":path", "", path)
        taken.setdefault(said, []).append(f"`{method} {shown}`")
    lines += [f"| {said} | {', '.join(paths)} |" for said, paths in taken.items()]
    return "\n".join(lines)


def updated(page: str) -> str:
    """The page with its tables as they must be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        return int(updated(page) != page)
    PAGE.write_text(updated(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
