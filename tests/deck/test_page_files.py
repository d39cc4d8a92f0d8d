"""What the page is made of, without a browser."""

import gzip
import json
import re

from .conftest import DECK

MOST = 150_000


def test_all_assets_together_are_below_150_kb_gzipped(built):
    assert sum(len(gzip.compress(path.read_bytes())) for path in built.rglob("*") if path.is_file()) < MOST


def test_the_page_has_no_inline_script_or_style_and_names_no_other_host(built):
    page = (built / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page) == []
    assert re.findall(r"(?:src|href)=\"(?!\./)[^\"]*", page) == []


def test_no_source_makes_html_of_text():
    for path in DECK.glob("src/**/*.ts*"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", path.read_text()), path


def locked():
    return json.loads((DECK / "package-lock.json").read_text())["packages"]


def test_the_lock_file_has_every_package_of_every_platform():
    packages = locked()
    wanted = {
        name
        for entry in packages.values()
        for kind in ("dependencies", "devDependencies", "optionalDependencies")
        for name in entry.get(kind, {})
    }
    held = {name.rpartition("node_modules/")[2] for name in packages}
    assert wanted - held == set()


def test_the_lock_file_names_no_registry():
    packages = locked()
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert all("integrity" in entry for name, entry in packages.items() if name)
