"""Front matter: what is read, and what is refused with the line and the fix."""

import pytest
import yaml
from hypothesis import example, given, strategies as st

from glidepath import ConfigurationError, Skill
from glidepath.agent.skills.front_matter import find_invisible


def skill_of(text):
    return Skill.from_files({"SKILL.md": text.encode() if isinstance(text, str) else text}, "skills/pdf")


def with_head(head, body="Do it."):
    return f"---\nname: pdf\n{head}\n---\n{body}\n"


def test_all_fields_of_the_format_are_read():
    found = skill_of(
        with_head(
            "description: >\n  Fill in forms,\n  and merge them.\nlicense: MIT\ncompatibility: Needs qpdf\n"
            'metadata:\n  author: ann\n  version: "1.0"\nallowed-tools: Read Grep, shell'
        )
    )
    assert (found.name, found.description) == ("pdf", "Fill in forms, and merge them.")
    assert (found.license, found.compatibility) == ("MIT", "Needs qpdf")
    assert found.metadata == {"author": "ann", "version": "1.0"}
    assert found.allowed_tools == ("read", "grep", "shell")
    assert found.instructions == "Do it."
    assert found.remarks == ()


@pytest.mark.parametrize("word", ["no", "on", "1.10", "0x1F", "2026-01-01", "1_000", "null-value"])
def test_a_word_stays_a_word(word):
    assert skill_of(with_head(f"description: {word}")).description == word


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbf" + with_head("description: d").encode(), with_head("description: d").replace("\n", "\r\n")]
)
def test_a_byte_order_mark_and_ends_of_lines_from_windows_are_fine(data):
    assert skill_of(data).description == "d"


BROKEN = [
    ("# Only text", 1, "must begin with front matter"),
    ("---\nname: pdf\ndescription: d\n", 1, "no end"),
    (with_head("description: use it: always"), 3, "quotes"),
    (with_head("description: [d]"), 3, "must be a text"),
    (with_head("description:\n  a: b"), 3, "must be a text"),
    (with_head("description: d\nmetadata:\n\t a: b"), 5, "tabs"),
    (with_head('description: "d'), 3, "close the quotes"),
    (with_head("description: d\ndescription: e"), 4, "second 'description'"),
    (with_head("description: &a d"), 3, "anchors"),
    (with_head("description: d\nmetadata: *a"), 4, "anchors"),
    (with_head("description: !!str d"), 3, "tag"),
    (with_head("description: d\nallowed-tools:\n  a: b"), 4, "list of names"),
    (with_head("description: d\ndisable-model-invocation: maybe"), 4, "true or false"),
    (with_head("description: d\n... \nname: two"), 5, "second document"),
    (with_head("description: a\u200bb"), 3, "U+200B"),
    (with_head("description: a\x07b"), 3, "U+0007"),
    (with_head("version: 1"), 1, "description: it is missing"),
    (with_head("descripton: d"), 1, "'descripton' is not read as one"),
    (with_head("description: d", body="  "), 5, "no instructions"),
    ("---\n- a\n---\nx", 2, "lines like name"),
    ("---\nname: PDF Tools\ndescription: d\n---\nx", 2, "write pdf-tools"),
    ("---\nname: -pdf\ndescription: d\n---\nx", 2, "write pdf"),
    ("---\nname: " + "a" * 65 + "\ndescription: d\n---\nx", 2, "at most 64"),
    (b"---\nname: pdf\ndescription: \xff\n---\nx", 3, "not UTF-8"),
    ("---\nname: pdf\ndescription: d\n---\nx\0", 5, "NUL"),
    (with_head("description: d\nmetadata: " + "[" * 20), 4, "deep"),
    (with_head("description: d\nmetadata: [" + "a," * 3_000 + "]"), 4, "parts"),
    (with_head("description: " + "d" * 40_000), 1, "larger than"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "what"), BROKEN, ids=[str(number) for number in range(len(BROKEN))])
def test_what_is_broken_is_refused_with_the_line_and_the_fix(text, line, what):
    with pytest.raises(ConfigurationError) as caught:
        skill_of(text)
    assert f"skills/pdf/SKILL.md, line {line}: " in str(caught.value)
    assert what in str(caught.value)


SIGNS = st.text(st.sampled_from("ab:- \n\t#&*!|>[]{}\"'%@`,?~0é\u202e"), max_size=60)


@given(SIGNS)
@example("a: &a [*a]")
@example("? a")
@example("%YAML 9.9")
def test_any_text_is_read_or_refused(head):
    try:
        found = skill_of(with_head(f"description: d\n{head}"))
    except ConfigurationError as error:
        said = str(error)
    else:
        said = f"line of {found.name}"
    assert "line" in said


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(max_size=20) | st.lists(st.text(max_size=9), max_size=3))
)
def test_what_a_yaml_writer_wrote_is_read_as_it_was_meant(metadata):
    text = yaml.safe_dump({"description": "d", "metadata": metadata}, default_style='"', allow_unicode=False)
    try:
        found = skill_of(with_head(text.rstrip("\n")))
    except ConfigurationError:
        assert find_invisible(text) is not None
        return
    assert found.metadata == metadata


def test_without_the_extra_the_line_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(ConfigurationError, match=r"PyYAML is needed .*skills"):
        skill_of(with_head("description: d"))


def test_what_has_no_effect_is_listed_with_its_line():
    found = skill_of(
        with_head(
            "description: d\nmodel: opus\nhooks:\n  Stop: []\nallowed-tools: Bash(git:*), Read\ncolor: red",
            body="Run !`git status`.\nThen $ARGUMENTS.\nSmall\u200bprint",
        )
    )
    assert found.allowed_tools == ("read",)
    assert [remark.split(" ")[:2] for remark in found.remarks if remark.startswith("line")] == [
        ["line", "4:"], ["line", "5:"], ["line", "8:"], ["line", "10:"], ["line", "11:"], ["line", "12:"],
    ]  # fmt: skip
    assert any("Bash(git:*)" in remark and "no effect" in remark for remark in found.remarks)
