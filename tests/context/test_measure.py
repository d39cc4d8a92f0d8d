"""CharEstimator and message_size."""

import asyncio
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, Limits, LoopOutcome
from glidepath.context import CharEstimator, message_size
from glidepath.messages import (
    AssistantMessage,
    CustomMessage,
    ImageBlock,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResultMessage,
    UnknownMessage,
    UserMessage,
)
from glidepath.spi import TokenEstimator
from glidepath.testing import ScriptedModel, say

from .grammar import estimate, quick


def test_the_default_is_a_token_estimator():
    assert isinstance(CharEstimator(), TokenEstimator)


@quick
@given(st.text(st.characters(), max_size=200))
def test_at_least_a_token_for_every_three_bytes_of_utf8_rounded_up(text):
    assert estimate(text) >= -(-len(text.encode("utf-8", "surrogatepass")) // 3)


@quick
@given(st.lists(st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), min_size=1, max_size=12), max_size=40))
def test_words_are_a_token_for_every_three_letters_and_no_more(words):
    text = " ".join(words)
    assert estimate(text) == -(-len(text) // 3)


@quick
@given(st.text(st.characters(), max_size=200), st.text(st.characters(), max_size=200))
def test_a_longer_text_is_no_smaller_by_more_than_what_lies_between(one, two):
    assert estimate(one + two) <= estimate(one) + estimate(two) + 0.9 * len((one + two).encode("utf-8", "replace")) + 2


def test_pieces_add_up_for_a_text_longer_than_one_piece():
    text = "a word or two " * 50_000
    assert abs(estimate(text) - len(text) // 3) <= len(text) // 16_384 + 1


@pytest.mark.parametrize(
    ("text", "least"),
    [  # tokens that o200k counts, by bench/tokens.py
        ("0.5,1.25,-3,7.0625,12\n" * 200, 2_800),
        ("9f86d081884c7d659a2feaa0c55ad015" * 100, 1_800),
        ("TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5" * 50, 1_250),
        ("1,2,3,4,5,6,7,8,9,0\n" * 100, 2_000),
        ("🚀🔥🧬🪐" * 100, 760),
    ],
    ids=["csv", "hex", "base64", "digits", "emoji"],
)
def test_dense_text_is_not_under_estimated(text, least):
    assert least <= estimate(text) <= 2 * least


def test_a_lone_surrogate_and_nul_bytes_are_measured():
    assert estimate("\ud800" * 10 + "\x00") >= 11


def test_a_huge_text_is_measured_without_a_copy():
    text = "é" * 8_000_000
    tracemalloc.start()
    try:
        estimate(text)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (SystemMessage("abc"), 8 + 1),
        (UserMessage(""), 8),
        (UserMessage("abcdef"), 8 + 2),
        (UserMessage((TextBlock("abc"), ImageBlock("image/png", b"0" * 9_999), TextBlock("abc"))), 8 + 1 + 284 + 1),
        (ToolResultMessage("id", "abc", "abcdef", details="x" * 999, narration="y" * 999), 8 + 1 + 2),
        (ToolResultMessage("id", "abc", (ImageBlock("image/png", url="u"),)), 8 + 1 + 5_000),
        (AssistantMessage(), 8),
        (AssistantMessage((TextBlock("abc"), ThinkingBlock("abcd"))), 8 + 1 + 2),
        (AssistantMessage((ReasoningBlock("abc", "abcdef", "v"),)), 8 + 1 + 2),
        (AssistantMessage((ToolCall("id", "abc", {"q": 1}),)), 8 + 12 + 1 + 3),
        (AssistantMessage((ToolCall("id", "abc", {}, malformed="abcdef"),)), 8 + 12 + 1 + 1 + 2),
        (CustomMessage("log", {"a": "x" * 999}), 0),
        (UnknownMessage("later", b"{}" * 99), 0),
    ],
)
def test_everything_that_is_sent_counts_and_nothing_else(message, tokens):
    assert message_size(message, estimate) == tokens


def deep(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def loop():
    value = {"a": "x"}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ({"a": "\ud800" * 300}, 300),
        ({"a": 10**6_000}, 2_000),
        ({"a": object(), "b": {1, 2}}, 10),
        (deep(20_000), 20_000),
        (loop(), 1),
        ({"a": float("nan")}, 1),
    ],
    ids=["surrogates", "big number", "foreign objects", "deep", "endless", "nan"],
)
def test_arguments_that_json_cannot_hold_are_still_measured(arguments, least):
    assert message_size(AssistantMessage((ToolCall("id", "t", arguments),)), estimate) >= least


def test_an_estimator_that_raises_is_replaced_by_the_default():
    def broken(text):
        raise OSError(text)

    assert message_size(UserMessage("abcdef"), broken) == 10


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError, OSError])
def test_g1_whatever_an_estimator_raises_the_run_goes_on(error):
    class Broken:
        def estimate(self, text):
            raise error

    agent = Agent(model=ScriptedModel([say("fine")]), token_estimator=Broken(), limits=Limits(max_tokens=9_000))
    assert agent.run_sync("go").outcome is LoopOutcome.DONE
