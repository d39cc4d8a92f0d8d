"""Clearing old results, starting over after each compaction, and what a break of the prefix costs."""

import re

import pytest
from hypothesis import given

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.context import ClearResults, Compact
from glidepath.events import ContextShaped, GuardTripped
from glidepath.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from glidepath.testing import EventRecorder, ScriptedModel, call, say, virtual

from .grammar import cases, damaged, healthy, quick, sizes_of

STEPS = 100


def transcript(count, size=900):
    messages = [UserMessage("the task")]
    for number in range(count):
        messages.append(AssistantMessage((ToolCall(f"c{number}", "look", {"n": number}),)))
        messages.append(ToolResultMessage(f"c{number}", "look", f"{number} " + "x" * size))
    return messages


def shape(messages, budget):
    return ClearResults().shape(messages, [len(str(one)) // 3 for one in messages], budget, [0])


def test_results_are_cleared_the_oldest_first_before_a_group_is_dropped():
    messages = transcript(12)
    view = shape(messages, 3_000).messages
    assert len(view) == len(messages), "every call is still there"
    cleared = [number for number, one in enumerate(view) if "cleared to save room" in one.text]
    assert cleared == list(range(2, cleared[-1] + 1, 2))
    assert "x" in view[-1].text


def test_g15_a_pinned_result_is_not_cleared():
    messages = transcript(12)
    sizes = [len(str(one)) // 3 for one in messages]
    view = ClearResults().shape(messages, sizes, 3_000, [0, 4]).messages
    assert "cleared to save room" in view[2].text
    assert view[4] is messages[4]


def test_what_was_cleared_once_keeps_its_words_so_that_the_prefix_stays():
    first, then = shape(transcript(12), 3_000).messages, shape(transcript(16), 3_000).messages
    cleared = [number for number, one in enumerate(first) if "cleared to save room" in one.text]
    assert first[: cleared[-1] + 1] == then[: cleared[-1] + 1]


def test_where_groups_go_the_marker_says_what_was_done_in_them():
    shaped = shape(transcript(60), 1_800)
    (marker,) = [one for one in shaped.messages if isinstance(one, UserMessage) and one.internal]
    assert 'look {"n":47}' in marker.text
    assert "that are not listed; look" in marker.text
    assert shaped.tokens <= 1_800


def test_what_the_calls_had_read_taints_the_marker():
    messages = transcript(60)
    messages[2] = ToolResultMessage("c0", "look", "evil " * 200, origins=("web",))
    (marker,) = [one for one in shape(messages, 1_800).messages if isinstance(one, UserMessage) and one.internal]
    assert marker.origins == ("web",)


# --- the ledger: a step that is done is not done again --------------------------------------------------------------


class Ledger:
    """Does steps 1 to `STEPS`, one call each, as a model that knows only what is in its view; results are long."""

    def __init__(self):
        self.done = []

        @tool(consequential=True)
        async def book(step: int) -> str:
            """Book one step."""
            self.done.append(step)
            return f"step {step} is booked. " + "Here are the terms of this booking. " * 70

        self.tool = book

    def model(self, request):
        if not request.tools:  # a checkpoint: it says what is done
            return say("Booked: " + "; ".join(f'book {{"step":{step}}}' for step in self.done))
        replies = [one for one in request.messages if one.role == "assistant"]
        seen = {block.arguments["step"] for one in replies for block in one.tool_calls}
        told = " ".join(one.text for one in request.messages if one.role == "user")
        left = [step for step in range(1, STEPS + 1) if step not in seen and f'"step":{step}}}' not in told]
        return call("book", step=left[0]) if left else say("All is booked.")


@pytest.mark.parametrize("strategy", ["compact", "clear", "summarize"])
@virtual
async def test_a_done_step_is_not_done_again_after_twenty_compactions(strategy):
    ledger, recorder = Ledger(), EventRecorder()
    agent = Agent(
        model=ScriptedModel().forever(ledger.model),
        tools=[ledger.tool],
        limits=Limits(max_iterations=STEPS + 20),
        context_strategy=strategy,
        context_window={"compact": 7_000, "clear": 9_000, "summarize": 4_200}[strategy],
        max_output_tokens=300,
        event_sink=recorder,
    )
    result = await agent.run("Book steps 1 to 100.")
    assert len(recorder.of(ContextShaped)) >= 20
    assert result.outcome is LoopOutcome.DONE
    assert ledger.done == list(range(1, STEPS + 1))


# --- starting over -----------------------------------------------------------------------------------------------


@virtual
async def test_a_run_that_starts_over_after_each_compaction_is_told_and_then_lands():
    @tool
    async def plan(step: int) -> str:
        """Do one step of the plan."""
        return f"step {step}: " + "nothing new here. " * 40

    marker, number = "", 0

    def start_over(request):
        """A model that begins its plan again whenever a part of its context is gone."""
        nonlocal marker, number
        now = next((one.text for one in request.messages if one.role == "user" and "left out" in one.text), "")
        number = number + 1 if now == marker else 0
        marker = now
        return call("plan", step=number)

    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel().forever(lambda request: start_over(request) if request.tools else say("landed")),
        tools=[plan],
        limits=Limits(max_iterations=400),
        context_window=4_600,
        max_output_tokens=200,
        event_sink=recorder,
    )
    result = await agent.run("Go.")
    tripped = [event for event in recorder.of(GuardTripped) if event.guard == "replanning"]
    assert [event.action for event in tripped] == ["nudge", "nudge", "land"]
    assert result.cause.source == "replanning"
    assert result.iterations < 150


@virtual
async def test_a_long_run_that_makes_progress_is_left_alone():
    @tool
    async def plan(step: int) -> str:
        """Do one step of the plan."""
        return f"step {step}: " + "something new here. " * 40

    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel([*[call("plan", step=number) for number in range(120)], say("done")]),
        tools=[plan],
        limits=Limits(max_iterations=200),
        context_window=4_600,
        max_output_tokens=200,
        event_sink=recorder,
    )
    assert (await agent.run("Go.")).outcome is LoopOutcome.DONE
    assert len(recorder.of(ContextShaped)) > 5
    assert recorder.of(GuardTripped) == []


@quick
@given(case=cases(damaged()))
def test_a_cleared_view_keeps_each_call_with_its_result_and_is_never_larger(case):
    messages, pinned, budget = case
    sizes = sizes_of(messages)
    plain = Compact().shape(messages, sizes, budget, pinned)
    shaped = ClearResults().shape(messages, sizes, budget, pinned)
    for view in (plain, shaped):
        assert view.tokens == sum(view.sizes)
        asked = {call.id for one in view.messages if type(one) is AssistantMessage for call in one.tool_calls}
        assert {one.call_id for one in view.messages if type(one) is ToolResultMessage} <= asked
    assert shaped.tokens <= max(budget, plain.tokens)


# --- what the marker of `compact` lists ----------------------------------------------------------------------------


def listing(messages, budget, done=None):
    sizes = sizes_of(messages)
    return Compact().shape_listing_calls(done, messages, sizes, budget, [0])


def marker_of(shaped):
    (marker,) = [one for one in shaped.messages if isinstance(one, UserMessage) and one.internal]
    return marker


def test_the_marker_lists_the_calls_that_are_gone_and_none_that_failed_or_is_in_view():
    messages = transcript(30)
    messages[4] = ToolResultMessage("c1", "look", "no such thing", is_error=True)
    shaped, _ = listing(messages, 3_000)
    said = marker_of(shaped).text
    assert 'look {"n":0}; look {"n":2};' in said
    assert '{"n":1}' not in said
    in_view = [call.arguments["n"] for one in shaped.messages for call in getattr(one, "tool_calls", ())]
    assert in_view
    assert not any(f'{{"n":{number}}}' in said for number in in_view)
    assert shaped.tokens <= 3_000


def test_what_is_listed_grows_with_the_transcript_and_reads_each_message_once():
    class Read(list):
        taken = 0

        def __getitem__(self, place):
            self.taken += isinstance(place, slice) and len(range(*place.indices(len(self))))
            return super().__getitem__(place)

    done, taken = None, 0
    for count in range(20, 200, 20):
        messages = Read(transcript(count))
        shaped, done = listing(messages, 3_000, done)
        taken += messages.taken
        assert shaped.tokens <= 3_000
    said = marker_of(shaped).text
    assert " that are not listed; look" in said
    assert said.count("look") > 20
    assert taken < 2 * len(messages)


def test_what_an_earlier_marker_of_the_session_lists_is_listed_again():
    before = listing(transcript(20), 3_000)[0].messages
    more = [one for one in transcript(60)[41:] if not isinstance(one, UserMessage)]
    said = marker_of(listing([*before, *more], 3_000)[0]).text
    assert said.startswith("[")
    assert said.count("Calls made in them") == 1
    for number in (0, 5, 21, 40):
        assert f'look {{"n":{number}}}' in said


def test_equal_calls_are_counted_and_the_words_of_a_call_are_short():
    messages = [UserMessage("the task")]
    for number in range(30):
        messages.append(AssistantMessage((ToolCall(f"c{number}", "look", {"text": "y" * 500}),)))
        messages.append(ToolResultMessage(f"c{number}", "look", "x" * 900))
    said = marker_of(listing(messages, 3_000)[0]).text
    assert re.search(r"done: look \{\"text\":\"y+\.\.\. \(\d+ times\)\]$", said)


def test_the_list_is_tainted_by_what_was_read_before_its_calls():
    messages = transcript(60)
    messages[2] = ToolResultMessage("c0", "look", "evil " * 200, origins=("web",))
    assert marker_of(listing(messages, 3_000)[0]).origins == ("web",)


def test_without_room_for_the_list_the_view_is_what_it_was():
    messages = transcript(20)
    sizes = sizes_of(messages)
    for budget in (1, 50, 200, 500, 700):
        plain = Compact().shape(messages, sizes, budget, [0])
        shaped, _ = listing(messages, budget)
        assert shaped.tokens <= max(budget, plain.tokens)


@quick
@given(case=cases(healthy()))
def test_g15_a_view_with_a_list_is_within_what_the_view_without_it_was(case):
    messages, pinned, budget = case
    sizes = sizes_of(messages)
    plain = Compact().shape(messages, sizes, budget, pinned)
    shaped, done = Compact().shape_listing_calls(None, messages, sizes, budget, pinned)
    assert shaped.tokens <= max(budget, plain.tokens)
    again, _ = Compact().shape_listing_calls(done, messages, sizes, budget, pinned)
    assert again.messages == shaped.messages
