"""What a model is told when it calls a tool wrongly."""

import pytest
from hypothesis import given, strategies as st

from glidepath.tools import explain_malformed_arguments, find_closest, unknown_tool_message

NAMES = [f"tool_{number}" for number in range(30)]


@pytest.mark.parametrize("name", ["serch", "Search", "SEARCH ", "search_", "seach"])
def test_the_closest_name_is_found(name):
    assert find_closest(name, ["fetch", "search", "delete"]) == "search"


def test_nothing_is_close_to_nonsense():
    assert find_closest("qqqqqqq", ["fetch", "search"]) is None


def test_a_huge_name_is_answered_quickly_and_shortly():
    message = unknown_tool_message("x" * 1_000_000, NAMES)
    assert len(message) < 600


def test_an_unknown_tool_names_the_match_and_twelve_tools():
    message = unknown_tool_message("tool29", NAMES)
    assert "Did you mean 'tool_29'?" in message
    listed = message.partition("Available tools: ")[2]
    assert listed.count("tool_") == 12
    assert "tool_29" in listed
    assert "18 more" in listed


def test_a_hidden_tool_is_not_called_unknown():
    message = unknown_tool_message("search", ["fetch"], hidden=True)
    assert "cannot be used now" in message
    assert "fetch" in message


def test_no_tools_at_all_asks_for_plain_text():
    assert "plain text" in unknown_tool_message("search", [])


@given(st.text(alphabet=st.characters(codec=None), max_size=200), st.lists(st.text(max_size=70), max_size=20))
def test_the_message_about_any_name_can_be_sent(name, available):
    unknown_tool_message(name, [text for text in available if text.isascii()]).encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ('{"a": 1', "ends too early"),
        ('{"a": "long te', "ends too early"),
        ('{"a": }', "line 1 column 7"),
        ("{'a': 1}", "line 1 column 2"),
        ("[1, 2]", "got an array"),
        ('"text"', "got a string"),
        ("3", "got a number"),
        ("null", "got null"),
        ("[" * 100_000, "too deeply"),
        ('{"a": NaN}', "malformed"),
        ('{"a": 1' + "0" * 5000 + "}", "digits"),
        ('{"a": 1} extra', "Extra data"),
    ],
)
def test_malformed_json_is_answered_with_its_place(text, says):
    message = explain_malformed_arguments(text)
    assert says in message
    assert "one complete JSON object" in message


@given(st.text(alphabet=st.characters(codec=None), max_size=100))
def test_any_malformed_text_gets_a_message_that_can_be_sent(text):
    explain_malformed_arguments(text).encode()
