"""Ordinary turns are flown in a straight line: whatever has a say in a turn still has it when it is switched on."""

import asyncio

import pytest

from glidepath import (
    Agent,
    AgentState,
    Budget,
    CancelToken,
    GuardrailsConfig,
    Limits,
    MaxTokensRecovery,
    Plugin,
    ProtocolPolicy,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    TokenScaling,
    ToolContext,
    ToolResult,
    Usage,
    tool,
)
from glidepath.errors import TransientError
from glidepath.events import StreamStarted, ToolStarted, TurnStarted
from glidepath.models import StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.run.state import Run
from glidepath.sessions import MemoryStore
from glidepath.spi import AfterDecision, Block, Gate
from glidepath.testing import VirtualClock
from glidepath.testing.compact import compact

TURNS = 4


class Steady:
    """Calls a tool in every turn but the last."""

    name, max_output_tokens = "steady", 400

    def __init__(self, turns=TURNS, tool="look", **more):
        self.turns, self.tool, self.turn = turns, tool, 0
        self.__dict__.update(more)

    async def stream(self, request):
        self.turn += 1
        if self.turn in getattr(self, "fails", ()):
            raise TransientError("503")
        yield TextDelta(f"thinking about {self.turn} ")
        if getattr(self, "thinks", False):
            yield ThinkingDelta("hm")
        if self.turn <= self.turns and self.tool is not None:
            yield ToolCallDelta(
                0, f"c{self.turn}", self.tool, f'{{"query": "{getattr(self, "same", None) or self.turn}"}}'
            )
            if getattr(self, "twice", False):
                yield ToolCallDelta(1, f"d{self.turn}", self.tool, '{"query": "more"}')
        yield StreamEnd(getattr(self, "stop", "tool_use"), Usage(60 + 50 * len(request.messages), 12))


@tool
async def look(query: str) -> str:
    """Look."""
    return f"saw {query}"


@tool
async def second(query: str) -> str:
    """Look elsewhere."""
    return f"found {query}"


@tool
async def waits(query: str) -> str:
    """Wait a while."""
    await asyncio.sleep(1)
    return f"saw {query}"


@tool
async def knows(context: ToolContext, query: str) -> str:
    """Look at what is left."""
    context.report("looking")
    return f"saw {query}, {context.remaining().iterations} left"


@tool
async def ends(query: str) -> ToolResult:
    """End the run."""
    return ToolResult("over", terminate=True)


def broken():
    """A tool that fails, with a breaker of its own."""

    @tool
    async def breaks(query: str) -> str:
        """Break."""
        raise RuntimeError("broken")

    return breaks


class Before(Plugin):
    def before_tool_call(self, context):
        return Block("not today")


class After(Plugin):
    def after_tool_call(self, context):
        return AfterDecision(content="seen by a plugin")


class Doors(Plugin):
    def tool_gate(self, context):
        return Gate(allowed=frozenset({"second"}), denial_reason="closed")


class Views(Plugin):
    def __init__(self):
        self.sizes = []

    def context_transform(self, context):
        return list(context.messages)[:1]


class Steers(Plugin):
    def steering(self, context):
        return "turn left" if context.iteration == 2 else None


class Follows(Plugin):
    asked = 0

    def follow_up(self, context):
        self.asked += 1
        return "and then?" if self.asked == 1 else None


class Rename(ProtocolPolicy):
    def normalize_tool_calls(self, calls, known):
        from glidepath._wire import replace

        return [replace(call, name="second") for call in calls]


class Grumbles(ResourceConstraint):
    name, state = "Grumbles", AgentState.BUDGET_EXCEEDED

    async def validate(self, context):
        return ResourceValidation.violation("enough") if context.iteration == 2 else ResourceValidation.ok()

    def on_violation(self, validation):
        return ResourceAction.GRACEFUL_EXIT


SWITCHES = {
    "before_tool_call": lambda: ({"plugins": [Before]}, "not today"),
    "after_tool_call": lambda: ({"plugins": [After]}, "seen by a plugin"),
    "tool_gate": lambda: ({"plugins": [Doors]}, "GateApplied"),
    "steering": lambda: ({"plugins": [Steers]}, "turn left"),
    "follow_up": lambda: ({"plugins": [Follows]}, "and then?"),
    "constraint": lambda: ({"constraints": [Grumbles()]}, "ConstraintViolated"),
    "approval": lambda: ({"tools": [tool(look.fn, requires_approval=True)]}, "RunPaused"),
    "policy": lambda: ({"protocol_policy": Rename()}, "found 1"),
    "turn_limit": lambda: ({"limits": Limits(max_iterations=3)}, "LandingStarted"),
    "token_limit": lambda: ({"limits": Limits(max_tokens=1_500)}, "TokenBudgetConstraint"),
    "cost_limit": lambda: ({"limits": Limits(max_cost="0.0018")}, "CostLimitConstraint"),
    "tool_call_limit": lambda: ({"limits": Limits(max_tool_calls=2)}, "ToolCallLimitConstraint"),
    "timeout": lambda: (
        {"limits": Limits(timeout=8), "tools": [waits], "model": {"tool": "waits", "turns": 20}},
        "TimeoutConstraint",
    ),
    "calls_per_turn": lambda: ({"max_tool_calls_per_turn": 1, "model": {"twice": True}}, "skipped"),
    "context_window": lambda: ({"model": {"context_window": 700, "turns": 20}}, "ContextShaped"),
    "tokenizer": lambda: (
        {"model": {"count_tokens": lambda request: 700}, "limits": Limits(max_tokens=2_000)},
        "TokenBudgetConstraint",
    ),
    "repetition": lambda: ({"model": {"same": "it", "turns": 20}}, "GuardTripped"),
    "error_streak": lambda: ({"tools": [broken()], "model": {"tool": "breaks", "turns": 20}}, "error_streak"),
    "breaker": lambda: (
        {
            "tools": [broken()],
            "model": {"tool": "breaks", "turns": 20},
            "guardrails": GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=0),
        },
        "BreakerChanged",
    ),
    "no_repetition": lambda: (
        {"model": {"same": "it", "turns": 8}, "guardrails": GuardrailsConfig(max_repeated_tool_steps=0)},
        "TurnStarted 9",
    ),
    "unknown_tool": lambda: ({"model": {"tool": "missing"}}, "unknown_tool"),
    "retry": lambda: ({"model": {"fails": (2,)}}, "RetryScheduled"),
    "fallback": lambda: (
        {"model": {"fails": range(2, 9)}, "fallback_models": [Steady(tool=None)], "max_retries": 1},
        "ModelSwitched",
    ),
    "vote": lambda: ({"tools": [ends], "model": {"tool": "ends"}}, "over"),
    "context_tool": lambda: ({"tools": [knows], "model": {"tool": "knows"}}, "ToolProgress"),
    "waiting_tool": lambda: ({"tools": [waits], "model": {"tool": "waits"}}, "saw 4"),
    "terminal": lambda: ({"tools": [tool(look.fn, terminal=True)]}, "RunEnded"),
    "thinking": lambda: ({"model": {"thinks": True}}, "hm"),
    "truncated": lambda: ({"model": {"stop": "max_tokens"}}, "truncated_call"),
    "refusal": lambda: ({"model": {"stop": "refusal"}}, "refus"),
    "escalation": lambda: (
        {
            "model": {"stop": "max_tokens"},
            "max_output_tokens": 100,
            "max_output_tokens_recovery": MaxTokensRecovery(max_attempts=1, scaling=TokenScaling.Double()),
        },
        "OutputTokensEscalated",
    ),
}


def assembled(settings):
    settings = dict(settings)
    given = {"model": Steady(**settings.pop("model", {})), "tools": [look, second], "limits": Limits(max_iterations=50)}
    settings["plugins"] = [kind() for kind in settings.get("plugins", ())]
    return Agent(**{**given, "prices": {"steady": (1.0, 1.0)}, **settings})


def seen(settings, *, straight=True, act=None, **options):
    """The events of a run, one line each, with its end."""
    lines = []

    async def fly():
        agent = assembled(settings)
        async with agent.stream("Go.", **options) as stream:
            async for event in stream:
                lines.append(compact(event))
                if act is not None:
                    act(event)
        result = stream.result
        lines.append(
            f"{result.state} {result.outcome} {result.cause} {result.usage} {[m.text for m in result.messages]}"
        )

    before = Run.look_around
    try:
        if not straight:
            Run.look_around = lambda run: None
        VirtualClock(seed=1).run(fly())
    finally:
        Run.look_around = before
    return lines


def test_ordinary_turns_cruise(monkeypatch):
    flown = []
    monkeypatch.setattr("glidepath.loop.ask", flown.append)
    assert any("saw 4" in line for line in seen({}))
    assert flown == []


@pytest.mark.parametrize("name", SWITCHES)
def test_what_is_switched_on_changes_the_turn_as_it_does_in_general(name):
    settings, effect = SWITCHES[name]()
    lines = seen(settings)
    assert lines == seen(SWITCHES[name]()[0], straight=False)
    assert any(effect in line for line in lines), lines
    assert lines != seen({})


@pytest.mark.parametrize("kind", [TurnStarted, StreamStarted, ToolStarted], ids=lambda kind: kind.__name__)
def test_g7_whoever_hears_of_a_start_can_still_stop_it(kind):
    def fly(*, straight):
        token = CancelToken()

        class Stops(Plugin):
            heard = 0

            def event_observer(self, event):
                self.heard += type(event) is kind
                if self.heard == 2:
                    token.cancel("no more")

        return seen({"plugins": [Stops]}, straight=straight, cancel=token)

    lines = fly(straight=True)
    assert lines == fly(straight=False)
    assert "CANCELLED" in lines[-1]
    assert "saw 2" not in lines[-1]


def test_a_sink_and_an_observer_see_every_event():
    told, heard = [], []

    class Hears(Plugin):
        def event_observer(self, event):
            heard.append(compact(event))

    lines = seen({"plugins": [Hears], "event_sink": lambda event: told.append(compact(event))})
    assert told == lines[:-1]
    assert heard == [line for line in lines[:-1] if not line.startswith("StreamChunk")]


def test_a_shared_budget_is_charged_as_in_general():
    def fly(*, straight):
        budget = Budget(Limits(max_tokens=3_000))
        return seen({}, straight=straight, parent=budget), budget.meter.tokens, budget.meter.reserved_tokens

    assert fly(straight=True) == fly(straight=False)
    assert fly(straight=True)[1] > 0


def test_a_journal_has_the_same_bytes():
    def fly(*, straight):
        store = MemoryStore(clock=lambda: 0.0)
        lines = seen({"store": store}, straight=straight, session="s")
        return lines, [commit.body for commit in asyncio.run(store.load("s"))[1]]

    lines, commits = fly(straight=True)
    assert (lines, commits) == fly(straight=False)
    assert len(commits) > TURNS
