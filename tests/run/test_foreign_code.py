"""Every place where foreign code is called x every kind of exception: a result, one last event, nothing kept back.

The rows are compared with the hooks of `Plugin` and the methods of every port, so that a new one cannot be forgotten.
"""

import asyncio
import importlib
import inspect

import pytest
from tests.extension_points import EXTENSION_POINTS

from glidepath import (
    Agent,
    Budget,
    ConfigurationError,
    Limits,
    LoopOutcome,
    Plugin,
    ProtocolPolicy,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    Usage,
    tool,
)
from glidepath.constraints import KillSwitchConstraint
from glidepath.errors import ContextOverflowError
from glidepath.events import RunEnded
from glidepath.models import StreamEnd, TextDelta
from glidepath.outcome import RunResult
from glidepath.sessions import MemoryStore
from glidepath.spi import HOOKS
from glidepath.teams import ExpertTeamCoordinator, Member, Team, TeamResult
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    call,
    calls,
    fail,
    no_leftovers,
    say,
    transcript_errors,
    truncated,
    virtual,
)
from glidepath.values import replace

ANSWER = "ANSWER: this is what was found."
SHARED = Limits(max_tokens=1_000_000, max_iterations=1_000)


REFUSED = {False: ConfigurationError, True: (ConfigurationError, KeyboardInterrupt)}  # before it takes off


class Outlandish(BaseException):
    """What greenlets, test runners and other event loops raise."""


class Unspeakable(BaseException):
    def __str__(self):
        raise SystemExit("no words")


KINDS = [
    ValueError,
    RecursionError,
    MemoryError,
    StopIteration,
    StopAsyncIteration,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
    GeneratorExit,
    SystemExit,
    KeyboardInterrupt,
    ExceptionGroup,
    Outlandish,
    Unspeakable,
]


def boom(kind):
    raise kind("boom", [ValueError("x")]) if kind is ExceptionGroup else kind("boom")


async def later(kind):
    await asyncio.sleep(0)
    boom(kind)


ran = []


@tool
async def work(n: int = 0) -> str:
    """Work."""
    ran.append(n)
    await asyncio.sleep(0)
    return f"worked {n}"


def worker(**settings):
    return ScriptedModel([call("work", n=1)], price=("1", "2"), **settings).forever(say(ANSWER))


def agent(model=None, tools=(work,), **settings):
    settings.setdefault("limits", Limits(max_iterations=4, timeout=60))
    settings.setdefault("max_retries", 1)
    return Agent(model=model or worker(), tools=list(tools), **settings)


ROWS = {}


def row(*names, before=False, closed=False, quiet=False, answers=True):
    """A place. `before`: it may refuse to take off; `closed`: the tool must not have run; `quiet`: nothing is hurt.

    `answers`: the model has written its answer, which must be in the result.
    """

    def keep(make):
        for name in names or (make.__name__,):
            ROWS[name] = (make, {"before": before, "closed": closed, "quiet": quiet, "answers": answers})
        return make

    return keep


# --- the hooks of plugins -------------------------------------------------------------------------------------------


def _hook(hook, *, is_async):
    def make(kind):
        def plain(self, context):
            boom(kind)

        async def waiting(self, context):
            await later(kind)

        plugin = type("Odd", (Plugin,), {hook: waiting if is_async else plain})()
        model = worker()
        if hook == "context_overflow_recovery":
            model = ScriptedModel([call("work"), fail(ContextOverflowError("full"))]).forever(say(ANSWER))
        return agent(model, plugins=[plugin])

    return make


for _name in HOOKS:
    for _async in (False, True):
        row(
            f"Plugin.{_name}{'/async' if _async else ''}",
            closed=_name in ("before_tool_call", "tool_gate"),
            quiet=_name == "event_observer",
            answers=_name != "context_overflow_recovery",
        )(_hook(_name, is_async=_async))


@row("Plugin.for_run", before=True)
def _(kind):
    class Odd(Plugin):
        def for_run(self):
            boom(kind)

        def steering(self, context):
            return None

    return agent(plugins=[Odd()])


@row("Plugin.for_child")
def _(kind):
    class Odd(Plugin):
        def for_child(self):
            boom(kind)

        def before_tool_call(self, context):
            return None

    child = agent().as_tool("ask", "Ask another.")
    return agent(ScriptedModel([call("ask", task="x")]).forever(say(ANSWER)), tools=[child], plugins=[Odd()])


@row("Plugin.journal_note", quiet=True)
def _(kind):
    class Odd(Plugin):
        def event_observer(self, event):
            return None

        def journal_note(self):
            boom(kind)

    return agent(plugins=[Odd()])


@row("Plugin.flush", quiet=True)
def _(kind):
    class Odd(Plugin):
        def event_observer(self, event):
            return None

        async def flush(self):
            await later(kind)

    return agent(plugins=[Odd()])


@row("answer of steering")
def _(kind):
    class Endless:
        def __iter__(self):
            boom(kind)

    return agent(plugins=[type("Odd", (Plugin,), {"steering": lambda self, context: Endless()})()])


@row("event_sink", quiet=True)
def _(kind):
    return agent(event_sink=lambda event: boom(kind), plugins=[EventRecorder().as_plugin()])


# --- models and estimators --------------------------------------------------------------------------------------------


def _model(**parts):
    def stream(self, request):
        return worker_stream(request, self)

    async def worker_stream(request, self):
        async for delta in self.script.stream(request):
            yield delta

    body = {"name": "odd", "price": None, "stream": stream, **parts}
    made = type("Odd", (), body)()
    made.script = ScriptedModel([call("work", n=1)]).forever(say(ANSWER))
    return made


@row("Model.stream", answers=False)
def _(kind):
    return agent(_model(stream=lambda self, request: boom(kind)))


@row("Model.stream/first", answers=False)
def _(kind):
    async def stream(self, request):
        await later(kind)
        yield

    return agent(_model(stream=stream))


@row("Model.stream/middle")
def _(kind):
    async def stream(self, request):
        yield TextDelta(ANSWER)
        await later(kind)

    return agent(_model(stream=stream))


@row("Model.stream/after its end")
def _(kind):
    async def stream(self, request):
        yield TextDelta(ANSWER)
        yield StreamEnd("end_turn", Usage(3, 2))
        boom(kind)

    return agent(_model(stream=stream))


@row("Model.stream/aclose")
def _(kind):
    async def stream(self, request):
        try:
            yield TextDelta(ANSWER)
            while True:
                yield TextDelta("x" * 4000)
                await asyncio.sleep(0)
        finally:
            boom(kind)

    return agent(_model(stream=stream), limits=Limits(max_tokens=6000, max_iterations=3))


for _attribute in ("name", "price", "vendor", "provider", "context_window", "max_output_tokens", "usage_is_billed"):

    @row(f"Model.{_attribute}", before=True)
    def _(kind, attribute=_attribute):
        return agent(_model(**{attribute: property(lambda self: boom(kind))}))


@row("Model.count_tokens")
def _(kind):
    return agent(_model(count_tokens=lambda self, request: boom(kind)), limits=Limits(max_tokens=50_000, timeout=60))


@row("Model.count_tokens/async")
def _(kind):
    async def count(self, request):
        await later(kind)

    return agent(_model(count_tokens=count), limits=Limits(max_tokens=50_000, timeout=60))


@row("TokenEstimator.estimate", before=True)
def _(kind):
    class Odd:
        calls = 0

        def estimate(self, text):
            self.calls += 1
            return len(text) if self.calls < 4 else boom(kind)

    return agent(token_estimator=Odd(), limits=Limits(max_tokens=50_000, timeout=60))


# --- constraints, policies, providers ---------------------------------------------------------------------------------


def _constraint(**parts):
    return agent(constraints=[type("Odd", (ResourceConstraint,), parts)()])


@row("ResourceConstraint.validate", closed=True, answers=False)
def _(kind):
    async def validate(self, context):
        boom(kind)

    return _constraint(validate=validate)


@row("ResourceConstraint.validate/waiting", closed=True, answers=False)
def _(kind):
    async def validate(self, context):
        await later(kind)

    return _constraint(validate=validate)


@row("ResourceConstraint.for_run", before=True)
def _(kind):
    return _constraint(for_run=lambda self: boom(kind), validate=_violated)


async def _violated(self, context):
    return ResourceValidation.violation("no")


@row("ResourceConstraint.on_violation", closed=True, answers=False)
def _(kind):
    return _constraint(validate=_violated, on_violation=lambda self, validation: boom(kind))


@row("metrics of a validation", closed=True, answers=False)
def _(kind):
    class Figures(dict):
        def items(self):
            boom(kind)

    async def validate(self, context):
        return ResourceValidation(violated=True, reason="no", metrics=Figures(x=1))

    return _constraint(validate=validate, on_violation=lambda self, validation: ResourceAction.GRACEFUL_EXIT)


@row("kill switch", closed=True, answers=False)
def _(kind):
    return agent(constraints=[KillSwitchConstraint(lambda: boom(kind))])


def _policy(**parts):
    return type("Odd", (ProtocolPolicy,), parts)()


@row("ProtocolPolicy.normalize_tool_calls", closed=True)
def _(kind):
    return agent(protocol_policy=_policy(normalize_tool_calls=lambda self, calls, names: boom(kind)))


@row("ProtocolPolicy.hidden_tool_error", closed=True)
def _(kind):
    gate = type("Gate", (Plugin,), {"tool_gate": lambda self, context: set()})()
    return agent(protocol_policy=_policy(hidden_tool_error=lambda self, name, names: boom(kind)), plugins=[gate])


@row("ProtocolPolicy.plain_text_recovery_prompt")
def _(kind):
    @tool(terminal=True)
    async def deliver(text: str) -> str:
        """Deliver."""
        return text

    return agent(
        ScriptedModel().forever(say(ANSWER)),
        tools=[deliver, work],
        protocol_policy=_policy(plain_text_recovery_prompt=lambda self, text, name: boom(kind)),
        plain_text_terminal_fallback_tool="deliver",
        plain_text_terminal_fallback_eager=True,
        plain_text_terminal_fallback_eager_nudge=True,
    )


@row("ProtocolPolicy.terminal_tool_names", before=True)
def _(kind):
    return agent(protocol_policy=_policy(terminal_tool_names=property(lambda self: boom(kind))))


@row("graceful_turn_limit_message_provider")
def _(kind):
    return agent(graceful_turn_limit_message_provider=lambda: boom(kind), limits=Limits(max_iterations=2))


@row("graceful_turn_limit_grace_provider", before=True)
def _(kind):
    return agent(graceful_turn_limit_grace_provider=lambda: boom(kind), limits=Limits(max_iterations=3))


@row("max_output_tokens_recovery")
def _(kind):
    class Ladder:
        max_attempts = 2

        def next_cap(self, prev_cap, attempt):
            boom(kind)

    model = ScriptedModel([truncated(ANSWER)]).forever(say(ANSWER))
    return agent(model, max_output_tokens=100, max_output_tokens_recovery=Ladder())


@row("output_type", answers=False)
def _(kind):
    class Odd:
        @classmethod
        def model_validate(cls, value, **_):
            boom(kind)

        @classmethod
        def model_json_schema(cls):
            return {"type": "object"}

    return agent(ScriptedModel().forever(say('{"x": 1}')), output_type=Odd)


# --- tools ------------------------------------------------------------------------------------------------------------


def _tool(fn, **options):
    made = tool(fn, name="work", description="Work.", **options)
    return agent(tools=[made])


@row("tool/async")
def _(kind):
    async def odd(n: int = 0) -> str:
        boom(kind)

    return _tool(odd)


@row("tool/waiting")
def _(kind):
    async def odd(n: int = 0) -> str:
        await later(kind)

    return _tool(odd)


@row("tool/thread")
def _(kind):
    def odd(n: int = 0) -> str:
        boom(kind)

    return _tool(odd)


@row("tool/generator")
def _(kind):
    async def odd(n: int = 0):
        yield "half"
        boom(kind)

    return _tool(odd)


@row("tool/batch")
def _(kind):
    @tool
    async def odd(n: int = 0) -> str:
        """Fail."""
        await later(kind)

    return agent(ScriptedModel([calls(call("odd"), call("odd", n=1))]).forever(say(ANSWER)), tools=[odd])


class Shapeless:
    def __init__(self, kind):
        self.kind = kind

    def model_dump(self, mode=None):
        boom(self.kind)


@row("result of a tool")
def _(kind):
    async def odd(n: int = 0):
        return Shapeless(kind)

    return _tool(odd)


@row("result of a tool/batch")
def _(kind):
    @tool
    async def odd(n: int = 0):
        """Fail."""
        return Shapeless(kind)

    return agent(ScriptedModel([calls(call("odd"), call("odd", n=1))]).forever(say(ANSWER)), tools=[odd])


@row("arguments of a tool", closed=True)
def _(kind):
    class Odd:
        @classmethod
        def model_validate(cls, value, **_):
            boom(kind)

        @classmethod
        def model_json_schema(cls):
            return {"type": "object"}

    async def odd(what: Odd) -> str:
        ran.append(what)
        return "never"

    made = tool(odd, name="work", description="Work.")
    return agent(ScriptedModel([call("work", what={"x": 1})]).forever(say(ANSWER)), tools=[made])


@row("child agent")
def _(kind):
    child = agent(_model(stream=lambda self, request: boom(kind))).as_tool("ask", "Ask another.")
    return agent(ScriptedModel([call("ask", task="x")]).forever(say(ANSWER)), tools=[child])


# --- stores -----------------------------------------------------------------------------------------------------------

CALLED_BY_A_RUN = ("claim", "append", "beat", "release", "load")


def _store(method, *, is_async):
    def make(kind):
        def plain(self, *_, **__):
            boom(kind)

        async def waiting(self, *_, **__):
            await later(kind)

        store = type("Odd", (MemoryStore,), {method: waiting if is_async else plain})()
        slow = worker(delay=1)
        return agent(slow, store=store)

    return make


for _name in CALLED_BY_A_RUN:
    for _async in (False, True):
        row(
            f"SessionStore.{_name}{'/async' if _async else ''}",
            closed=_name in ("claim", "append"),
            answers=_name in ("beat", "release", "load"),
        )(_store(_name, is_async=_async))


@row("Inbox.notes", answers=False)
def _(kind):
    class Odd(MemoryStore):
        async def claim(self, *arguments, **keywords):
            return replace(await super().claim(*arguments, **keywords), mail=1)

        async def notes(self, *_, **__):
            await later(kind)

    return agent(store=Odd())


@row("Excerpts.pick")
def _(kind):
    class Odd(MemoryStore):
        async def pick(self, *_, **__):
            await later(kind)

    return agent(store=Odd())


# --- the test ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ROWS)
@virtual
async def test_g1_whatever_foreign_code_raises_there_is_a_result_and_nothing_is_kept_back(place, kind):
    make, promise = ROWS[place]
    ran.clear()
    budget, recorder = Budget(SHARED), EventRecorder()
    try:
        odd = make(kind)
        if odd.config.event_sink is None:
            odd = Agent(**{**_fields(odd), "event_sink": recorder})
        else:
            odd = Agent(**{**_fields(odd), "plugins": [recorder.as_plugin()]})
    except REFUSED[kind is KeyboardInterrupt]:
        assert promise["before"], place
        return
    async with no_leftovers():
        try:
            result = await odd.run("x", parent=budget)
        except REFUSED[kind is KeyboardInterrupt]:
            assert promise["before"], place
            result = None
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(100)  # nothing of it comes later
    meter = budget.meter
    left = (meter.reserved_tokens, meter.reserved_money, meter.aside_tokens, meter.aside_money)
    assert left == (0, 0, 0, 0)
    if result is None:
        return
    assert isinstance(result, RunResult)
    assert recorder.one(RunEnded).result.outcome is result.outcome
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    assert meter.turns - result.iterations in (0, 1)  # a call that failed has used its turn, and no other is gone
    if promise["closed"]:
        assert ran == []
    if promise["quiet"] and kind is not KeyboardInterrupt:
        assert result.outcome is LoopOutcome.DONE
    if promise["answers"] and kind is not KeyboardInterrupt:
        written = [result.text, *[message.text for message in result.messages]]
        assert any(ANSWER in text for text in written), result.cause


def _fields(odd):
    return {name: getattr(odd.config, name) for name in odd.config.__struct_fields__}


def test_g4_a_run_whose_coroutine_is_closed_gives_back_what_was_set_aside():
    """Whoever tears an event loop down closes what runs in it; the budget may be used by others."""

    class Silent:
        name = "silent"

        def stream(self, request):
            return self

        def __aiter__(self):
            return self

        async def __anext__(self):
            await asyncio.sleep(10_000)

    loop, budget = asyncio.new_event_loop(), Budget(SHARED)
    coroutine = agent(Silent()).run("x", parent=budget)
    task = loop.create_task(coroutine)
    for _ in range(20):
        loop.call_soon(loop.stop)
        loop.run_forever()
    meter = budget.meter
    assert meter.reserved_tokens > 0
    assert meter.aside_tokens > 0
    coroutine.close()
    assert (meter.reserved_tokens, meter.aside_tokens) == (0, 0)
    task.cancel()
    with pytest.raises(RuntimeError):  # the task now drives a coroutine that is closed
        loop.run_until_complete(task)
    loop.close()


# --- teams ------------------------------------------------------------------------------------------------------------


def _evaluating(kind):
    class Odd:
        async def evaluate(self, context):
            await later(kind)

    return ExpertTeamCoordinator(evaluator=Odd()), []


def _coordinating(kind):
    class Odd:
        async def execute(self, request, team):
            await later(kind)

    return Odd(), []


def _observing(kind):
    class Odd(Plugin):
        def event_observer(self, event):
            boom(kind)

    return None, [Odd()]


def _observing_async(kind):
    class Odd(Plugin):
        async def event_observer(self, event):
            await later(kind)

    return None, [Odd()]


TEAMS = {
    "TeamCoordinator.execute": _coordinating,
    "EvaluationStrategy.evaluate": _evaluating,
    "observer of a team": _observing,
    "async observer of a team": _observing_async,
    "member of a team": None,
    "planner of a team": None,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", TEAMS)
@virtual
async def test_g1_whatever_is_raised_in_a_team_there_is_a_result(place, kind):
    model = worker()
    coordinator, plugins = TEAMS[place](kind) if TEAMS[place] is not None else (None, [])
    broken = agent(_model(stream=lambda self, request: boom(kind)))
    if place == "planner of a team":
        coordinator = ExpertTeamCoordinator(planner=broken)
    member = broken if place == "member of a team" else agent(model)
    team = Team([Member(name="worker", agent=member)], coordinator=coordinator, plugins=plugins)
    async with no_leftovers():
        result = await team.run("go")
        assert asyncio.current_task().cancelling() == 0
    assert isinstance(result, TeamResult)


# --- no row is missing ------------------------------------------------------------------------------------------------

EXEMPT = {
    "ContextStrategy": "a setting takes the names of ours only",
    "CallGuard": "there is no setting for it",
    "StopGuard": "there is no setting for it",
    "SessionStore.entries": "no run asks for it",
    "SessionStore.flag": "no run asks for it",
    "SessionStore.cut": "no run asks for it",
    "SessionStore.remove": "no run asks for it",
    "SessionStore.close": "no run asks for it",
    "ResourceConstraint.check": "a helper of `validate`",
    "Catalog": "no run asks for it",
    "Inbox.post": "no run asks for it",
    "Excerpts.load": "as SessionStore.load",
    "WalletStore": "tests/wallets/test_wallet_runs.py draws from one that fails and from one that is silent",
    "ToolSource": "tests/agent/test_equipment.py flies with sources that fail, and ToolSourceContract holds them to it",
}


def _port(point):
    module, _, name = point.port.partition(":")
    return getattr(importlib.import_module(module), name)


def test_every_method_of_every_port_has_a_row():
    missing = []
    for point in EXTENSION_POINTS:
        port = _port(point)
        methods = [name for name, value in vars(port).items() if not name.startswith("_") and callable(value)]
        for method in methods:
            place = f"{port.__name__}.{method}"
            known = place in ROWS or place in TEAMS or place in EXEMPT or port.__name__ in EXEMPT
            if not known:
                missing.append(place)
    assert missing == []


def test_every_hook_of_a_plugin_has_a_plain_and_an_async_row():
    assert {f"Plugin.{hook}{how}" for hook in HOOKS for how in ("", "/async")} <= set(ROWS)
    own = {name for name, value in vars(Plugin).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert {f"Plugin.{name}" for name in own} <= set(ROWS)
