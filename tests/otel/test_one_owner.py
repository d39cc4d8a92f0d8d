"""Each token has one owner: over any run, what stands on chat spans adds up to the ledger, to the pico-dollar."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath import Agent, Limits, tool
from glidepath.errors import ContextOverflowError, RejectedError, TransientError
from glidepath.teams import (
    AgentEvaluationStrategy,
    ExpertTeamCoordinator,
    RiskProfile,
    Team,
    TeamConfig,
    TeamExecutionRequest,
)
from glidepath.testing import ScriptedModel, VirtualClock, call, calls, empty, fail, no_end, refuse, say, truncated

from .kit import Recorded, tokens


@tool
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} " * 300


STEPS = st.sampled_from(
    [
        lambda: call("look", what="tea"),
        lambda: calls(call("look", what="a"), call("look", what="b")),
        lambda: call("helper", task="Which?"),
        lambda: fail(TransientError("busy"), text="half an answer"),
        lambda: fail(TransientError("busy")),
        lambda: truncated("a reply that was cut"),
        lambda: no_end("the line went dead"),
        empty,
        lambda: refuse("I will not."),
        lambda: fail(ContextOverflowError("too long"), text=""),
        lambda: fail(RejectedError("no key")),
        lambda: say("fine " * 30),
    ]
)


def flown(recorded, steps, limits, strategy, fallback):
    clock = VirtualClock(seed=7)
    script = ScriptedModel([step() for step in steps], price=("3", "15")).forever(say("That is all."))
    helper = Agent(
        model=ScriptedModel(price=("1", "2")).forever(say("Tea, I think.")),
        agent_name="helper",
        limits=Limits(max_iterations=3),
    )
    agent = Agent(
        model=script,
        fallback_models=[ScriptedModel(name="other", price=("1", "1")).forever(say("Fallback."))] if fallback else [],
        tools=[look, helper.as_tool("helper", "Ask the helper.")],
        plugins=[recorded.plugin],
        limits=limits,
        context_strategy=strategy,
        context_window=6_000,
        max_output_tokens=400,
    )
    return clock.run(agent.run("Do what you can. " * 20))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=8),
    limits=st.sampled_from(
        [
            Limits(max_iterations=6),
            Limits(max_tokens=6_000),
            Limits(max_cost="0.02"),
            Limits(max_iterations=5, max_tokens=20_000, max_cost="0.05", timeout=60),
        ]
    ),
    strategy=st.sampled_from(["compact", "summarize", "sliding_window"]),
    fallback=st.booleans(),
    light=st.booleans(),
    batch=st.booleans(),
)
def test_the_sum_over_chat_spans_is_the_ledger(steps, limits, strategy, fallback, light, batch):
    recorded = Recorded(light=light, batch=batch)
    result = flown(recorded, steps, limits, strategy, fallback)
    recorded.end()
    spans = {span.context.span_id: span for span in recorded.spans}
    runs = {span.attributes["glidepath.run.id"]: span for span in recorded.named("invoke_agent")}
    every = [result, *result.children]
    assert set(runs) == {one.run_id for one in every}
    for one in every:  # a result has what its children used, too
        below = [chat for chat in recorded.named("chat") if is_below(chat, runs[one.run_id], spans)]
        assert tokens(below) == (one.usage.input, one.usage.output, int((one.cost or 0) * 10**12))
        assert runs[one.run_id].attributes["glidepath.usage.input_tokens"] == one.usage.input


VERDICTS = st.sampled_from(
    [
        lambda: say('{"verdict": "pass"}'),
        lambda: say('{"verdict": "revise", "feedback": "shorter"}'),
        lambda: say("I like it."),
        lambda: fail(TransientError("busy"), text="half a ver"),
        lambda: no_end("the line went dead"),
    ]
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=4),
    verdicts=st.lists(VERDICTS, max_size=4),
    light=st.booleans(),
    batch=st.booleans(),
)
def test_the_sum_over_the_chat_spans_of_a_team_and_its_judge_is_what_the_team_has_used(steps, verdicts, light, batch):
    recorded = Recorded(light=light, batch=batch)
    writer = ScriptedModel([step() for step in steps], price=("3", "15")).forever(say("A line."))
    judge = ScriptedModel([one() for one in verdicts], name="judge", price=("1", "5")).forever(
        say('{"verdict": "pass"}')
    )
    members = [Agent(model=writer, tools=[look], agent_name="writer", limits=Limits(max_iterations=6))]
    review = AgentEvaluationStrategy(Agent(model=judge, agent_name="judge", limits=Limits(max_iterations=4)))
    team = Team(members, name="crew", coordinator=ExpertTeamCoordinator(judge=review), plugins=[recorded.plugin])
    request = TeamExecutionRequest(goal="Write a line.", config=TeamConfig(risk_profile=RiskProfile.HIGH))
    result = VirtualClock(seed=7).run(team.run(request))
    recorded.end()
    assert recorded.named("invoke_workflow crew")
    assert judge.calls or steps
    assert tokens(recorded.named("chat")) == (
        result.usage.input,
        result.usage.output,
        int((result.cost or 0) * 10**12),
    )


def is_below(span, above, spans):
    while span.parent is not None and span.parent.span_id in spans:
        span = spans[span.parent.span_id]
        if span is above:
            return True
    return False


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
def test_a_checkpoint_is_a_call_of_its_own_and_marked(answered):
    recorded = Recorded()

    def worker(request):
        if not request.tools:
            return say("What happened so far: tea.") if answered else fail(TransientError("busy"))
        return call("look", what=f"item {len(request.messages)}") if len(request.messages) < 400 else say("done")

    agent = Agent(
        model=ScriptedModel(price=("1", "1")).forever(worker),
        tools=[look],
        plugins=[recorded.plugin],
        limits=Limits(max_iterations=120),
        context_strategy="summarize",
        context_window=8_000,
        max_output_tokens=600,
    )
    result = VirtualClock(seed=7).run(agent.run("Work through it."))
    checkpoints = [span for span in recorded.named("chat") if span.attributes.get("glidepath.purpose") == "checkpoint"]
    assert checkpoints
    assert tokens(recorded.named("chat"))[:2] == (result.usage.input, result.usage.output)
    assert {span.attributes.get("error.type") for span in checkpoints} == {None if answered else "unanswered"}
    compacted = [span for span in recorded.named("chat") if span.attributes.get("gen_ai.conversation.compacted")]
    assert compacted  # the calls that see less, not those that wrote the summary
    assert not [span for span in compacted if span in checkpoints]
