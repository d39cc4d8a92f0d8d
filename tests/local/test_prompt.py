"""What a small model is shown: alternating turns, calls in the form it is to write, nothing it cannot read."""

import pytest

from glidepath.errors import RejectedError
from glidepath.messages import (
    AssistantMessage,
    CustomMessage,
    ImageBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.models.local import make_brief
from glidepath.spi import ToolSpec

from .talk import WEATHER, request

CALL = AssistantMessage((ThinkingBlock("hm"), ToolCall("c1", "weather", {"city": "Paris"})))
RESULT = ToolResultMessage("c1", "weather", "18 degrees")
HISTORY = (UserMessage("What is the weather?"), CALL, RESULT)


def shown(*messages, **settings):
    return make_brief(request(messages=messages, **settings)).messages


def test_turns_alternate():
    turns = shown(
        *HISTORY,
        UserMessage("wrap up", internal=True),
        AssistantMessage((TextBlock("a"),)),
        AssistantMessage(),
        UserMessage("b"),
    )
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]


def test_with_tools_calls_and_answers_are_shown_as_they_are_to_be_written():
    turns = shown(*HISTORY, AssistantMessage((TextBlock("It is warm."),)), UserMessage("Thanks."), tools=(WEATHER,))
    said = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    assert said == ['{"tool": "weather", "arguments": {"city": "Paris"}}', '{"answer": "It is warm."}']


def test_without_tools_nothing_looks_like_json():
    turns = shown(*HISTORY, AssistantMessage((TextBlock("It is warm."),)), UserMessage("Thanks."))
    assert turns[1]["content"] == 'I used the tool weather with {"city": "Paris"}.'
    assert turns[3]["content"] == "It is warm."
    assert "JSON" not in str(turns)


def test_only_the_last_result_of_a_batch_asks_for_the_answer():
    turns = shown(*HISTORY, ToolResultMessage("c2", "weather", "rain"), CALL, RESULT, tools=(WEATHER,))
    assert turns[3]["content"] == "Result of weather: 18 degrees\n\nResult of weather: rain\nNow answer the user."
    assert turns[5]["content"] == "Result of weather: 18 degrees\nNow answer the user."


ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def told(**settings):
    asked = make_brief(request(messages=HISTORY, **settings))
    return asked.messages, asked.schema


def test_a_tool_that_may_not_be_called_stays_in_the_prompt_and_leaves_the_grammar():
    everything = {"defined_tools": (WEATHER, ADD)}
    prompt, open_to_all = told(tools=(WEATHER, ADD), **everything)
    for settings in ({"tools": (ADD,)}, {"tools": ()}, {"tools": (WEATHER, ADD), "tool_choice": "none"}):
        same, narrowed = told(**settings, **everything)
        assert same == prompt
        assert len(str(narrowed)) < len(str(open_to_all))
        assert "'const': 'weather'" not in str(narrowed)
    landing = make_brief(request(messages=HISTORY, tools=(), **everything))
    assert (landing.wrapped, landing.schema["required"]) == (True, ["answer"])


def test_a_request_begins_like_the_one_before_it():
    again = (*HISTORY, CALL, RESULT)
    first = make_brief(request(messages=HISTORY, tools=(WEATHER,), defined_tools=(WEATHER,))).messages
    second = make_brief(request(messages=again, tools=(WEATHER,), defined_tools=(WEATHER,))).messages
    last = make_brief(request(messages=(*again, UserMessage("Wrap up.")), tools=(), defined_tools=(WEATHER,))).messages
    assert second[: len(first)] == first
    assert last[: len(second) - 1] == second[:-1]
    assert last[len(second) - 1]["content"].startswith(second[-1]["content"])


def test_a_failed_call_is_shown_as_failed():
    [*_, last] = shown(UserMessage("?"), CALL, ToolResultMessage("c1", "weather", "no such city", is_error=True))
    assert last["content"].startswith("weather failed: no such city")


def test_the_system_prompt_comes_before_the_tools():
    [system, _] = shown(UserMessage("Hi"), system_prompt="You are Ada.", tools=(WEATHER,))
    assert system["content"].startswith("You are Ada.")
    assert '- weather: Current weather of a city. Arguments: {"city":' in system["content"]


def test_system_messages_at_the_start_join_the_system_prompt_and_later_ones_are_told():
    turns = shown(
        SystemMessage("Be brief."), UserMessage("Hi"), SystemMessage("Now be long."), system_prompt="You are Ada."
    )
    assert turns == [
        {"role": "system", "content": "You are Ada.\n\nBe brief."},
        {"role": "user", "content": "Hi\n\nNow be long."},
    ]


def test_what_belongs_to_the_application_is_not_sent():
    assert shown(UserMessage("Hi"), CustomMessage("note", {"secret": 1})) == [{"role": "user", "content": "Hi"}]


def test_an_image_in_a_result_is_named_and_one_from_the_user_is_refused():
    image = ImageBlock("image/png", b"...")
    [*_, last] = shown(UserMessage("?"), CALL, ToolResultMessage("c1", "weather", (TextBlock("a chart"), image)))
    assert "a chart\n[an image (image/png) you cannot see]" in last["content"]
    with pytest.raises(RejectedError, match="image"):
        shown(UserMessage((image,)))


def test_no_choice_is_left_open():
    def forms(**settings):
        return make_brief(request(tools=(WEATHER,), **settings)).schema

    assert len(forms()["oneOf"]) == 2
    assert "oneOf" not in forms(tool_choice="required")
    assert forms(tool_choice="none")["required"] == ["answer"]
    assert make_brief(request()).schema is None
