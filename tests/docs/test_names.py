"""The names of code on the pages of promises are there: a file that was moved or a renamed class is noticed here."""

import re

import pytest

from .pages import ROOT

PAGES = ("guarantees", "budgets", "how-a-run-ends", "security", "threat-model", "provenance", "wallets", "approvals")
WRITTEN = ("src", "tests", "bench", "scripts", "examples")
FILE = re.compile(r"[\w.]+(?:/[\w.-]+)+\.py")
NAME = re.compile(r"_*[A-Za-z]\w*(?:\.\w+)*")
FOREIGN = {
    "delete_event",  # a tool of somebody else, in an example
}


@pytest.fixture(scope="module")
def sources():
    """Every word of the code, and every file."""
    files = [path for folder in WRITTEN for path in (ROOT / folder).rglob("*.py")]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    return words, [path.relative_to(ROOT).as_posix() for path in files]


def spoken(page):
    """What a page says in backticks outside of its programs, and where its links lead."""
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text)) | set(re.findall(r"\]\(\.\./([^)#\s]+)", text))


@pytest.mark.parametrize("page", PAGES)
def test_every_name_and_file_on_the_page_is_in_the_code(page, sources):
    known, paths = sources
    lost = []
    for one in spoken(page) - FOREIGN:
        name = one.removesuffix("()")
        if FILE.fullmatch(one):
            lost += [] if any(path == one or path.endswith(f"/{one}") for path in paths) else [one]
        elif NAME.fullmatch(name) and "/" not in name and not name.endswith((".toml", ".json", ".md")):
            lost += [] if known.issuperset(name.split(".")) else [one]
    assert not lost, f"docs/{page}.md names what is not in the code: {sorted(lost)}"
