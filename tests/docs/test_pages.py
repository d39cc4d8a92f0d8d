"""Every page is true: its code runs, what it prints is what is shown, and its links lead somewhere."""

import os
import subprocess
import sys
import time

import pytest

from .pages import ROOT, SECONDS, anchors, blocks, links, name, pages, run_blocks

PAGES = pages()
RUNNING = [path for path in PAGES if any(block.info == "python" for block in blocks(path))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
REAL = {"local_agent.py"}  # a real model takes the time it takes


@pytest.mark.parametrize("path", RUNNING, ids=name)
def test_the_python_blocks_of_a_page_run_and_print_what_is_shown(path, tmp_path):
    ready, printed = run_blocks(path, tmp_path)
    assert len(printed) == len(ready)
    for block, text in zip(ready, printed, strict=True):
        if block.output is not None:
            assert text == block.output, f"{name(path)}:{block.line}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_block_that_does_not_run_says_why(path):
    for block in blocks(path):
        if block.language != "python":
            continue
        cell = path.name == "notebooks.md" and block.info.startswith("python cell")  # test_notebook_page.py runs them
        assert cell or block.info in {"python", "python no-run"}, f"{name(path)}:{block.line}: {block.info}"
        if block.info == "python no-run":
            assert block.text.startswith("# no-run: "), f"{name(path)}:{block.line}: say why in a first comment"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_relative_links_lead_somewhere(path):
    for target in links(path):
        file, _, anchor = target.partition("#")
        there = path if not file else (path.parent / file).resolve()
        assert there.exists(), f"{name(path)}: {target}"
        assert there.is_relative_to(ROOT), f"{name(path)}: {target} leaves the repository"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{name(path)}: {target}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_is_plain_ascii_and_names_no_machine(path):
    text = path.read_text(encoding="utf-8")
    strange = sorted({sign for sign in text if not sign.isascii()})
    assert not strange, f"{name(path)}: {strange}"
    for folder in ("work", "tmp", "root", "home"):
        assert f"/{folder}/" not in text, f"{name(path)}: /{folder}/"
    assert "localhost" not in text


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_line_of_code_is_wider_than_its_column(path):
    """At 1280 pixels a column of the site has room for 120 characters; what is printed is broken by the page."""
    wide = [
        f"{name(path)}:{block.line + number}: {len(line)}"
        for block in blocks(path)
        if block.language != "text"
        for number, line in enumerate(block.text.splitlines())
        if len(line) > 119
    ]
    assert not wide


def test_the_index_lists_every_page():
    listed = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in links(ROOT / "docs" / "index.md")}
    missing = [name(path) for path in PAGES if path not in listed and path.parts[-1] not in {"README.md", "index.md"}]
    assert not missing


def test_the_first_agent_of_the_readme_has_at_most_15_lines():
    first = next(block for block in blocks(ROOT / "README.md") if block.info == "python")
    assert len(first.text.splitlines()) <= 15
    assert first.output is not None


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_an_example_runs_at_once_and_without_a_key(path, tmp_path):
    clean = {key: value for key, value in os.environ.items() if "KEY" not in key and "TOKEN" not in key}
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    took = time.monotonic() - before
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    wide = [line for line in done.stdout.splitlines() if len(line) > 80]
    assert not wide, "does not fit 80 columns"
    if path.name not in REAL:
        assert took < 20, f"took {took:.1f} s"  # under a second on a quiet machine; this one may be busy


def test_the_examples_are_all_mentioned():
    text = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if f"examples/{path.name})" not in text] == []
