"""scripts/check_words.py finds phrases that sound translated, and leaves plain English alone."""

import pytest

from .pages import ROOT, script

WORDS = script(ROOT / "scripts" / "check_words.py")


@pytest.mark.parametrize(
    "text",
    [
        "Refuse an address that is none.",
        "the text is no str",
        "What is wrong is said at once.",
        "The run goes on.",
        "go on with: glidepath resume",
        "a process of its own",
        "The index is made anew.",
        "this is for who knows better",
        "It belongs into the header.",
        "a worker is taken for dead",
        "whoever resumes the run",
        "its outcome is nobody's",
        "for so many seconds",
        "the worker that flies it",
        "Where a run stands.",
        "the result says the truth about the end",
        "the behaviour of a tool",
        "it was canceled",
    ],
)
def test_a_giveaway_is_found(text):
    assert list(WORDS.hits(text))


@pytest.mark.parametrize(
    "text",
    [
        "There is none.",
        "there is no such model",
        "It is no longer available.",
        "the run was cancelled",
        "its own process",
        "only so many tools",
        "what stands in the way",
        "On the flight deck a run can land.",
        "the behavior of a tool",
        "None is the default.",
    ],
)
def test_plain_english_is_left_alone(text):
    assert not list(WORDS.hits(text))


def test_code_links_and_quotations_are_not_prose(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\nSee `goes on` and [this](anew.md).\n\n```text\nit goes on\n```\nIt goes on.\n", encoding="utf-8"
    )
    assert [(line, why) for line, text in WORDS.page_texts(page) for _, why in WORDS.hits(text)] == [
        (7, "'goes on': continue, resume, run")
    ]


def test_docstrings_and_messages_are_read_from_programs(tmp_path):
    program = tmp_path / "program.py"
    program.write_text('"""Whoever reads this."""\nraise ValueError(f"{1} is no number")\nX = "SELECT anew FROM t"\n')
    assert sorted({line for line, text in WORDS.code_texts(program) if any(WORDS.hits(text))}) == [1, 2]


def test_comments_are_read_from_programs_over_several_lines_and_without_directives(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "x = 1  # whoever\n# The run goes\n# on.\ny = 2  # noqa: E501 - anew\nz = 3  # type: ignore[anew]\n"
    )
    found = {line: text for line, text in WORDS.code_texts(program) if any(WORDS.hits(text))}
    assert found == {1: "whoever", 2: "The run goes on.", 4: "anew"}


def test_every_page_and_module_is_checked():
    checked = {path.relative_to(ROOT).as_posix() for path in WORDS.files()}
    assert {"README.md", "docs/index.md", "Makefile", "src/glidepath/kernel/loop.py", "examples/batch.py"} <= checked


def test_the_spelling_of_the_changelog_the_scripts_and_the_units_is_checked(tmp_path):
    checked = {path.relative_to(ROOT).as_posix() for path in WORDS.spelled()}
    assert {
        "CHANGELOG.md",
        "scripts/docs_site.py",
        "deploy/Dockerfile",
        "deploy/systemd/glidepath-serve.service",
    } <= checked
    unit = tmp_path / "x.service"
    unit.write_text("[Service]\n# It is journalled.\n", encoding="utf-8")
    assert [line for line, text in WORDS.texts(unit) if any(WORDS.hits(text))] == [2]
