"""What changes messages that were sent before is named in the log, once; what only adds to them is not."""

import logging
import sys

import pytest

from glidepath import Agent, GuardrailsConfig, Limits, Plugin, RunResult, Usage, tool
from glidepath.errors import RateLimitedError
from glidepath.events import ContextShaped
from glidepath.messages import SystemMessage, UserMessage
from glidepath.outcome import AgentState, LoopOutcome
from glidepath.testing import EventRecorder, ScriptedModel, call, fail, say, virtual

WARNING = "cannot use the prompt cache"


@tool
async def work(item: int) -> str:
    """Work."""
    return f"item {item}: " + "fact " * 100


def script(turns, **cached):
    """So many turns; `cached` says how much of each prompt came from a cache."""
    usage = Usage(input=400, output=20, **cached)
    return [*[call("work", item=number).with_usage(usage) for number in range(turns)], say("done")]


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING, "glidepath")
    return lambda: [record.getMessage() for record in caplog.records if WARNING in record.getMessage()]


async def fly(model, **settings):
    settings.setdefault("limits", Limits(max_iterations=20))
    return await Agent(model=model, tools=[work], **settings).run("go")


@virtual
async def test_a_run_that_only_grows_warns_of_nothing(warned):
    class Gated(Plugin):
        name = "gated"

        def tool_gate(self, context):
            return frozenset() if context.iteration == 2 else None

    result = await fly(ScriptedModel(script(5)), plugins=[Gated()], limits=Limits(max_iterations=6))
    assert result.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP)
    assert warned() == []


@virtual
async def test_a_compaction_is_named_once(warned):
    model = ScriptedModel(script(30, cache_read=100))
    await fly(model, context_window=1_500, limits=Limits(max_iterations=40))
    (line,) = warned()
    assert line.endswith("the context was compacted")


@virtual
async def test_a_compaction_without_a_cache_loses_nothing(warned):
    await fly(ScriptedModel(script(15)), context_window=1_500)
    assert warned() == []


@pytest.mark.parametrize(
    ("price", "more"),
    [((2, 10, "0.2", "2.5"), 2_300_000), ((2, 10, "0.2", None), 1_800_000), ((2, 10), None)],
    ids=["written to the cache again", "read again", "no price of a cache"],
)
@virtual
async def test_a_compaction_says_what_it_costs_that_the_cache_has_nothing_of_the_rest(price, more):
    events = EventRecorder()
    model = ScriptedModel(script(15, cache_read=100))
    await fly(model, context_window=1_500, prices={"scripted": price}, event_sink=events)
    shaped = events.of(ContextShaped)[0]
    assert shaped.resent_tokens > 100
    assert shaped.picodollars == (None if more is None else shaped.resent_tokens * more)


@virtual
async def test_a_landing_that_had_to_be_compacted_is_named(warned):
    def step(request):
        sent = sum(len(message.text) for message in request.messages) // 4 + 100
        usage = Usage(input=sent, output=20, cache_read=100)
        return call("work", item=sent).with_usage(usage) if request.tools else say("landed")

    settings = {"limits": Limits(max_tokens=9_000), "guardrails": GuardrailsConfig(reserve_tokens=0)}
    result = await fly(ScriptedModel().forever(step), context_strategy="none", **settings)
    assert result.landing_calls == 1
    assert [line.rpartition(": ")[2] for line in warned()][-1] == "the landing was compacted"


@virtual
async def test_a_transform_that_changes_earlier_messages_is_named(warned):
    class Rewrites(Plugin):
        name = "rewrites"

        def context_transform(self, context):
            first, *rest = context.messages
            return [UserMessage(f"{first.text} (turn {context.iteration})"), *rest]

    await fly(ScriptedModel(script(4)), plugins=[Rewrites()])
    (line,) = warned()
    assert line.endswith("a context transform (rewrites) changed earlier messages")


@pytest.mark.parametrize("changes", [{2}, {0, 1}], ids=["from then on", "no longer"])
@virtual
async def test_a_transform_that_changes_earlier_messages_only_at_times_is_named(warned, changes):
    class Rewrites(Plugin):
        name = "rewrites"

        def context_transform(self, context):
            first, *rest = context.messages
            return [UserMessage(f"{first.text} (again)"), *rest] if context.iteration in changes else None

    await fly(ScriptedModel(script(4)), plugins=[Rewrites()])
    (line,) = warned()
    assert line.endswith("a context transform (rewrites) changed earlier messages")


@virtual
async def test_g19_a_transform_that_changes_nothing_has_no_history_compared():
    class Silent(Plugin):
        name = "silent"

        def context_transform(self, context):
            return None

    steps, counts = 0, []

    def count(frame, event, argument):
        nonlocal steps
        name = frame.f_code.co_filename
        steps += "glidepath" in name and "testing" not in name
        return count

    def turn(request):
        nonlocal steps
        counts.append(steps)
        steps = 0
        return call("work", item=len(counts)) if len(counts) < 40 else say("done")

    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        await fly(ScriptedModel().forever(turn), plugins=[Silent()], limits=Limits(max_iterations=60))
    finally:
        sys.settrace(tracer)
    assert counts[35] <= counts[10] + 20  # lines and calls of a turn


@virtual
async def test_a_transform_that_adds_a_reminder_at_the_end_is_not(warned):
    class Reminds(Plugin):
        name = "reminds"

        def context_transform(self, context):
            return [*context.messages, UserMessage(f"turn {context.iteration}")]

    await fly(ScriptedModel(script(4)), plugins=[Reminds()])
    assert warned() == []


@virtual
async def test_another_model_is_named(warned):
    first = ScriptedModel([script(1, cache_read=100)[0], fail(RateLimitedError("busy"))], name="first")
    other = ScriptedModel([say("done")], name="other")
    await fly(first, fallback_models=(other,), max_retries=0)
    (line,) = warned()
    assert line.endswith("another model answers (other)")


@pytest.mark.parametrize(("vendor", "lines"), [("anthropic", 1), ("google", 1), ("openai", 0)])
@virtual
async def test_a_system_message_at_the_end_is_named_where_it_moves_to_the_front(warned, vendor, lines):
    class Reminds(Plugin):
        name = "reminds"

        def context_transform(self, context):
            return [*context.messages, SystemMessage(f"turn {context.iteration}")]

    model = ScriptedModel(script(4))
    model.vendor = vendor
    await fly(model, plugins=[Reminds()])
    assert len(warned()) == lines


# --- the hit rate -------------------------------------------------------------------------------------------------


def ended(usage):
    return RunResult(run_id="r", session_id="s", state=AgentState.COMPLETED, outcome=LoopOutcome.DONE, usage=usage)


@pytest.mark.parametrize(
    ("usage", "rate"),
    [(Usage(), None), (Usage(input=200, output=9), 0.0), (Usage(input=200, output=9, cache_read=150), 0.75)],
)
def test_the_hit_rate_is_the_cached_share_of_all_input(usage, rate):
    assert ended(usage).cache_hit_rate == usage.cache_hit_rate == rate


@virtual
async def test_the_hit_rate_of_a_run_counts_all_its_calls():
    turns = [
        call("work", item=1).with_usage(Usage(input=400, output=20)),
        say("done").with_usage(Usage(input=600, output=20, cache_read=500)),
    ]
    result = await fly(ScriptedModel(turns))
    assert result.cache_hit_rate == 0.5
