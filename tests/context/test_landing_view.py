"""The landing view: always within the reserve, never without the task (G5)."""

import pytest
from hypothesis import given, strategies as st

from glidepath.context import Compact
from glidepath.kernel.context import trim_text
from glidepath.kernel.landing.landing_view import landing_view
from glidepath.messages import (
    AssistantMessage,
    ImageBlock,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

from .grammar import asks, cases, damaged, estimate, gives, is_marker, owners, quick, say, shape, sizes_of, user

LEAST = 40  # tokens: what a trimmed message of the task takes at least
TASK = user("the task")


def land(messages, budget, pinned=(0,), **more):
    return landing_view(messages, sizes_of(messages), budget, pinned, **more)


def head_of(text):
    return text.partition("\n[...")[0]


@quick
@given(case=cases(damaged()))
def test_g5_the_landing_view_is_within_the_budget(case):
    messages, pinned, budget = case
    view = land(messages, budget, pinned)
    assert view.tokens <= max(budget, LEAST * len(pinned))
    assert view.sizes == [
        max(a, b) if is_marker(m) else b
        for m, a, b in zip(view.messages, view.sizes, sizes_of(view.messages), strict=True)
    ]


@quick
@given(case=cases(damaged()))
def test_g5_the_landing_view_is_never_without_the_task(case):
    messages, pinned, budget = case
    told = [m.text for m in land(messages, budget, pinned).messages if isinstance(m, UserMessage | SystemMessage)]
    for p in pinned:
        assert any(messages[p].text.startswith(head_of(text)) and bool(text) == bool(messages[p].text) for text in told)


@quick
@given(case=cases(damaged()))
def test_g15_the_landing_view_has_no_orphans(case):
    messages, pinned, budget = case
    view = land(messages, budget, pinned).messages
    lost = sum(isinstance(m, AssistantMessage) and len(m.tool_calls) for m in messages)
    lost -= sum(call is not None for call in owners(messages).values())
    assert None not in owners(view).values()
    calls = sum(len(m.tool_calls) for m in view if isinstance(m, AssistantMessage))
    assert calls - len(owners(view)) <= lost


@quick
@given(case=cases(damaged()))
def test_a_landing_view_that_fits_is_what_compact_makes(case):
    messages, pinned, budget = case
    compact = shape(Compact(), messages, budget, pinned)
    if compact.tokens <= budget:
        assert land(messages, budget, pinned) == compact


@quick
@given(case=cases(damaged()))
def test_the_same_input_gives_the_same_landing_view(case):
    messages, pinned, budget = case
    before = list(messages)
    assert land(messages, budget, pinned) == land(messages, budget, pinned)
    assert messages == before


def test_results_of_the_newest_group_are_trimmed_to_beginning_and_end():
    messages = [TASK, say("old"), asks("a", "b"), gives("a", "A" * 9_000 + "Z" * 9_000), gives("b", "short")]
    view = land(messages, 500)
    assert [m.role for m in view.messages] == ["user", "user", "assistant", "tool_result", "tool_result"]
    assert view.messages[1].text.startswith("[1 earlier message was left out")
    assert view.messages[2] is messages[2]
    assert view.messages[4] is messages[4]
    trimmed = view.messages[3].text
    assert trimmed.startswith("A" * 600)
    assert trimmed.endswith("Z" * 200)
    assert "characters left out" in trimmed
    assert 450 < view.tokens <= 500
    assert view.dropped == 1


def test_long_results_share_the_room_evenly():
    view = land([TASK, asks("a", "b", "c"), *[gives(call_id, "x" * 9_000) for call_id in "abc"]], 600)
    assert max(view.sizes[2:]) - min(view.sizes[2:]) <= 3
    assert 570 < view.tokens <= 600


def test_what_was_said_after_the_batch_is_kept_whole():
    notice = user("deliver now", internal=True, reason="wind_down")
    view = land([TASK, asks("a"), gives("a", "x" * 9_000), notice], 200)
    assert view.messages[-1] is notice
    assert view.tokens <= 200


def test_calls_too_large_to_keep_are_told_in_one_internal_message():
    write = AssistantMessage((TextBlock("Writing."), ToolCall("a", "write", {"text": "x" * 9_000})))
    failed = ToolResultMessage("b", "write", "no such folder", is_error=True)
    ok = ToolResultMessage("a", "write", "42 lines")
    write = AssistantMessage((*write.blocks, ToolCall("b", "write", {"text": "x"})))
    view = land([TASK, write, ok, failed], 300)
    assert len(view.messages) == 2
    assert view.dropped == 0
    assert (view.messages[1].internal, view.messages[1].reason) == (True, "flattened")
    assert "Writing.\nwrite returned: 42 lines\nwrite failed: no such folder" in view.messages[1].text


def test_a_batch_without_room_for_a_few_words_is_left_out():
    assert land([TASK, asks("a"), gives("a", "x" * 900)], 20).messages == [TASK]


def test_a_task_longer_than_the_budget_is_trimmed_and_leaves_room_for_the_newest_work():
    task = user("A" * 9_000 + "Z" * 9_000)
    view = land([task, asks("a"), gives("a", "x" * 9_000)], 600)
    assert [m.role for m in view.messages] == ["user", "assistant", "tool_result"]
    assert view.messages[0].text.startswith("A" * 500)
    assert view.messages[0].text.endswith("Z" * 200)
    assert 550 < view.tokens <= 600


def test_a_short_task_is_not_trimmed_for_a_long_one():
    view = land([user("short"), user("x" * 9_000)], 200, [0, 1])
    assert view.messages[0].text == "short"
    assert view.tokens <= 200


def test_an_image_in_a_task_that_does_not_fit_is_named():
    view = land([UserMessage((TextBlock("What is this? "), ImageBlock("image/png", b"0")))], 200)
    assert view.messages[0].text == "What is this? [an image, left out]"


def test_pinned_calls_are_never_touched():
    view = land([asks("a", text="y" * 900), gives("a", "x" * 900)], 50, [1])
    assert view.messages[0] == asks("a", text="y" * 900)
    assert view.messages[1].call_id == "a"
    assert len(view.messages[1].text) < 100


def test_a_long_answer_that_is_the_newest_is_trimmed():
    view = land([TASK, say("x" * 9_000)], 200)
    assert isinstance(view.messages[1], AssistantMessage)
    assert 180 < view.tokens <= 200


def test_an_estimator_that_raises_does_not_hurt_the_landing():
    def broken(text):
        raise OSError(text)

    messages = [TASK, asks("a"), gives("a", "x" * 9_000)]
    assert land(messages, 200, estimate=broken) == land(messages, 200)


@quick
@given(st.text(max_size=400), st.integers(-5, 200), st.sampled_from([estimate, len, lambda text: 5 + len(text) * 2]))
def test_trimmed_text_fits_and_is_made_of_its_beginning_and_its_end(text, tokens, measure):
    trimmed = trim_text(text, tokens, measure)
    assert measure(trimmed) <= tokens or trimmed == ""
    if trimmed != text:
        head, note, tail = trimmed.partition("\n[...")
        assert text.startswith(head) or not note
        assert text.endswith(tail.partition("...]\n")[2])


@pytest.mark.parametrize("tokens", [1, 10, 100, 1_000])
def test_text_of_uneven_weight_still_fits(tokens):
    text = "a" * 5_000 + "漢" * 5_000 + "\ud800"
    assert estimate(trim_text(text, tokens, estimate)) <= tokens
