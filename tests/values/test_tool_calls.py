"""A streamed call keeps its arguments as JSON; nobody who reads it can tell."""

import copy
import pickle

import pytest

from glidepath import _wire
from glidepath.messages import AssistantMessage, ToolCall
from glidepath.values import codec

WRITTEN = b'{"b": [1, 2],  "a": {"deep": null}}'
PLAIN = {"b": [1, 2], "a": {"deep": None}}


@pytest.fixture
def streamed():
    return ToolCall("c1", "look", _wire.Raw(WRITTEN))


def test_streamed_arguments_read_as_plain_data(streamed):
    assert streamed.arguments == PLAIN
    assert type(streamed.arguments) is dict


def test_changing_what_was_read_does_not_change_the_call(streamed):
    streamed.arguments["b"] = "changed"
    assert streamed.arguments == PLAIN


def test_a_streamed_call_equals_one_made_by_hand_both_ways(streamed):
    by_hand = ToolCall("c1", "look", PLAIN)
    assert streamed == by_hand
    assert by_hand == streamed
    assert AssistantMessage((streamed,)) == AssistantMessage((by_hand,))


@pytest.mark.parametrize(
    "other",
    [
        ToolCall("c2", "look", PLAIN),
        ToolCall("c1", "find", PLAIN),
        ToolCall("c1", "look", {"b": [1, 2]}),
        ToolCall("c1", "look", PLAIN, "malformed"),
        "look",
    ],
)
def test_a_streamed_call_differs_from_any_other(streamed, other):
    assert streamed != other


def test_a_streamed_call_is_written_byte_for_byte_and_read_back_equal(streamed):
    data = codec.encode(AssistantMessage((streamed,)))
    assert WRITTEN in data
    assert codec.decode(data).tool_calls == (streamed,)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda call: pickle.loads(pickle.dumps(call))])
def test_a_streamed_call_survives_copying_and_pickling(streamed, again):
    assert again(streamed) == streamed


def test_replacing_the_name_keeps_the_arguments(streamed):
    assert _wire.replace(streamed, name="find") == ToolCall("c1", "find", PLAIN)


def test_a_streamed_call_shows_its_arguments(streamed):
    assert repr(streamed) == repr(ToolCall("c1", "look", PLAIN))
    assert _wire.to_plain_data(streamed)["arguments"] == PLAIN


def test_what_has_no_plain_form_is_refused():
    with pytest.raises(TypeError, match="object has no plain form"):
        _wire.to_plain_data(object())
