"""Shaping: what a view may lose and what it may not (G15)."""

import pytest
from hypothesis import given

from glidepath.context import Compact, NoShaping, SlidingWindow, Summarize, strategy
from glidepath.errors import ConfigurationError
from glidepath.messages import AssistantMessage, CustomMessage, ToolResultMessage, UserMessage

from .grammar import (
    asks,
    cases,
    damaged,
    gives,
    healthy,
    is_marker,
    owners,
    places,
    quick,
    say,
    shape,
    sizes_of,
    unsent,
    user,
)

MARK = 31  # tokens set aside for a marker
shapers = pytest.mark.parametrize("shaper", [SlidingWindow(), Compact(), Summarize()], ids=lambda s: s.name)
any_pin = (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)


def minimum(shaper, messages, pinned):
    """The pinned messages and the newest group: what no budget can take away."""
    return shape(shaper, messages, 0, pinned)


# --- properties -----------------------------------------------------------------------------------------------


@shapers
@quick
@given(case=cases(damaged()))
def test_g15_a_view_never_separates_a_call_from_its_result(shaper, case):
    messages, pinned, budget = case
    view = shape(shaper, messages, budget, pinned)
    kept = {place for place in places(view.messages, messages) if place is not None}
    for result, call in owners(messages).items():
        assert (result in kept) == (call is not None and call in kept)


@shapers
@quick
@given(case=cases(healthy(), only=any_pin))
def test_g15_a_pinned_message_brings_its_whole_group(shaper, case):
    messages, pinned, budget = case
    kept = set(places(shape(shaper, messages, budget, pinned).messages, messages))
    assert set(pinned) <= kept
    assert all((result in kept) == (call in kept) for result, call in owners(messages).items())


@shapers
@quick
@given(case=cases(damaged()))
def test_g15_a_view_keeps_the_pinned_messages_and_the_order(shaper, case):
    messages, pinned, budget = case
    view = shape(shaper, messages, budget, pinned)
    found = places(view.messages, messages)
    made = [view.messages[i] for i, place in enumerate(found) if place is None]
    assert set(pinned) <= set(found)
    assert len(made) <= 1
    assert all(is_marker(message) for message in made)
    assert view.dropped == len(messages) - (len(view.messages) - len(made))


@shapers
@quick
@given(case=cases(damaged(), only=any_pin))
def test_a_view_is_over_the_budget_only_when_pinned_and_newest_are(shaper, case):
    messages, pinned, budget = case
    least = minimum(shaper, messages, pinned)
    view = shape(shaper, messages, budget, pinned)
    assert view.tokens <= budget or (view.tokens == least.tokens and view.messages == least.messages)


@shapers
@quick
@given(case=cases(damaged(), only=any_pin))
def test_shaping_a_view_again_changes_nothing(shaper, case):
    messages, pinned, budget = case
    view = shape(shaper, messages, budget, pinned)
    found = places(view.messages, messages)
    again = shaper.shape(view.messages, view.sizes, budget, [found.index(p) for p in pinned if p in found])
    assert (again.messages, again.sizes) == (view.messages, view.sizes)
    assert sum(is_marker(message) for message in view.messages) <= max(1, sum(map(is_marker, messages)))


@shapers
@quick
@given(case=cases(damaged(), only=any_pin))
def test_the_same_input_gives_the_same_view_and_is_not_changed(shaper, case):
    messages, pinned, budget = case
    before = list(messages)
    assert shape(shaper, messages, budget, pinned) == shape(shaper, messages, budget, pinned)
    assert messages == before


@shapers
@quick
@given(case=cases(healthy()))
def test_a_view_holds_the_newest_and_as_much_as_fits(shaper, case):
    messages, pinned, budget = case
    view = shape(shaper, messages, budget, pinned)
    kept = set(places(view.messages, messages))
    missing = [i for i, message in enumerate(messages) if i not in kept and not unsent(message)]
    if not missing:
        return
    call = owners(messages).get(missing[-1], missing[-1])
    unit = [call, *[result for result, owner in owners(messages).items() if owner == call]]
    cut = min([i for i in kept if i is not None and i not in pinned], default=len(messages))
    assert max(missing) < cut, "a hole between the kept ones"
    mark = 0 if shaper.name == "sliding_window" or any(map(is_marker, view.messages)) else MARK
    assert view.tokens + mark + sum(sizes_of([messages[i] for i in unit])) > budget


@quick
@given(case=cases(damaged(markers=False)))
def test_the_marker_stands_before_the_newest_groups_and_counts_what_is_missing(case):
    messages, pinned, budget = case
    view = shape(Compact(), messages, budget, pinned)
    found = places(view.messages, messages)
    if None not in found:
        return
    at = found.index(None)
    assert set(found[:at]) <= set(pinned)
    assert view.messages[at].internal
    assert view.messages[at].text.startswith(f"[{view.dropped} earlier message")
    assert view.sizes[at] >= sizes_of([view.messages[at]])[0]
    assert view.tokens <= budget


@shapers
@quick
@given(case=cases(damaged()))
def test_what_fits_is_left_alone_but_for_what_is_never_sent_and_orphans(shaper, case):
    messages, pinned, _ = case
    orphans = {result for result, call in owners(messages).items() if call is None}
    wanted = [m for i, m in enumerate(messages) if i in pinned or not (unsent(m) or i in orphans)]
    assert shape(shaper, messages, sum(sizes_of(messages)), pinned).messages == wanted


@quick
@given(case=cases(damaged()))
def test_none_returns_everything(case):
    messages, pinned, budget = case
    view = shape(NoShaping(), messages, budget, pinned)
    assert view.messages == messages
    assert view.dropped == 0


# --- examples -------------------------------------------------------------------------------------------------

TASK = user("the task")
BATCH = [asks("a", "b"), gives("a", "x" * 900), gives("b")]


def test_none_does_not_copy_a_list():
    messages = [TASK, say("hi")]
    assert NoShaping().shape(messages, [1, 1], 0, [0]).messages is messages
    assert NoShaping().shape(tuple(messages), (1, 1), 0, [0]).messages == messages


@shapers
def test_the_open_batch_is_kept_even_when_it_alone_exceeds_the_budget(shaper):
    messages = [TASK, say("old"), *BATCH]
    assert shape(shaper, messages, 10, [0]).messages == [TASK, *BATCH]


@shapers
def test_what_was_said_since_the_open_batch_does_not_push_it_out(shaper):
    messages = [TASK, say("old"), *BATCH, user("y" * 900), user("notice", internal=True)]
    assert shape(shaper, messages, 10, [0]).messages == [TASK, *messages[2:]]


@shapers
def test_an_answered_batch_is_not_open(shaper):
    messages = [TASK, *BATCH, say("so"), user("next")]
    assert shape(shaper, messages, 10, [0]).messages == [TASK, user("next")]


@shapers
def test_an_orphan_result_at_either_edge_is_dropped(shaper):
    messages = [gives("z"), TASK, say("hi"), gives("y")]
    assert shape(shaper, messages, 10**6, [1]).messages == [TASK, say("hi")]


@shapers
def test_a_pinned_orphan_result_is_dropped_and_pins_out_of_range_are_ignored(shaper):
    assert shape(shaper, [gives("z"), TASK], 10**6, [-1, 0, 7]).messages == [TASK]
    assert shape(shaper, [say("hi"), gives("z"), TASK], 10**6, [1]).messages == [say("hi"), TASK]


@shapers
def test_a_pinned_call_brings_one_result_and_no_double(shaper):
    messages = [asks("a", "b"), gives("a"), gives("a", "again"), gives("b"), gives("a", "again"), say("so")]
    assert shape(shaper, messages, 0, [0]).messages == [messages[0], messages[1], messages[3], messages[5]]


@shapers
@pytest.mark.parametrize("messages", [[], [CustomMessage("log")], [gives("a")]])
def test_a_transcript_with_nothing_to_send_gives_an_empty_view(shaper, messages):
    assert shape(shaper, messages, 100, []).messages == []


def test_the_task_marker_and_newest_look_like_this():
    messages = [TASK, *[say(f"step {i}") for i in range(100)], *BATCH]
    view = shape(Compact(), messages, sum(sizes_of([TASK, *BATCH])) + MARK, [0])
    assert [m.text for m in view.messages[:2]] == [
        "the task",
        "[100 earlier messages were left out here to fit the context.]",
    ]
    assert view.messages[2:] == BATCH
    assert (view.messages[1].internal, view.messages[1].reason) == (True, "compacted")
    assert view.dropped == 100


def test_the_marker_stands_between_the_first_task_and_a_prompt_that_is_the_newest():
    messages = [TASK, *[say("x" * 99)] * 9, user("now this")]
    view = shape(Compact(), messages, 60, [0, 10])
    assert [m.text[:8] for m in view.messages] == ["the task", "[9 earli", "now this"]


def test_a_marker_that_does_not_fit_is_not_there():
    messages = [TASK, *[say("x" * 99)] * 9, user("now this")]
    assert shape(Compact(), messages, MARK, [0, 10]).messages == [TASK, messages[-1]]


def test_shaping_a_view_further_adds_up_what_is_missing():
    messages = [TASK, *[say(f"step {i:03}") for i in range(100)]]
    first = shape(Compact(), messages, 400, [0])
    second = Compact().shape([*first.messages, *BATCH], [*first.sizes, *sizes_of(BATCH)], 480, [0])
    assert [is_marker(m) for m in second.messages].count(True) == 1
    steps = sum(m.text.startswith("step") for m in second.messages)
    assert second.messages[1].text.startswith(f"[{100 - steps} earlier messages")


def test_a_marker_whose_count_nobody_can_read_counts_nothing():
    odd = user("?", internal=True, reason="compacted")
    view = shape(Compact(), [TASK, odd, *[say("x" * 300)] * 3], 160, [0])
    assert [m.text[:11] for m in view.messages] == ["the task", "[2 earlier ", "x" * 11]


def test_an_own_estimate_measures_the_marker():
    messages = [TASK, *[say("x" * 300)] * 3, say("end")]
    view = shape(Compact(lambda text: len(text) * 2), messages, 200, [0])
    assert view.sizes[1] == 8 + 2 * len("[999999999 earlier messages were left out here to fit the context.]")


# --- look-up --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "sliding_window", "compact", "summarize"])
def test_a_strategy_is_found_by_its_name(name):
    assert strategy(name).name == name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "compct",
            [
                "context_strategy='compct'",
                "did you mean 'compact'?",
                "'none', 'sliding_window', 'compact', 'clear', 'summarize'",
            ],
        ),
        ("Sliding-Window", ["did you mean 'sliding_window'?"]),
        ("", ["use one of"]),
        (7, ["context_strategy=7"]),
        ("x" * 10_000, ["use one of"]),
        ("summarise", ["did you mean 'summarize'?"]),
    ],
)
def test_a_wrong_name_is_a_configuration_error_that_helps(name, parts):
    with pytest.raises(ConfigurationError) as caught:
        strategy(name)
    assert all(part in str(caught.value) for part in parts)
    assert len(str(caught.value)) < 300
