"""Bad input at every public boundary is a `ConfigurationError` that names the field; nothing hangs (SPEC 21)."""

import asyncio
import json
import math
import re
from decimal import Decimal

import pytest
from tests.setting_samples import wrong_for

from glidepath import (
    Agent,
    AgentState,
    Budget,
    CancelToken,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    LoopConfig,
    LoopOutcome,
    MaxTokensRecovery,
    Plugin,
    ProtocolPolicy,
    ResourceConstraint,
    Session,
    Texts,
    TokenScaling,
    Tool,
    ToolResult,
    tool,
)
from glidepath.constraints import KillSwitchConstraint, MaxIterationConstraint, TimeoutConstraint
from glidepath.events import HookFailed, StreamChunk
from glidepath.guards import GracefulTurnLimit
from glidepath.messages import (
    AssistantMessage,
    CustomMessage,
    ImageBlock,
    StreamEnd,
    TextBlock,
    ToolCall,
    ToolCallDelta,
    UserMessage,
)
from glidepath.spi import AfterDecision, Replace
from glidepath.testing import EventRecorder, ScriptedModel, call, no_leftovers, raw, transcript_errors, virtual
from glidepath.values import codec

LIMITS = Limits(max_iterations=5)
NEVER_BY_A_LIMIT = {"IDLE", "RUNNING", "WAITING_FOR_TOOL", "RECOVERING", "WAITING_FOR_INPUT", "COMPLETED"}
NAN, INF = math.nan, math.inf


def model(**settings):
    return ScriptedModel(**settings).forever("hi")


@tool
async def echo(text: str = "") -> str:
    return text


def shown(value):
    text = repr(value)[:40]
    return type(value).__name__ if "0x" in text or " at " in text else text


async def consume_later(event):
    """An async function is no sink: nobody would await it."""


def each(*pairs):
    """One case for each bad value of each field."""
    return [pytest.param(field, value, id=f"{field}={shown(value)}") for field, values in pairs for value in values]


COUNTS = ["five", 5.0, NAN, -1, True, [5]]
SECONDS = ["soon", NAN, INF, -1, 0, True, [5]]
TEXTS = [7, b"x", None, ["x"], "nul \0 inside", "half \ud800 of a pair"]
FLAGS = ["yes", 1, None]

# --- the agent ------------------------------------------------------------------------------------------------

NAMED = (
    ("model", [None, "antropic:claude", 7, ScriptedModel, object()]),
    ("tools", [7, "echo", echo, {"echo": echo}, [7], [None], ["echo"], [str], [echo, echo]]),
    ("skills", [7, "no such folder", {"a": 1}, [7], [None], ["no such folder"]]),
    ("agents", [7, "reviewer.md", [7], [None], ["no such file.md"]]),
    ("system_prompt", TEXTS),
    ("limits", [None, 5, {"max_iterations": 5}, Limits]),
    ("guardrails", [None, {}, GuardrailsConfig]),
    ("texts", [None, {}, Texts, "Land now."]),
    ("constraints", [7, "x", [7], [ResourceConstraint], [None]]),
    ("guards", [7, "x", [7], [None], [object()]]),
    ("deps_type", [7, "Shop"]),
    ("deps_factory", [7, "make"]),
    ("replace_defaults", FLAGS),
    ("plugins", [7, "x", [7], [Plugin], [None], [object()]]),
    ("store", ["path", object()]),
    ("event_sink", ["print", 7, consume_later]),
    ("default_execution_mode", ["parallel", None, 1]),
    ("max_tool_calls_per_turn", [*COUNTS, 0]),
    ("max_parallel_tools", [*COUNTS, 0, None]),
    ("tool_timeout", SECONDS),
    ("temperature", ["0.5", NAN, INF, -0.1, True, [1]]),
    ("max_output_tokens", [*COUNTS, 0]),
    ("reasoning", [7, ["high"]]),
    ("tool_choice", [None, 7, "nobody", ["auto"]]),
    ("extras", [7, "x", [1]]),
    ("tool_sources", [7, "x", [object()]]),
    ("max_output_tokens_recovery", [3, "double", MaxTokensRecovery]),
    ("empty_outcome_retry_budget", COUNTS),
    ("plain_text_terminal_fallback_tool", ["echo", "nobody", "", 7]),
    ("plain_text_terminal_fallback_eager", FLAGS),
    ("plain_text_terminal_fallback_eager_nudge", FLAGS),
    ("graceful_turn_limit_message_provider", ["wrap up", 7]),
    ("graceful_turn_limit_grace_provider", [3, "x"]),
    ("landing", [None, "now", 7, True, ["off"]]),
    ("conversation_id", [7, ["x"]]),
    ("model_id", [7, ["x"]]),
    ("token_estimator", [7, "x", object()]),
    ("protocol_policy", [7, "x", object()]),
    ("context_window", [*COUNTS, 0]),
    ("context_strategy", [None, 7, "forget", ["compact"]]),
    ("prices", [7, "x", [1], {"m": 1}, {"m": (1,)}, {"m": (1, -1)}, {"m": ("a", "b")}, {"m": (1, NAN)}, {"m": None}]),
    ("unbounded", FLAGS),
    ("min_output_tokens", [*COUNTS, 0, None]),
    ("max_retries", [*COUNTS, None]),
    ("max_image_bytes", [*COUNTS, 0]),
    ("max_image_bytes_per_request", [*COUNTS, 0]),
    ("max_file_bytes", [*COUNTS, 0]),
    ("strict_tools", FLAGS),
    ("stop_sequences", [7, "x", [7], [""], {"a": 1}]),
    ("seed", ["seven", -1, 1.5, True, 1 << 63]),
    ("logprobs", ["five", -1, 1.5, True, 21]),
    ("fallback_models", [7, "x", [object()]]),
    ("handoffs", [7, "x", [object()], [""], [int]]),
    ("output_validators", [7, "x", [object()], ["x"], [int]]),
    ("durability", [7, "maybe", None]),
    ("approvals", [{"allow": ["read"]}, "read", ["read"], 7]),
    ("output_type", [object, "int"]),
    ("agent_name", [*TEXTS, ""]),
    ("connect_timeout", SECONDS),
    ("first_chunk_timeout", SECONDS),
    ("stall_timeout", SECONDS),
    ("call_timeout", SECONDS),
    ("hook_timeout", [*SECONDS, None]),
    ("constraint_timeout", [*SECONDS, None]),
    ("kill_switch_grace", [*SECONDS, None]),
    ("start_timeout", SECONDS),
    ("debug", FLAGS),
    ("thinking_tags", FLAGS),
)
AGENT = each(*NAMED, *wrong_for(LoopConfig, {"unpriced", *(field for field, _ in NAMED)}))


@pytest.mark.parametrize(("field", "value"), AGENT)
def test_a_wrong_setting_of_an_agent_is_named(field, value):
    settings = {"model": model(), "limits": LIMITS} | {field: value}
    with pytest.raises(ConfigurationError) as caught:
        Agent(**settings)
    names = {
        "tools": "tool",
        "constraints": "constraint",
        "plugins": "plugin",
        "max_output_tokens_recovery": "recovery",
    }
    assert names.get(field, field) in str(caught.value)


def test_every_setting_is_tried():
    assert {case.values[0] for case in AGENT} | {"unpriced"} == set(LoopConfig.__struct_fields__)


@pytest.mark.parametrize(("field", "value"), AGENT)
def test_a_config_checks_itself(field, value):
    with pytest.raises(ConfigurationError) as of_agent:
        Agent(**({"model": model(), "limits": LIMITS} | {field: value}))
    with pytest.raises(ConfigurationError) as of_config:
        LoopConfig(**({"model": model(), "limits": LIMITS} | {field: value}))
    assert re.sub(r"0x\w+", "", str(of_config.value)) == re.sub(r"0x\w+", "", str(of_agent.value))


@pytest.mark.parametrize("unpriced", [7, "free", "estimate:", "estimate:nobody-knows-me", ["x"]])
def test_a_wrong_stand_in_for_a_price_is_named(unpriced):
    with pytest.raises(ConfigurationError, match="unpriced"):
        Agent(model=model(name="nobody-knows-me-either"), limits=Limits(max_cost=1), unpriced=unpriced)


def test_a_money_limit_without_a_price_is_refused():
    with pytest.raises(ConfigurationError, match="nobody-knows-me"):
        Agent(model=model(name="nobody-knows-me"), limits=Limits(max_cost=1))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("tool", "tools"), ("max_retrys", "max_retries"), ("sytem_prompt", "system_prompt"), ("limit", "limits")],
)
def test_an_unknown_keyword_is_named_with_what_was_meant(wrong, meant):
    with pytest.raises(ConfigurationError, match=f"{wrong!r}.*did you mean {meant!r}"):
        Agent(model=model(), **{wrong: ()})


def test_an_unknown_keyword_like_no_other_is_named():
    with pytest.raises(ConfigurationError, match=r"'zzzzzz'$"):
        Agent(model=model(), zzzzzz=1)


def test_an_agent_needs_a_model_and_takes_one_kind_of_arguments():
    with pytest.raises(ConfigurationError, match="model is required"):
        Agent(limits=LIMITS)
    with pytest.raises(ConfigurationError, match="not both"):
        Agent(LoopConfig(model=model()), limits=LIMITS)
    with pytest.raises(ConfigurationError, match="did you mean 'anthropic'"):
        Agent("antropic:claude")
    with pytest.raises(ConfigurationError, match="LoopConfig"):
        Agent(["anthropic:claude"])


@pytest.mark.parametrize("name", ["", 7, None])
def test_a_model_needs_a_name(name):
    nameless = model()
    nameless.name = name
    with pytest.raises(ConfigurationError, match=r"model\.name"):
        Agent(model=nameless, limits=LIMITS)


@virtual
async def test_an_agent_without_any_bound_is_refused_before_the_first_call():
    unbound = model()
    with pytest.raises(ConfigurationError, match="no limit at all"):
        await Agent(model=unbound).run("go")
    assert unbound.calls == 0
    assert (await Agent(model=unbound, unbounded=True).run("go")).outcome is LoopOutcome.DONE


def test_a_limit_that_can_never_hold_one_call_is_refused():
    with pytest.raises(ConfigurationError, match="max_tokens=300"):
        Agent(model=model(), limits=Limits(max_tokens=300), system_prompt="x" * 3000)


def test_a_knob_without_its_partner_is_ignored_with_one_warning():
    with pytest.warns(UserWarning, match="grace_iterations"):
        Agent(model=model(), limits=Limits(timeout=5, grace_iterations=2))


# --- limits, budgets, guards, tools ---------------------------------------------------------------------------


NAMED_LIMITS = (
    ("max_iterations", [*COUNTS, 0]),
    ("max_tokens", [*COUNTS, 0]),
    ("max_tool_calls", [*COUNTS, 0]),
    ("max_depth", [*COUNTS, 0, None]),
    ("max_descendants", [*COUNTS, 0, None]),
    ("landing_tokens", [*COUNTS, 0, None]),
    ("grace_iterations", COUNTS),
    ("timeout", ["soon", *SECONDS[1:], 10**400]),
    ("landing_seconds", ["soon", *SECONDS[1:], None, 10**400]),
    (
        "max_cost",
        [
            NAN,
            INF,
            0,
            -1,
            "0",
            "-1",
            "many",
            "",
            "NaN",
            "Infinity",
            Decimal("NaN"),
            Decimal(0),
            True,
            [1],
            "1e999999999",
        ],
    ),
)
WRONG_LIMITS = each(*NAMED_LIMITS, *wrong_for(Limits, {"scope", *(field for field, _ in NAMED_LIMITS)}))


@pytest.mark.parametrize(("field", "value"), WRONG_LIMITS)
def test_a_wrong_limit_is_named(field, value):
    with pytest.raises(ConfigurationError, match=f"Limits.{field}"):
        Limits(**{field: value})


def test_every_limit_is_tried():
    tried = {case.values[0] for case in WRONG_LIMITS}
    assert tried | {"scope"} == set(Limits.__struct_fields__)  # `scope` is tried with the wallets


@pytest.mark.parametrize("wrong", [{"max_turns": 3}, {"max_iteration": 3}])
def test_an_unknown_limit_is_refused(wrong):
    with pytest.raises((ConfigurationError, TypeError), match=next(iter(wrong))):
        Limits(**wrong)


@pytest.mark.parametrize("limits", [None, 5, {"max_tokens": 5}, Limits])
def test_a_budget_takes_limits(limits):
    with pytest.raises(ConfigurationError, match="Limits"):
        Budget(limits)


@pytest.mark.parametrize(
    ("field", "value"),
    each(
        ("reserve_tokens", ["five", -1, 5.0, NAN, True, None]),
        ("reserve_cost_fraction", ["many", -1, 1, 2, NAN, True, None, [1]]),
    ),
)
def test_a_wrong_reserve_of_a_budget_is_named(field, value):
    with pytest.raises(ConfigurationError, match=field):
        Budget(Limits(max_tokens=10_000, max_cost=1), **{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    each(
        ("max_tokens_recoveries", [*COUNTS, None]),
        ("max_repeated_tool_steps", [*COUNTS, None]),
        ("max_error_streak", [*COUNTS, None]),
        ("read_only_loop_threshold", COUNTS),
        ("max_premature_end_recoveries", [*COUNTS, None]),
        ("max_empty_recoveries", [*COUNTS, None]),
        ("reserve_tokens", [*COUNTS, None]),
        ("reserve_cost_fraction", ["many", -0.1, 1, NAN, True, None, [1]]),
    ),
)
def test_a_wrong_guardrail_is_named(field, value):
    with pytest.raises(ConfigurationError, match=f"GuardrailsConfig.{field}"):
        GuardrailsConfig(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    each(
        ("name", ["", "two words", "x" * 129, 7, "ümlaut"]),
        ("description", [7, "half \ud800"]),
        *[
            (flag, ["yes", 1, None])
            for flag in (
                "exclusive",
                "parallel_safe",
                "counts_toward_limit",
                "votes_on_termination",
                "terminal",
                "idempotent",
                "read_only",
                "polling",
                "aborts_siblings_on_error",
                "requires_approval",
            )
        ],
        ("timeout", SECONDS),
        ("max_result_chars", [*COUNTS, 0]),
        ("isolation", ["container", 7, True]),
    ),
)
def test_a_wrong_option_of_a_tool_is_named(field, value):
    async def fine(text: str) -> str:
        return text

    with pytest.raises(ConfigurationError, match=field):
        tool(fine, **{field: value})
    with pytest.raises(ConfigurationError, match=field):
        tool(**{field: value})


def test_an_unknown_option_of_a_tool_is_named_with_what_was_meant():
    with pytest.raises(ConfigurationError, match="did you mean 'timeout'"):
        tool(timout=3)
    with pytest.raises(ConfigurationError, match="did you mean 'exclusive'"):
        Tool(name="x", description="", parameters={}, fn=print, exclusiv=True)


@pytest.mark.parametrize("parameters", [None, [], "x", {"type": "array"}, {"properties": 3}, {"required": "x"}])
def test_a_wrong_schema_of_a_tool_is_named(parameters):
    with pytest.raises(ConfigurationError, match="parameters"):
        Tool(name="x", description="", parameters=parameters, fn=print)


@pytest.mark.parametrize(
    "make",
    [
        lambda: MaxTokensRecovery(max_attempts=0, scaling=TokenScaling.Double()),
        lambda: MaxTokensRecovery(max_attempts=True, scaling=TokenScaling.Double()),
        lambda: MaxTokensRecovery(max_attempts=1, scaling="double"),
        lambda: MaxTokensRecovery(max_attempts=1, scaling=TokenScaling.Double(), ceiling=0),
        lambda: TokenScaling.Linear(-1),
        lambda: TokenScaling.Linear("5"),
        lambda: TokenScaling.Fixed([]),
        lambda: TokenScaling.Fixed("123"),
        lambda: TokenScaling.Fixed([1, "2"]),
        lambda: GracefulTurnLimit(0),
        lambda: GracefulTurnLimit(5, grace=-1),
        lambda: GracefulTurnLimit(5, message_provider="text"),
        lambda: MaxIterationConstraint(0),
        lambda: MaxIterationConstraint(True),
        lambda: TimeoutConstraint(NAN),
        lambda: TimeoutConstraint("5"),
        lambda: KillSwitchConstraint(7),
    ],
)
def test_a_wrong_part_is_refused_where_it_is_made(make):
    with pytest.raises(ConfigurationError):
        make()


class TestPlugins:
    def refused(self, *plugins):
        with pytest.raises(ConfigurationError) as caught:
            Agent(model=model(), limits=LIMITS, plugins=plugins)
        return str(caught.value)

    def test_a_misspelt_hook(self):
        class Wrong(Plugin):
            def stearing(self, context): ...

        assert "did you mean 'steering'" in self.refused(Wrong())

    def test_no_hook_at_all(self):
        class Idle(Plugin):
            pass

        assert "overrides no hook" in self.refused(Idle())

    def test_a_hook_that_is_no_method(self):
        class Value(Plugin):
            steering = 7

        assert "steering" in self.refused(Value())

    def test_a_hook_that_yields(self):
        class Yields(Plugin):
            def steering(self, context):
                yield "x"

        assert "not yield" in self.refused(Yields())

    def test_a_name_used_twice(self):
        class One(Plugin):
            def steering(self, context): ...

        assert "'one'" in self.refused(One(), One())

    @pytest.mark.parametrize("name", ["", 7])
    def test_a_name_that_is_none(self, name):
        class Named(Plugin):
            def steering(self, context): ...

        plugin = Named()
        plugin.name = name
        assert "name" in self.refused(plugin)

    @pytest.mark.parametrize("events", [StreamChunk, ("StreamChunk",), 7, [StreamChunk], (int,)], ids=shown)
    def test_events_that_are_none(self, events):
        class Watching(Plugin):
            def event_observer(self, event): ...

        Watching.events = events
        assert "Watching.events" in self.refused(Watching())

    @pytest.mark.parametrize("field", ["runs_before", "runs_after"])
    @pytest.mark.parametrize("names", ["other", 7, None, (7,)])
    def test_an_order_that_names_nobody(self, field, names):
        class Ordered(Plugin):
            def steering(self, context): ...

        setattr(Ordered, field, names)
        assert f"Ordered.{field}" in self.refused(Ordered())

    def test_a_circle(self):
        class A(Plugin):
            runs_before = ("b",)
            runs_after = ("b",)

            def steering(self, context): ...

        class B(Plugin):
            def steering(self, context): ...

        assert "cycle" in self.refused(A(), B())


@pytest.mark.parametrize("state", [S for S in AgentState if S.name in NEVER_BY_A_LIMIT] + ["error", None, 7])
def test_a_constraint_that_ends_runs_in_a_state_no_limit_can_is_refused(state):
    class Odd(ResourceConstraint):
        async def validate(self, context): ...

    Odd.state = state
    with pytest.raises(ConfigurationError, match=r"Odd\.state"):
        Agent(model=model(), limits=LIMITS, constraints=[Odd()])


@pytest.mark.parametrize("names", [None, 7, "deliver", [7]])
def test_terminal_tools_that_are_no_names_are_refused(names):
    class Policy(ProtocolPolicy):
        terminal_tool_names = names

    with pytest.raises(ConfigurationError, match="terminal_tool_names"):
        Agent(model=model(), limits=LIMITS, protocol_policy=Policy())


@pytest.mark.parametrize("window", ["big", 0, -5, 1.5, True])
def test_a_window_of_a_model_that_is_none_is_refused(window):
    with pytest.raises(ConfigurationError, match=r"model\.context_window"):
        Agent(model=model(context_window=window), limits=LIMITS)


@pytest.mark.parametrize(
    ("field", "value"),
    each(
        ("messages", [7, "text", ["text"], [None], [{"role": "user"}], [UserMessage(7)], [UserMessage("half \ud800")]]),
        ("metadata", ["x", [], 7]),
    ),
)
def test_a_session_of_something_else_is_refused(field, value):
    with pytest.raises(ConfigurationError, match=field):
        Session(**{field: value})


# --- a run ----------------------------------------------------------------------------------------------------

RUN = each(
    (
        "prompt",
        [
            "",
            " \n ",
            None,
            7,
            b"bytes",
            [],
            (),
            {"role": "user"},
            [{"role": "user", "content": "hi"}],
            ["hi", 7],
            ["nul \0 inside"],
            [UserMessage("hi"), None],
            "nul \0 inside",
            "half \ud800 of a pair",
            UserMessage("nul \0 inside"),
            UserMessage("half \ud800"),
            UserMessage(7),
            UserMessage(None),
            UserMessage(("not a block",)),
            UserMessage((ImageBlock("image/png", data=7),)),
            AssistantMessage(("x",)),
            AssistantMessage((ToolCall("a", "b", "no object"),)),
            CustomMessage("x", object()),
            UserMessage,
            (message for message in [UserMessage("hi")]),
        ],
    ),
    ("session", [7, b"x", "", "  ", "x" * 500, "nul \0", ["x"], Session]),
    ("cancel", [7, "now", True, CancelToken, asyncio.Event()]),
    ("parent", [7, "x", LIMITS, Budget, object()]),
)


@pytest.mark.parametrize(("field", "value"), RUN)
@pytest.mark.parametrize("how", ["run", "stream"])
def test_a_wrong_argument_of_a_run_is_named_before_the_first_call(how, field, value):
    async def fly():
        used = model()
        agent = Agent(model=used, limits=LIMITS)
        arguments = {"prompt": "go"} | {field: value}
        async with no_leftovers():
            with pytest.raises(ConfigurationError, match=field):
                await consume(agent, how, arguments)
        assert used.calls == 0

    asyncio.run(fly())


async def consume(agent, how, arguments):
    if how == "run":
        await agent.run(**arguments)
        return
    async with agent.stream(**arguments) as stream:
        async for _ in stream:
            pass


@virtual
async def test_a_budget_in_money_needs_a_price():
    with pytest.raises(ConfigurationError, match="price"):
        await Agent(model=model(name="nobody-knows-me")).run("go", parent=Budget(Limits(max_cost=1)))


@pytest.mark.parametrize("text", ["x" * 3_000_000, "ü" * 100_000, "\u202e\u0007\ufffe", "{" * 50_000, "<think>" * 1000])
@virtual
async def test_a_strange_prompt_is_still_a_prompt(text):
    result = await Agent(model=model(usage="missing"), limits=LIMITS, thinking_tags=True).run(text)
    assert (result.outcome, result.messages[0].text) == (LoopOutcome.DONE, text)


# --- what plugins hand over --------------------------------------------------------------------------------------


class Odd(Plugin):
    """Answers one hook with one value, once."""

    def __init__(self, answer):
        self.left = [answer]

    def answer(self):
        return self.left.pop() if self.left else None


class OddSteering(Odd):
    def steering(self, context):
        return self.answer()


class OddBefore(Odd):
    def before_tool_call(self, context):
        return self.answer()


class OddAfter(Odd):
    def after_tool_call(self, context):
        return self.answer()


@pytest.mark.parametrize(
    "plugin",
    [
        OddSteering("half \ud800"),
        OddSteering([UserMessage(7)]),
        OddSteering([UserMessage("half \ud800")]),
        OddSteering([AssistantMessage()]),
        OddBefore(Replace("x")),
        OddBefore(Replace(None)),
        OddAfter(AfterDecision(content=7)),
    ],
    ids=lambda plugin: f"{type(plugin).__name__} {shown(plugin.left[0])}",
)
@virtual
async def test_what_cannot_be_used_of_a_plugin_is_reported_and_ends_nothing(plugin):
    recorder = EventRecorder()
    plugin = type(plugin)(plugin.left[0])
    script = [call("echo", text="x"), "done"]
    agent = Agent(model=ScriptedModel(script), tools=[echo], limits=LIMITS, plugins=[plugin], event_sink=recorder)
    result = await agent.run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert len(recorder.of(HookFailed)) == 1
    for message in result.messages:
        codec.encode(message)


@virtual
async def test_a_result_of_a_tool_with_odd_parts_can_be_stored():
    @tool
    async def odd() -> ToolResult:
        return ToolResult("half \ud800", is_error=0, kind=7, narration=7, terminate=None)

    result = await Agent(model=ScriptedModel([call("odd"), "done"]), tools=[odd], limits=LIMITS).run("go")
    assert result.outcome is LoopOutcome.DONE
    assert [codec.decode(codec.encode(message)) for message in result.messages] == list(result.messages)


# --- a model's bad input is an error result --------------------------------------------------------------------


def nested(depth):
    value = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "x" * 1_000_000},
        {"text": "nul \0 inside"},
        {"text": nested(200)},
        {"text": float(10**308) * 10},
        {"TEXT": "x"},
        {"text": ["x"]},
        {"text": 10**400},
    ],
    ids=["huge", "nul", "deep", "infinite", "unknown key", "wrong type", "huge number"],
)
@virtual
async def test_strange_arguments_of_a_call_are_bound_or_answered(arguments):
    turn = raw(ToolCallDelta(0, "a", "echo", json.dumps(arguments)), StreamEnd("tool_use"))
    scripted = ScriptedModel([turn, "done"], max_output_tokens=1_000_000)
    agent = Agent(model=scripted, tools=[echo], limits=LIMITS)
    result = await agent.run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    answer = result.messages[2]
    assert answer.kind in (None, "invalid_arguments")
    assert transcript_errors(result.messages) == []


@pytest.mark.parametrize("name", ["", "x" * 10_000, "echo\0", "../../etc/passwd", "écho", "__class__"])
@virtual
async def test_strange_names_of_tools_are_answered(name):
    agent = Agent(model=ScriptedModel([call(name), "done"]), tools=[echo], limits=LIMITS)
    result = await agent.run("go")
    assert (result.outcome, result.messages[2].kind) == (LoopOutcome.DONE, "unknown_tool")
    assert len(result.messages[2].text) < 2_000


@pytest.mark.parametrize("value", [TextBlock("x"), UserMessage("x")])
def test_values_cannot_be_changed(value):
    with pytest.raises(AttributeError):
        value.text = "y"
