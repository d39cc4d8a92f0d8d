"""Whatever has a say in a turn shows in its events when it is switched on, and nowhere else."""

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
from glidepath.errors import ContextOverflowError, TransientError
from glidepath.events import MessageAdded, StreamStarted, ToolEnded, ToolStarted, TurnStarted
from glidepath.models import StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.plugins import Hooks
from glidepath.resilience import model_breaker
from glidepath.sessions import MemoryStore
from glidepath.spi import AfterDecision, Block, Gate, GuardVerdict
from glidepath.testing import VirtualClock, compact_line as compact

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
        if self.turn in getattr(self, "overflows", ()):
            raise ContextOverflowError("too long")
        if getattr(self, "mute", False) and self.turn == self.turns + 1:
            yield TextDelta(" ")
            yield StreamEnd("end_turn", Usage(60 + 50 * len(request.messages), 1))
            return
        if self.turn in getattr(self, "blank", ()):
            yield TextDelta(" ")
            yield StreamEnd("end_turn", Usage(60 + 50 * len(request.messages), 1))
            return
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


@tool
async def spawns(context: ToolContext, query: str) -> str:
    """Ask a child."""
    child = Agent(model=Steady(tool=None), limits=Limits(max_iterations=2), agent_name="child")
    return (await context.spawn(child, query)).text


@tool
async def digs(context: ToolContext, query: str) -> str:
    """Ask a child that asks a child."""
    child = Agent(model=Steady(1, "spawns"), tools=[spawns], limits=Limits(max_iterations=3), agent_name="child")
    result = await context.spawn(child, query)
    return next(message.text for message in result.messages if message.role == "tool_result")


@tool
async def stumbles(query: str) -> str:
    """Look, but not in the third turn."""
    if query == "3":
        raise ValueError("stumbled")
    return f"saw {query}"


@tool
async def delegates(context: ToolContext, query: str) -> str:
    """Ask a child that looks again and again."""
    child = Agent(model=Steady(), tools=[look], limits=Limits(max_iterations=9), agent_name="child")
    return (await context.spawn(child, query)).text


class Lands:
    """A guard of the application's that has seen enough after two steps."""

    name, before = "lands", None

    def __init__(self):
        self.steps = 0

    def after(self, step, results):
        self.steps += 1
        return GuardVerdict(action="land", reason="seen enough") if self.steps == 2 else None


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


class Shrinks(Plugin):
    def context_overflow_recovery(self, context):
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
        from glidepath.values import replace

        return [replace(call, name="second") for call in calls]


class Grumbles(ResourceConstraint):
    name, state = "Grumbles", AgentState.BUDGET_EXCEEDED

    async def validate(self, context):
        return ResourceValidation.violation("enough") if context.iteration == 2 else ResourceValidation.ok()

    def on_violation(self, validation):
        return ResourceAction.GRACEFUL_EXIT


class Complains(Plugin):
    def event_observer(self, event):
        if type(event) is ToolEnded:
            raise ValueError("not this one")


def complain(event):
    if type(event) is ToolEnded:
        raise ValueError("not this one")


SWITCHES = {
    "context_transform": lambda: ({"plugins": [Views], "model": {"turns": 2}}, "Usage(input=330"),
    "context_overflow_recovery": lambda: ({"plugins": [Shrinks], "model": {"overflows": (3,)}}, "ContextShaped"),
    "observer": lambda: ({"plugins": [Complains]}, "HookFailed"),
    "sink": lambda: ({"event_sink": complain}, "HookFailed"),
    "depth": lambda: (
        {"limits": Limits(max_iterations=50, max_depth=1), "tools": [digs], "model": {"tool": "digs", "turns": 2}},
        "limit on depth",
    ),
    "descendants": lambda: (
        {"limits": Limits(max_iterations=50, max_descendants=1), "tools": [spawns], "model": {"tool": "spawns"}},
        "limit on descendants",
    ),
    "grace": lambda: ({"limits": Limits(max_iterations=9, grace_iterations=6)}, "NoticeSent"),
    "truncated_text": lambda: ({"model": {"tool": None, "stop": "max_tokens"}}, "GuardTripped"),
    "read_only_loop": lambda: (
        {
            "tools": [tool(look.fn, read_only=True)],
            "guardrails": GuardrailsConfig(read_only_loop_threshold=2),
        },
        "GuardTripped",
    ),
    "premature_end": lambda: (
        {"tools": [broken()], "model": {"tool": "breaks", "turns": 1, "mute": True}},
        "premature",
    ),
    "empty_answer": lambda: ({"model": {"mute": True}}, "empty"),
    "reserve_tokens": lambda: (
        {"limits": Limits(max_tokens=20_000), "guardrails": GuardrailsConfig(reserve_tokens=18_000)},
        "NoticeSent",
    ),
    "reserve_cost": lambda: (
        {"limits": Limits(max_cost="0.006"), "guardrails": GuardrailsConfig(reserve_cost_fraction="0.7")},
        "NoticeSent",
    ),
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
    "own_guard": lambda: ({"guards": [Lands()]}, "seen enough"),
    "rescued": lambda: ({"model": {"blank": (2,), "tool": "stumbles"}, "tools": [stumbles]}, "empty_answer"),
    "calls_of_children": lambda: (
        {"limits": Limits(max_tool_calls=3), "tools": [delegates], "model": {"tool": "delegates"}},
        "ToolCallLimitConstraint",
    ),
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


def seen(settings, *, act=None, **options):
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

    VirtualClock(seed=1).run(fly())
    return lines


@pytest.mark.parametrize("name", SWITCHES)
def test_what_is_switched_on_shows_in_the_turn(name):
    settings, effect = SWITCHES[name]()
    lines = seen(settings)
    assert any(effect in line for line in lines), lines
    assert lines != seen({})


HOOKS = {
    "before_tool_call": "before_tool_call",
    "after_tool_call": "after_tool_call",
    "context_transform": "context_transform",
    "steering": "steering",
    "follow_up": "follow_up",
    "tool_gate": "tool_gate",
    "context_overflow_recovery": "context_overflow_recovery",
    "observers": "observer",
}
LIMITS = {
    "max_iterations": "turn_limit",
    "max_tokens": "token_limit",
    "max_cost": "cost_limit",
    "timeout": "timeout",
    "max_tool_calls": "tool_call_limit",
    "max_depth": "depth",
    "max_descendants": "descendants",
    "grace_iterations": "grace",
    "landing_tokens": None,  # these two are for the landing, which is no turn
    "landing_seconds": None,
    "scope": None,  # decides before the first turn what the others bound
}
GUARDS = {
    "max_tokens_recoveries": "truncated_text",
    "max_repeated_tool_steps": "repetition",
    "max_error_streak": "error_streak",
    "read_only_loop_threshold": "read_only_loop",
    "max_premature_end_recoveries": "premature_end",
    "max_empty_recoveries": "empty_answer",
    "reserve_tokens": "reserve_tokens",
    "reserve_cost_fraction": "reserve_cost",
}


@pytest.mark.parametrize(
    ("public", "switches"),
    [
        pytest.param(Hooks.__struct_fields__, HOOKS, id="hooks"),
        pytest.param(Limits.__struct_fields__, LIMITS, id="limits"),
        pytest.param(GuardrailsConfig.__struct_fields__, GUARDS, id="guards"),
    ],
)
def test_everything_that_has_a_say_in_a_turn_is_switched_on_here(public, switches):
    assert [*switches] == [*public]  # whoever adds one says here which switch shows what it does
    assert {name for name in switches.values() if name is not None} <= SWITCHES.keys()


@pytest.mark.parametrize("kind", [TurnStarted, StreamStarted, ToolStarted], ids=lambda kind: kind.__name__)
def test_g7_whoever_hears_of_a_start_can_still_stop_it(kind):
    token = CancelToken()

    class Stops(Plugin):
        heard = 0

        def event_observer(self, event):
            self.heard += type(event) is kind
            if self.heard == 2:
                token.cancel("no more")

    lines = seen({"plugins": [Stops]}, cancel=token)
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


def test_a_shared_budget_is_charged_what_the_run_used_and_holds_nothing_back():
    budget = Budget(Limits(max_tokens=3_000))
    result = VirtualClock(seed=1).run(assembled({}).run("Go.", parent=budget))
    assert budget.meter.tokens == result.usage.total > 0
    assert budget.meter.reserved_tokens == 0


def test_events_are_numbered_in_order_although_an_observer_fails_among_them():
    numbers = []

    async def fly():
        agent = assembled({"plugins": [Complains], "event_sink": lambda event: numbers.append(event.sequence)})
        await agent.run("Go.")

    VirtualClock(seed=1).run(fly())
    assert numbers == [*range(1, len(numbers) + 1)]


@pytest.mark.parametrize("kept", [False, True], ids=["without a journal", "with a journal"])
def test_who_wants_one_kind_of_event_sees_the_numbers_that_they_have_for_everybody(kept):
    def fly(wanted):
        heard = []

        class Hears(Plugin):
            events = wanted

            def event_observer(self, event):
                if type(event) is ToolEnded:
                    heard.append(event.sequence)

        async def run():
            store = MemoryStore() if kept else None
            await assembled({"plugins": [Hears], "store": store}).run("Go.", session="s" if kept else None)

        VirtualClock(seed=1).run(run())
        return heard

    alone = fly((ToolEnded,))
    assert len(alone) == TURNS
    assert alone == fly(None)


def test_g7_a_run_that_is_stopped_with_its_reply_begins_no_tool():
    token = CancelToken()

    def stop(event):
        if type(event) is MessageAdded and event.message.role == "assistant":
            token.cancel("enough")

    lines = seen({"event_sink": stop}, cancel=token)
    assert [line for line in lines if line.startswith(("ToolStarted", "LandingStarted"))] == []
    assert "CANCELLED" in lines[-1]


def test_an_ordinary_answer_tells_the_breaker_of_a_model_that_failed_another_run_meanwhile():
    class Shared(Steady):
        reached, released = None, None

        async def stream(self, request):
            if request.messages[0].text == "Fail.":
                raise TransientError("503")
            if self.turn == 1:
                self.reached.set()
                await self.released.wait()
            async for delta in super().stream(request):
                yield delta

    async def both():
        model = Shared()
        model.reached, model.released = asyncio.Event(), asyncio.Event()
        limits = Limits(max_iterations=9)
        first = asyncio.create_task(Agent(model=model, tools=[look], limits=limits).run("Go."))
        await model.reached.wait()
        failed = await Agent(model=model, limits=limits, max_retries=0).run("Fail.")
        before = model_breaker(model).failures
        model.released.set()
        return failed, before, await first, model_breaker(model).failures

    failed, before, result, after = VirtualClock().run(both())
    assert (failed.outcome.value, result.outcome.value) == ("failed", "done")
    assert (before, after) == (1, 0)
