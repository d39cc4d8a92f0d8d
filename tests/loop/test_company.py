"""Hooks and constraints that take part in a turn: what one of them says, and when, decides what comes next."""

import asyncio
from collections import Counter

import pytest

from glidepath import (
    CancelToken,
    Limits,
    Plugin,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
)
from glidepath.events import ToolStarted
from glidepath.spi import HOOKS, AfterDecision, Allow, Ask, Block, Gate, Replace
from glidepath.testing import VirtualClock

from .test_switches import TURNS, assembled, seen, waits

ASKED = ("before_tool_call", "after_tool_call", "context_transform", "steering", "tool_gate")
ANSWERS = {
    "allow": ("before_tool_call", lambda context: Allow()),
    "block": ("before_tool_call", lambda context: Block("not now")),
    "ask": ("before_tool_call", lambda context: Ask("is this right?")),
    "replace": ("before_tool_call", lambda context: Replace({"query": "something else"})),
    "replace_with_nonsense": ("before_tool_call", lambda context: Replace({"wrong": 1})),
    "change_arguments": ("before_tool_call", lambda context: context.arguments.update(query="changed")),
    "content": ("after_tool_call", lambda context: AfterDecision(content="seen")),
    "long_content": ("after_tool_call", lambda context: AfterDecision(content="seen " * 100)),
    "error": ("after_tool_call", lambda context: AfterDecision(is_error=True)),
    "end": ("after_tool_call", lambda context: AfterDecision(terminate=True)),
    "same_view": ("context_transform", lambda context: list(context.messages)),
    "less": ("context_transform", lambda context: list(context.messages)[-1:]),
    "more": ("context_transform", lambda context: [*context.messages, *context.messages[:1]]),
    "message": ("steering", lambda context: "turn left"),
    "no_tools": ("tool_gate", lambda context: frozenset()),
    "some_tools": ("tool_gate", lambda context: Gate(allowed=context.tools - {"look"})),
    "all_tools": ("tool_gate", lambda context: Gate(allowed=context.tools)),
}


def plugin(hook, act, *, late=False):
    """A plugin on one hook that acts when it is asked for the second time, at once or after a wait."""

    def quick(self, context):
        self.asked += 1
        return act(context) if self.asked == 2 else None

    async def slow(self, context):
        self.asked += 1
        await asyncio.sleep(0.1)
        return act(context) if self.asked == 2 else None

    return type("Acts", (Plugin,), {"asked": 0, hook: slow if late else quick})


SHOWS = {
    "allow": f"saw {TURNS}",
    "block": "not now",
    "ask": "ApprovalRequested",
    "replace": "something else",
    "replace_with_nonsense": "wrong",
    "change_arguments": "changed the arguments in place",
    "content": "seen",
    "long_content": "seen seen",
    "error": "error:acts",
    "end": "RunEnded",
    "same_view": f"saw {TURNS}",
    "less": "a view without any message cannot be sent",
    "more": "tokens=600",
    "message": "turn left",
    "no_tools": "GateApplied",
    "some_tools": "GateApplied",
    "all_tools": f"saw {TURNS}",
}


@pytest.mark.parametrize("late", [False, True], ids=["at_once", "late"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_takes_effect_whether_it_comes_at_once_or_late(name, late):
    hook, answer = ANSWERS[name]
    lines = seen({"plugins": [plugin(hook, answer, late=late)]})
    assert any(SHOWS[name] in line for line in lines), lines


@pytest.mark.parametrize("hook", ASKED)
def test_a_hook_that_fails_is_reported(hook):
    def fail(context):
        raise ValueError("not today")

    lines = seen({"plugins": [plugin(hook, fail)]})
    assert any("HookFailed" in line and "not today" in line for line in lines)


@pytest.mark.parametrize("hook", ASKED)
def test_a_hook_that_hangs_is_reported(hook):
    lines = seen({"plugins": [plugin(hook, lambda context: asyncio.sleep(1_000))], "hook_timeout": 2.0})
    assert any("HookFailed" in line and "no answer within" in line for line in lines)


@pytest.mark.parametrize("late", [False, True], ids=["at_once", "late"])
@pytest.mark.parametrize("hook", ASKED)
def test_g7_a_hook_that_stops_the_run_keeps_the_next_step_from_starting(hook, late):
    token = CancelToken()
    acts = plugin(hook, lambda context: token.cancel("enough"), late=late)
    lines = seen({"plugins": [acts]}, cancel=token)
    assert "CANCELLED" in lines[-1]
    assert f"saw {TURNS}" not in lines[-1]


class Weighs(ResourceConstraint):
    """Asks for an action at one checkpoint of the second turn."""

    def __init__(self, checkpoint, action, seconds):
        self.due, self.action, self.seconds, self.seen = checkpoint, action, seconds, []

    async def validate(self, context):
        self.seen.append((context.checkpoint, context.iteration, context.agent_state, context.left))
        if self.seconds:
            await asyncio.sleep(self.seconds)
        if self.action is not None and context.checkpoint == self.due and context.iteration == 1:
            return ResourceValidation.violation("too much", notice="take care")
        return ResourceValidation.ok()

    def on_violation(self, validation):
        return self.action


@pytest.mark.parametrize("seconds", [0, 0.5])
@pytest.mark.parametrize("action", [None, *ResourceAction], ids=str)
@pytest.mark.parametrize("checkpoint", ["pre_flight", "after_model", "after_tools"])
def test_a_constraint_is_asked_at_every_checkpoint_and_obeyed(checkpoint, action, seconds):
    asked = Weighs(checkpoint, action, seconds)
    limits = Limits(max_iterations=50, max_tokens=90_000, timeout=600)
    lines = seen({"constraints": [asked], "limits": limits})
    goes_on = action in (None, ResourceAction.ALLOW, ResourceAction.WARN_CONTINUE)
    assert (f"saw {TURNS}" in lines[-1]) is goes_on
    assert ("too much" in lines[-1]) is not goes_on
    if goes_on:
        assert [where for where, *_ in asked.seen[:3]] == ["pre_flight", "after_model", "after_tools"]


def test_a_soft_limit_that_passes_while_a_constraint_is_asked_counts_in_that_turn():
    limits = Limits(max_iterations=50, timeout=9)
    slow = Weighs("", None, 1.0)
    lines = seen({"constraints": [slow], "limits": limits, "tools": [waits], "model": {"tool": "waits"}})
    assert any("NoticeSent" in line or "LandingStarted" in line for line in lines)


@pytest.mark.parametrize("tokens", range(900, 2_300, 200))
def test_a_budget_that_runs_out_is_noticed_with_everybody_there(tokens):
    silent = type("Silent", (Plugin,), dict.fromkeys(HOOKS, lambda self, context: None))
    limits = Limits(max_tokens=tokens)
    alone = seen({"limits": limits})
    beside = seen({"plugins": [silent], "constraints": [Weighs("", None, 0)], "limits": limits})
    assert "TokenBudgetConstraint" in beside[-1]
    assert beside[-1] == alone[-1]


def test_g7_after_hooks_see_a_call_that_was_stopped_when_it_was_announced():
    token, shown = CancelToken(), []

    class Stops(Plugin):
        def event_observer(self, event):
            if type(event) is ToolStarted and event.call_id == "c2":
                token.cancel("no more")

        def after_tool_call(self, context):
            shown.append(context.result.text)

    seen({"plugins": [Stops]}, cancel=token)
    assert [text for text in shown if "saw" in text] == ["saw 1"]


def test_every_hook_is_asked_once_a_turn_when_nobody_listens():
    asked = Counter()

    def count(hook):
        return lambda self, context: asked.update([hook])

    counts = type("Counts", (Plugin,), {hook: count(hook) for hook in ASKED})
    result = VirtualClock(seed=1).run(assembled({"plugins": [counts]}).run("Go."))
    assert result.iterations == TURNS + 1
    once, more = dict.fromkeys(ASKED[:2], TURNS), dict.fromkeys(ASKED[2:], TURNS + 1)
    assert asked == {**once, **more}
