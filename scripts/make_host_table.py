"""Write what the pages say about the hosts of models, from the one table of them in glidepath.models.hosts.

python scripts/make_host_table.py           # rewrite the tables and figures
python scripts/make_host_table.py --check   # exit with 1 when they are not up to date
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from glidepath.models.hosts import HOSTS

DOCS = Path(__file__).resolve().parent.parent / "docs"


def strings() -> list[str]:
    """The rows of every model string: what it reaches, and what that takes."""
    return [
        f"| `{host.name}:{host.form}` | {host.reaches} | `glidepath[{host.extra}]` "
        f"| {f'`{host.key}`' if host.key else 'none'} |"
        for host in HOSTS.values()
    ]


def addresses() -> list[str]:
    """The rows of every host with an address of its own, or with more variables than its key."""
    return [
        f"| `{host.name}` | {f'`{host.address}`' if host.address else ''} "
        f"| {', '.join(f'`{name}`' for name in host.needs)} | {f'`{host.prices}`' if host.prices else ''} |"
        for host in HOSTS.values()
        if host.address or host.needs
    ]


def _with_rows(page: str, head: str, rows: list[str]) -> str:
    pattern = rf"(\| {re.escape(head)} \|\n\|[-|]+\|\n)(?:\|.*\n)+"
    return re.sub(pattern, lambda found: found[1] + "\n".join(rows) + "\n", page, count=1)


def models_page(page: str) -> str:
    """Both tables, and the names in the error of the example."""
    page = _with_rows(page, "string | what it reaches | extra | key", strings())
    page = _with_rows(page, "host | address | also reads | prices", addresses())
    return re.sub(r"the providers are .*", f"the providers are {', '.join(sorted(HOSTS))}", page)


def figures(page: str) -> str:
    """How many there are, and how many of them go through OpenAI's chat format."""
    chat = sum(host.adapter == "chat" for host in HOSTS.values())
    page = re.sub(r"\d+ prefixes for model strings", f"{len(HOSTS)} prefixes for model strings", page)
    return re.sub(r"(prefixes for model strings, )\d+( of them)", rf"\g<1>{chat}\g<2>", page)


PAGES: dict[str, Callable[[str], str]] = {
    "choosing-a-model.md": models_page,
    "comparison.md": figures,
    "what-it-costs.md": figures,
}


def main() -> int:
    """Rewrite the pages, or say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a page is out of date")
    options = parser.parse_args()
    stale = []
    for name, made in PAGES.items():
        page = (DOCS / name).read_text(encoding="utf-8")
        new = made(page)
        if new != page:
            stale.append(name)
            if not options.check:
                (DOCS / name).write_text(new, encoding="utf-8")
    if options.check:
        print(f"out of date: {', '.join(stale)}: run scripts/make_host_table.py" if stale else "up to date")
    return int(bool(stale) and options.check)


if __name__ == "__main__":
    sys.exit(main())
