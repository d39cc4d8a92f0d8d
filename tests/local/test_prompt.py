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
from glidepath.models.local.prompt import brief

from .talk import WEATHER, request

CALL = AssistantMessage((ThinkingBlock("hm"), ToolCall("c1", "weather", {"city": "Paris"})))
RESULT = ToolResultMessage("c1", "weather", "18 degrees")
HISTORY = (UserMessage("What is the weather?"), CALL, RESULT)


def shown(*messages, **settings):
    return brief(request(messages=messages, **settings)).messages


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


def test_only_the_last_result_asks_for_the_answer():
    turns = shown(*HISTORY, CALL, ToolResultMessage("c2", "weather", "rain"), tools=(WEATHER,))
    assert turns[3]["content"] == "Result of weather: 18 degrees"
    assert turns[5]["content"] == "Result of weather: rain\nNow answer the user."


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
        return brief(request(tools=(WEATHER,), **settings)).schema

    assert len(forms()["oneOf"]) == 2
    assert "oneOf" not in forms(tool_choice="required")
    assert forms(tool_choice="none") is None
    assert brief(request()).schema is None
