"""What a person is shown of untrusted text: complete, nothing hidden, nothing that passes for something else."""

import pytest
from hypothesis import given, strategies as st

from glidepath.messages import ToolCall
from glidepath.outcome import PendingCall
from glidepath.run import (
    argument_rows,
    call_line,
    escape_invisible,
    fold_line,
    mask_controls,
    question_rows,
    size_of,
    width_of,
    wrap_lines,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -la", "ls -la"),
        ("a\u202eb", "a<U+202E>b"),
        ("a\u200bb", "a<U+200B>b"),
        ("a\x1b[2Jb", "a<U+001B>[2Jb"),
        ("<U+0041>", "<U+003C>U+0041>"),
        ("p\u0430ypal", "p<U+0430>ypal"),
        ("\u0430\u0440\u0440", "<U+0430><U+0440><U+0440>"),
        ("\u043f\u0440\u0438\u0432\u0435\u0442", "\u043f\u0440\u0438\u0432\u0435\u0442"),
        ("Z\u00fcrich", "Z\u00fcrich"),
        ("rm \u2010rf", "rm <U+2010>rf"),
        ("\uff4cs", "<U+FF4C>s"),
        ("x\u00b2", "x\u00b2"),
        ("\u0301a", "<U+0301>a"),
        ("a\u0301\u0302\u0303", "a\u0301\u0302<U+0303>"),
        ("i\u0307", "i<U+0307>"),
        ("z\u0307", "z\u0307"),
        ("a\ufe0fb", "a<U+FE0F>b"),
        ("a\U000e0101b", "a<U+E0101>b"),
    ],
)
def test_what_cannot_be_seen_or_passes_for_something_else_is_named(text, shown):
    assert escape_invisible(text) == shown


def test_signs_that_are_meant_to_stay_stay():
    assert escape_invisible("a\nb\x1b", keep="\n") == "a\nb<U+001B>"
    assert escape_invisible("first\np\u0430y") == "first<U+000A>p<U+0430>y"


@given(st.text(max_size=60), st.text(max_size=60))
def test_two_texts_never_look_the_same(one, other):
    assert (escape_invisible(one) == escape_invisible(other)) is (one == other)


@given(st.text(max_size=200), st.integers(12, 60))
def test_no_row_is_wider_than_the_screen_and_nothing_is_left_out(text, width):
    rows = list(wrap_lines(text, width))
    assert all(width_of(row) <= max(width, 14) for row in rows)
    assert "".join(row[6:] for row in rows) == "".join(escape_invisible(line) for line in text.split("\n"))


def test_controls_alone_can_be_masked():
    assert mask_controls("plain") == "plain"
    assert mask_controls("a\tb\n\x07\u202e") == "a\tb\n<U+0007><U+202E>"


def test_wide_characters_and_accents_are_measured():
    assert (width_of("abc"), width_of("\u4e16a"), width_of("e\u0301")) == (3, 3, 1)
    assert fold_line("\u4e16" * 6, 12, "  ") == "  " + "\u4e16" * 5 + "\n  \u4e16"


def test_arguments_are_shown_whole():
    assert argument_rows({}, 40) == ["  (no arguments)"]
    assert argument_rows({"path": "a.txt", "n": 3}, 40) == ['  path: "a.txt"', "  n: 3"]
    rows = argument_rows({"text": 'say "hi"\nand more', "deep": {"a": ["b" * 30, 1]}}, 40)
    assert rows[0] == "  text (text, 17 characters, 2 lines):"
    assert any(row.startswith("  deep (JSON, ") for row in rows)
    odd = argument_rows({"pa\u202eth": "x", "long_name_of_an_argument": "y" * 50}, 30)
    assert odd[:3] == ["  an argument named", "    | pa<U+202E>th", '  with the value: "x"']
    assert size_of({"a": "abc", "b": [1]}) == 6


def test_a_call_fits_one_line():
    assert call_line("look", {"q": "x"}) == 'look(q="x")'
    assert call_line("look", {"q": "x" * 50}, 20).endswith("... (60 characters)")


def test_the_question_has_who_where_why_and_where_it_comes_from():
    pending = PendingCall(call=ToolCall("c1", "pay", {"to": "ann"}), reason="it is a lot", origins=("mail",))
    rows = question_rows(pending, 60, who="helper", where="in the sandbox")
    assert rows[0] == "helper wants to call pay (in the sandbox):"
    assert rows[1:4] == ["Why you are asked:", "    | it is a lot", "The arguments:"]
    assert rows[4:] == ["Untrusted content it comes from:", "    | mail", '  to: "ann"']


def test_a_name_too_long_for_the_screen_cannot_hide_the_rest():
    long = PendingCall(call=ToolCall("c1", "p" * 40, {}), reason="")
    rows = question_rows(long, 30, who="w" * 40, where="outside", arguments=["  shown"])
    assert rows[0] == "Somebody named"
    assert "wants to call" in rows
    assert rows[-1] == "  shown"
    short = PendingCall(call=ToolCall("c1", "pay", {}), reason="")
    assert question_rows(short, 30, where="outside the workspace")[0] == "The agent wants to call pay"
