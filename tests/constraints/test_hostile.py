"""Constraints that answer with something that looks right and is not: the run lands or goes on, and ends typed."""

import asyncio

import pytest

from glidepath import (
    Agent,
    AgentState,
    ConfigurationError,
    Limits,
    LoopOutcome,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    tool,
)
from glidepath.constraints import KillSwitchConstraint
from glidepath.sessions import MemoryStore, read_journal
from glidepath.testing import ScriptedModel, call, say, transcript_errors, virtual

from .chain import fly


class Thorn:
    """Raises whatever is done to it."""

    def __str__(self):
        raise ZeroDivisionError("str")

    __repr__ = __bool__ = __eq__ = __len__ = __iter__ = __str__
    __hash__ = None


class Answers(ResourceConstraint):
    """Says `validation` from the second turn on, after the model spoke."""

    def __init__(self, validation, action=ResourceAction.GRACEFUL_EXIT):
        self.validation, self.action = validation, action

    async def validate(self, context):
        due = context.iteration >= 1 or context.checkpoint != "pre_flight"
        return self.validation if due else ResourceValidation.ok()

    def on_violation(self, validation):
        return self.action


NONSENSE = {
    "violated None": ResourceValidation(None),
    "violated 0": ResourceValidation(0),
    "violated text": ResourceValidation("no"),
    "violated thorn": ResourceValidation(Thorn()),
    "reason None": ResourceValidation(True, None),
    "reason thorn": ResourceValidation(True, Thorn()),
    "reason bytes": ResourceValidation(True, b"x"),
    "notice 7": ResourceValidation(True, "x", {}, 7),
    "notice thorn": ResourceValidation(True, "x", {}, Thorn()),
    "notice list": ResourceValidation(True, "x", {}, ["x"]),
}


@pytest.mark.parametrize("kind", NONSENSE)
@virtual
async def test_g9_a_validation_with_wrong_fields_lands_the_run_and_names_the_constraint(kind):
    store = MemoryStore()
    result, _ = await fly(Answers(NONSENSE[kind]), store=store)
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.WRAPPED_UP)
    assert result.cause.source == "Answers"
    assert "ResourceValidation" in result.cause.reason
    assert transcript_errors(result.messages) == []
    assert (await read_journal(store, result.session_id)).folded.result == result


ODD_METRICS = {
    "object": {"x": object()},
    "thorn": {"x": Thorn()},
    "set and bytes": {"x": {1, 2}, "y": b"\xff"},
    "surrogate": {"x": "\ud800"},
    "nested": {"x": {"y": [Thorn()]}},
    "no mapping": Thorn(),
    "a list": [1, 2],
    "None": None,
    "keys": {Answers: 1, 2: 3},
    "huge": {"x": 1 << 100, "y": float("inf"), "z": float("nan")},
}


@pytest.mark.parametrize("violated", [True, False])
@pytest.mark.parametrize("action", [ResourceAction.WARN_CONTINUE, ResourceAction.GRACEFUL_EXIT])
@pytest.mark.parametrize("kind", ODD_METRICS)
@virtual
async def test_metrics_that_are_no_plain_data_hurt_neither_the_run_nor_its_journal(kind, action, violated):
    store = MemoryStore()
    answer = ResourceValidation(violated, "too much \ud800", ODD_METRICS[kind], "\udfff stop")
    result, _ = await fly(Answers(answer, action), store=store)
    lands = violated and action is ResourceAction.GRACEFUL_EXIT
    assert result.outcome is (LoopOutcome.WRAPPED_UP if lands else LoopOutcome.DONE)
    if lands:
        assert (result.cause.source, result.state) == ("Answers", AgentState.BUDGET_EXCEEDED)
    assert (await read_journal(store, result.session_id)).folded.result.outcome is result.outcome


@virtual
async def test_metrics_are_kept_as_they_were_when_they_were_given():
    figures = {"list": [1], "n": 1}
    result, _ = await fly(Answers(ResourceValidation(True, "x", figures)))
    figures["list"].append(2)
    figures["n"] = 2
    assert result.cause.metrics == {"list": [1], "n": 1}


class Fickle(ResourceConstraint):
    """Its state is no longer what it was when the agent was made."""

    async def validate(self, context):
        return ResourceValidation.violation("x")


@pytest.mark.parametrize("state", ["done", None, AgentState.COMPLETED, AgentState.RUNNING])
@virtual
async def test_g9_a_state_that_no_limit_ends_in_counts_as_an_error(state):
    constraint = Fickle()
    agent = Agent(model=ScriptedModel([say("landed")]), limits=Limits(max_iterations=3), constraints=[constraint])
    constraint.state = state
    result = await agent.run("go")
    assert (result.state, result.outcome, result.text) == (AgentState.ERROR, LoopOutcome.WRAPPED_UP, "landed")
    assert result.cause.source == "Fickle"


@pytest.mark.parametrize("name", [None, "", 7, Thorn()])
def test_a_constraint_without_a_name_is_refused(name):
    constraint = Fickle()
    constraint.name = name
    with pytest.raises(ConfigurationError, match=r"Fickle\.name"):
        Agent(model=ScriptedModel([]), limits=Limits(max_iterations=3), constraints=[constraint])


class Prickly(ResourceConstraint):
    __hash__ = None

    def __eq__(self, other):
        raise ZeroDivisionError("eq")

    async def validate(self, context):
        return ResourceValidation.ok()


@virtual
async def test_constraints_that_cannot_be_compared_reach_children_all_the_same():
    child = Agent(
        model=ScriptedModel([say("child")]), limits=Limits(max_iterations=20), constraints=[Prickly(), Prickly()]
    )
    parent = Agent(
        model=ScriptedModel([call("ask", task="x"), say("done")]),
        tools=[child.as_tool("ask", "Ask.")],
        limits=Limits(max_iterations=20),
        constraints=[Prickly()],
    )
    result = await parent.run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert [one.text for one in result.children] == ["child"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, ZeroDivisionError])
@virtual
async def test_g9_a_switch_that_raises_anything_counts_as_thrown(error):
    thrown = []

    def switch():
        if thrown:
            raise error
        return False

    @tool
    async def wait() -> str:
        thrown.append(1)
        await asyncio.sleep(100)
        return "never"

    agent = Agent(
        model=ScriptedModel([call("wait")]),
        tools=[wait],
        limits=Limits(max_iterations=3),
        constraints=[KillSwitchConstraint(switch)],
    )
    result = await agent.run("go")
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
