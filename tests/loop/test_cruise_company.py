"""Hooks and constraints stand beside the straight line: whatever one of them does, the run is as it is in general."""

import asyncio
from collections import Counter

import pytest

from glidepath import Agent, Budget, CancelToken, Limits, Plugin, ResourceAction, ResourceConstraint, ResourceValidation
from glidepath.events import ToolStarted
from glidepath.run.state import Run
from glidepath.sessions import MemoryStore
from glidepath.spi import AfterDecision, Allow, Ask, Block, Gate, Replace
from glidepath.spi.hooks import HOOKS
from glidepath.testing import VirtualClock

from .test_cruise import TURNS, Steady, assembled, seen, waits

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


def same(settings, **options):
    """The lines of a run, after a look that they are the same both ways, with a journal, and on a shared budget."""
    lines = seen(settings(), **options)
    assert lines == seen(settings(), straight=False, **options)

    def kept(*, straight):
        store = MemoryStore(clock=lambda: 0.0)
        flown = seen({"store": store, **settings()}, straight=straight, session="s")
        return flown, [commit.body for commit in asyncio.run(store.load("s"))[1]]

    def shared(*, straight):
        budget = Budget(Limits(max_tokens=50_000, max_tool_calls=3))
        return seen(settings(), straight=straight, parent=budget), budget.meter.tokens, budget.meter.reserved_tokens

    assert kept(straight=True) == kept(straight=False)
    assert shared(straight=True) == shared(straight=False)
    return lines


@pytest.mark.parametrize("late", [False, True], ids=["at_once", "late"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_changes_the_turn_as_it_does_in_general(name, late):
    hook, answer = ANSWERS[name]
    assert same(lambda: {"plugins": [plugin(hook, answer, late=late)]})


@pytest.mark.parametrize("hook", ASKED)
def test_a_hook_that_fails_is_treated_as_in_general(hook):
    def fail(context):
        raise ValueError("not today")

    lines = same(lambda: {"plugins": [plugin(hook, fail)]})
    assert any("HookFailed" in line and "not today" in line for line in lines)


@pytest.mark.parametrize("hook", ASKED)
def test_a_hook_that_hangs_is_treated_as_in_general(hook):
    lines = same(lambda: {"plugins": [plugin(hook, lambda context: asyncio.sleep(1_000))], "hook_timeout": 2.0})
    assert any("HookFailed" in line and "no answer within" in line for line in lines)


@pytest.mark.parametrize("late", [False, True], ids=["at_once", "late"])
@pytest.mark.parametrize("hook", ASKED)
def test_g7_a_hook_that_stops_the_run_keeps_the_next_step_from_starting(hook, late):
    def fly(*, straight):
        token = CancelToken()
        acts = plugin(hook, lambda context: token.cancel("enough"), late=late)
        return seen({"plugins": [acts]}, straight=straight, cancel=token)

    lines = fly(straight=True)
    assert lines == fly(straight=False)
    assert "CANCELLED" in lines[-1]


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
def test_a_constraint_is_asked_and_heeded_as_in_general(checkpoint, action, seconds):
    asked = []

    def settings():
        asked.append(Weighs(checkpoint, action, seconds))
        return {"constraints": [asked[-1]], "limits": Limits(max_iterations=50, max_tokens=90_000, timeout=600)}

    same(settings)
    for one, other in zip(asked[::2], asked[1::2], strict=True):
        assert one.seen == other.seen


def test_a_soft_limit_that_passes_while_a_constraint_is_asked_counts_in_that_turn():
    def settings():
        limits = Limits(max_iterations=50, timeout=9)
        return {"constraints": [Weighs("", None, 1.0)], "limits": limits, "tools": [waits], "model": {"tool": "waits"}}

    assert any("NoticeSent" in line or "LandingStarted" in line for line in same(settings))


@pytest.mark.parametrize("tokens", range(900, 2_700, 200))
def test_a_budget_that_runs_out_is_noticed_as_in_general_with_everybody_there(tokens):
    silent = type("Silent", (Plugin,), dict.fromkeys(HOOKS, lambda self, context: None))
    same(lambda: {"plugins": [silent], "constraints": [Weighs("", None, 0)], "limits": Limits(max_tokens=tokens)})


def test_silent_hooks_and_constraints_leave_a_turn_on_the_line(monkeypatch):
    general = []
    monkeypatch.setattr("glidepath.loop.asked", general.append)
    monkeypatch.setattr("glidepath.loop.execute", general.append)
    silent = type("Silent", (Plugin,), dict.fromkeys(HOOKS, lambda self, context: None))
    lines = seen({"plugins": [silent], "constraints": [Weighs("", None, 0)]})
    assert any(f"saw {TURNS}" in line for line in lines)
    assert general == []


def test_g7_after_hooks_see_a_call_that_was_stopped_when_it_was_announced():
    def fly(*, straight):
        token, shown = CancelToken(), []

        class Stops(Plugin):
            def event_observer(self, event):
                if type(event) is ToolStarted and event.call_id == "c2":
                    token.cancel("no more")

            def after_tool_call(self, context):
                shown.append(context.result.text)

        return seen({"plugins": [Stops]}, straight=straight, cancel=token), shown

    lines, shown = fly(straight=True)
    assert (lines, shown) == fly(straight=False)
    assert [text for text in shown if "saw" in text] == ["saw 1"]


def test_a_child_that_a_silent_hook_leaves_behind_is_stopped_as_in_general():
    def fly(*, straight):
        tasks = []

        class Starts(Plugin):
            def before_tool_call(self, context):
                if len(tasks) == 1:
                    child = Agent(model=Steady(tool="waits"), tools=[waits], limits=Limits(max_iterations=9))
                    tasks.append(asyncio.ensure_future(child.run("Go.")))
                elif not tasks:
                    tasks.append(None)

        return seen({"plugins": [Starts]}, straight=straight)

    assert fly(straight=True) == fly(straight=False)


@pytest.mark.parametrize("straight", [True, False])
def test_hooks_are_asked_as_often_when_nobody_listens(straight, monkeypatch):
    asked = Counter()

    def count(hook):
        return lambda self, context: asked.update([hook])

    counts = type("Counts", (Plugin,), {hook: count(hook) for hook in ASKED})
    if not straight:
        monkeypatch.setattr(Run, "look_around", lambda run: None)
    result = VirtualClock(seed=1).run(assembled({"plugins": [counts]}).run("Go."))
    assert result.iterations == TURNS + 1
    once, more = dict.fromkeys(ASKED[:2], TURNS), dict.fromkeys(ASKED[2:], TURNS + 1)
    assert asked == {**once, **more}
