"""Every hook category: order, composition, what a crash, a hang and nonsense mean, and what is refused."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from glidepath import Agent, Budget, CancelToken, ConfigurationError, Limits, LoopOutcome, Plugin, PluginNames, tool
from glidepath.errors import ContextOverflowError, TransientError
from glidepath.events import (
    ContextShaped,
    GateApplied,
    GateConflictResolved,
    HookFailed,
    RunEnded,
    StreamChunk,
    ToolStarted,
    TurnEnded,
)
from glidepath.messages import UserMessage
from glidepath.plugins import HookTable
from glidepath.spi import HOOKS, AfterDecision, Allow, Ask, Block, Gate, Replace
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, fail, say, virtual

LIMITS = Limits(max_iterations=9)


@tool
async def work(n: int = 0) -> str:
    return f"worked {n}"


@tool
async def rest() -> str:
    return "rested"


@tool
async def deliver() -> str:
    return "delivered"


TOOLS = [work, rest, deliver]


def plugin(hook, method, name="subject", **more):
    """A plugin with one hook."""
    return type("Subject", (Plugin,), {"name": name, hook: method, **more})()


async def fly(script, *plugins, **more):
    recorder = EventRecorder()
    with ScriptedModel(script) as model:
        settings = {"tools": TOOLS, "limits": LIMITS, "plugins": plugins, "event_sink": recorder, **more}
        result = await Agent(model=model, **settings).run("go")
    recorder.assert_legal()
    return result, model, recorder


def results(result):
    return [(m.tool_name, m.kind, m.text) for m in result.messages if m.role == "tool_result"]


# --- order --------------------------------------------------------------------------------------------------------

SCRIPTS = {
    "before_tool_call": [call("work"), "done"],
    "after_tool_call": [call("work"), "done"],
    "context_transform": ["done"],
    "event_observer": ["done"],
    "steering": ["done"],
    "follow_up": ["done"],
    "tool_gate": ["done"],
    "context_overflow_recovery": [call("work", n=1), call("work", n=2), fail(ContextOverflowError("too much")), "done"],
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
@virtual
async def test_hooks_are_asked_in_registration_order_moved_only_as_asked(hook, is_async):
    asked = []

    def note(name):
        def plain(self, context):
            if hook != "event_observer" or type(context) is RunEnded:
                asked.append(name)

        async def waiting(self, context):
            await asyncio.sleep(0)
            plain(self, context)

        return waiting if is_async else plain

    plugins = [
        plugin(hook, note("c"), "c", runs_after=("a",)),
        plugin(hook, note("a"), "a"),
        plugin(hook, note("d"), "d", runs_before=("b",)),
        plugin(hook, note("b"), "b", runs_after=("nobody",)),
    ]
    expected = ["a", "c", "d", "b"]
    assert getattr(HookTable(plugins).names(), hook) == tuple(expected)
    await fly(SCRIPTS[hook], *plugins)
    assert asked[:4] == expected


def test_the_names_have_one_row_for_every_category():
    assert PluginNames.__struct_fields__ == HOOKS


# --- crash, hang, nonsense ----------------------------------------------------------------------------------------

EFFECTS = {
    "before_tool_call": "the call is blocked",
    "after_tool_call": "skipped",
    "context_transform": "skipped",
    "steering": "skipped",
    "follow_up": "skipped",
    "tool_gate": "no tool is allowed",
    "context_overflow_recovery": "skipped",
}
ODD_GATES = [{"priority": "x"}, {"required": "x"}, {"suppresses": "x"}, {"denial_reason": 7}]
NONSENSE = {
    "before_tool_call": [
        True,
        "fine",
        7,
        {"allow": True},
        Allow,
        Block,
        Gate(allowed=frozenset()),
        Block(None),
        Ask(7),
        Replace(7),
    ],
    "after_tool_call": [
        True,
        "new text",
        7,
        AfterDecision(content=7),
        AfterDecision(is_error="no"),
        AfterDecision(terminate=1),
    ],
    "context_transform": [True, "text", 7, [], (), ["text"], [7], [UserMessage(7)], object()],
    "steering": [True, 7, [7], [None], object(), [["nested"]], "half \ud800"],
    "follow_up": [True, 7, [7], object()],
    "tool_gate": [True, "work", 7, ["work"], {"work": 1}, {7}, Gate(allowed=["work"]), Gate(allowed=None), Gate]
    + [Gate(allowed=frozenset({"work"}), **odd) for odd in ODD_GATES],
    "context_overflow_recovery": [True, "text", 7, [], [7]],
}


def failing(how, answer):
    async def hang(self, context):
        await asyncio.sleep(10_000)

    async def crash_later(self, context):
        await asyncio.sleep(0)
        raise OSError("later")

    def crash(self, context):
        raise OSError("at once")

    def nonsense(self, context):
        return answer

    return {"hang": hang, "crash": crash, "crash_later": crash_later, "nonsense": nonsense}[how]


def shown(value):
    return str(value)[:30].split(" object")[0]


CASES = [(hook, how, None) for hook in EFFECTS for how in ("crash", "crash_later", "hang")]
CASES += [(hook, "nonsense", answer) for hook, answers in NONSENSE.items() for answer in answers]


@pytest.mark.parametrize(("hook", "how", "answer"), CASES, ids=shown)
@virtual
async def test_a_hook_that_fails_has_the_effect_of_its_category_and_the_run_goes_on(hook, how, answer):
    result, model, recorder = await fly(SCRIPTS[hook], plugin(hook, failing(how, answer)))
    failures = recorder.of(HookFailed)
    assert failures
    assert {(event.plugin, event.hook, event.effect) for event in failures} == {("subject", hook, EFFECTS[hook])}
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    if hook == "before_tool_call":
        assert results(result) == [("work", "blocked", "Blocked: a guard of this tool failed.")]
        assert recorder.of(ToolStarted) == []
    if hook == "tool_gate":
        assert [request.tools for request in model.requests] == [()]
    if hook == "after_tool_call":
        assert results(result) == [("work", None, "worked 0")]
    if hook in ("steering", "follow_up", "context_transform"):
        assert [m.text for m in model.requests[-1].messages] == ["go"]


@pytest.mark.parametrize("how", ["crash", "crash_later"])
@virtual
async def test_an_observer_that_fails_is_reported_and_removed_the_third_time(how, caplog):
    result, _, recorder = await fly([call("work"), "done"], plugin("event_observer", failing(how, None)))
    effects = [event.effect for event in recorder.of(HookFailed) if event.hook == "event_observer"]
    effects += [
        one.args[-1] for one in caplog.records if one.levelno == logging.WARNING
    ]  # of an async one, after the end
    assert effects == ["ignored", "ignored", "removed"]
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_an_observer_that_answers_with_an_awaitable_is_told_to_be_async():
    async def later():
        pass

    _, _, recorder = await fly(["done"], plugin("event_observer", lambda self, event: later()))
    assert "async def" in recorder.of(HookFailed)[0].error


@virtual
async def test_a_slow_observer_loses_events_and_not_time_and_says_so_once(caplog):
    async def slow(self, event):
        await asyncio.sleep(10_000)

    class Chatty(Plugin):
        def steering(self, context):
            return ["message"] * 2_000 if context.iteration == 0 else None

    result, _, recorder = await fly(["done"], plugin("event_observer", slow), Chatty(), hook_timeout=1)
    assert result.elapsed == 0
    [failure] = recorder.of(HookFailed)
    assert (failure.plugin, failure.effect) == ("subject", "events are dropped")
    assert "has missed" in caplog.text


# --- composition --------------------------------------------------------------------------------------------------


@virtual
async def test_the_first_block_wins_and_later_hooks_are_not_asked():
    asked = []

    def blocking(reason):
        def hook(self, context):
            asked.append(reason)
            return Block(reason)

        return hook

    plugins = [
        plugin("before_tool_call", lambda self, context: Allow(), "allows"),
        plugin("before_tool_call", blocking("first"), "one"),
        plugin("before_tool_call", blocking("second"), "two"),
    ]
    result, _, _ = await fly([call("work"), "done"], *plugins)
    assert results(result) == [("work", "blocked", "Blocked: first")]
    assert asked == ["first"]


@pytest.mark.parametrize("order", [("ask", "block"), ("block", "ask"), ("replace", "block"), ("ask", "crash")])
@virtual
async def test_whoever_refuses_beats_whoever_asks_or_replaces(order):
    def crash(self, context):
        raise OSError

    hooks = {
        "ask": lambda self, context: Ask("?"),
        "block": lambda self, context: Block("no"),
        "replace": lambda self, context: Replace({"n": 5}),
        "crash": crash,
    }
    result, _, _ = await fly([call("work"), "done"], *[plugin("before_tool_call", hooks[n], n) for n in order])
    assert results(result)[0][:2] == ("work", "blocked")
    assert result.pending == ()


@virtual
async def test_a_hook_that_changes_the_arguments_in_place_blocks_the_call():
    def sly(self, context):
        context.arguments["n"] = 99

    result, _, recorder = await fly([call("work", n=1), "done"], plugin("before_tool_call", sly))
    assert results(result)[0][:2] == ("work", "blocked")
    assert "in place" in recorder.one(HookFailed).error
    assert recorder.of(ToolStarted) == []


@virtual
async def test_after_decisions_are_chained_and_each_part_is_changed_alone():
    seen = []

    def step(text=None, **more):
        def hook(self, context):
            seen.append((context.result.text, context.result.is_error))
            return AfterDecision(content=None if text is None else context.result.text + text, **more)

        return hook

    plugins = [
        plugin("after_tool_call", step(" +a"), "a"),
        plugin("after_tool_call", lambda self, context: None, "silent"),
        plugin("after_tool_call", step(is_error=True), "b"),
        plugin("after_tool_call", step(" +c", is_error=False), "c"),
        plugin("after_tool_call", step(terminate=True), "d"),
    ]
    result, _, _ = await fly([call("work")], *plugins)
    assert seen == [
        ("worked 0", False),
        ("worked 0 +a", False),
        ("worked 0 +a", True),
        ("worked 0 +a +c", False),
    ]
    assert results(result) == [("work", None, "worked 0 +a +c")]
    assert (result.outcome, result.iterations) == (LoopOutcome.DONE, 1)


@virtual
async def test_transforms_work_left_to_right_on_a_view_that_is_never_kept():
    def adding(text):
        return lambda self, context: [*context.messages, UserMessage(text)]

    plugins = [plugin("context_transform", adding("one"), "a"), plugin("context_transform", adding("two"), "b")]
    result, model, _ = await fly([call("work"), "done"], *plugins)
    assert [m.text for m in model.requests[0].messages] == ["go", "one", "two"]
    assert [m.text for m in model.requests[1].messages][-2:] == ["one", "two"]
    assert [m.text for m in result.messages if m.role == "user"] == ["go"]


@virtual
async def test_g4_what_a_transform_adds_is_reserved_before_the_call():
    def swell(self, context):
        return [UserMessage("word " * 4_000), *context.messages]

    limits = Limits(max_tokens=6_000, max_iterations=5)
    model = ScriptedModel(max_output_tokens=500).forever(lambda request: call("work") if request.tools else say("end"))
    agent = Agent(model=model, tools=TOOLS, limits=limits, plugins=[plugin("context_transform", swell)])
    result = await agent.run("go")
    assert result.usage.total <= 6_000
    assert len(model.requests) >= 1


@virtual
async def test_the_landing_call_shows_the_transformed_view_too():
    def hide(self, context):
        return [UserMessage(m.text.replace("secret", "[hidden]")) if m.role == "user" else m for m in context.messages]

    with ScriptedModel([call("work"), "landed"]) as model:
        agent = Agent(
            model=model, tools=TOOLS, limits=Limits(max_iterations=1), plugins=[plugin("context_transform", hide)]
        )
        result = await agent.run("my secret")
    assert result.landing_calls == 1
    assert model.requests[1].messages[0].text == "my [hidden]"


@pytest.mark.parametrize("asked", [1, 2], ids=["in a turn", "in the landing"])
@virtual
async def test_a_run_cancelled_while_a_transform_hangs_gives_back_what_it_had_reserved(asked):
    budget, token, times = Budget(Limits(max_tokens=50_000)), CancelToken(), []

    async def hang(self, context):
        times.append(context.iteration)
        if len(times) == asked:
            asyncio.get_running_loop().call_later(1, token.cancel)
            await asyncio.sleep(100)

    model = ScriptedModel(max_output_tokens=500).forever(lambda request: call("work") if request.tools else say("end"))
    limits = Limits(max_iterations=1)
    agent = Agent(model=model, tools=TOOLS, limits=limits, hook_timeout=50, plugins=[plugin("context_transform", hang)])
    result = await agent.run("go", cancel=token, parent=budget)
    assert (result.outcome, len(times)) == (LoopOutcome.CANCELLED, asked)
    assert budget.remaining().tokens == 50_000 - result.usage.total


@virtual
async def test_a_view_the_landing_cannot_pay_for_is_left_out_and_the_landing_answers():
    def swell(self, context):
        return [UserMessage("word " * 9_000), *context.messages] if context.iteration else None

    limits = Limits(max_tokens=6_000, max_iterations=1)
    model = ScriptedModel(max_output_tokens=500).forever(lambda request: call("work") if request.tools else say("end"))
    recorder = EventRecorder()
    settings = {"model": model, "tools": TOOLS, "limits": limits, "event_sink": recorder}
    result = await Agent(plugins=[plugin("context_transform", swell)], **settings).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.WRAPPED_UP, "end")
    assert result.usage.total <= 6_000
    assert "more than the budget allows" in recorder.one(HookFailed).error


@virtual
async def test_messages_of_all_sources_join_in_order_and_a_bad_one_takes_no_good_one_with_it():
    plugins = [
        plugin("steering", lambda self, context: ["a", 7, "b"] if not context.iteration else None, "one"),
        plugin("steering", lambda self, context: "c" if not context.iteration else None, "two"),
        plugin("steering", lambda self, context: iter([UserMessage("d")]) if not context.iteration else None, "three"),
    ]
    result, _, recorder = await fly(["done"], *plugins)
    assert [m.text for m in result.messages if m.role == "user"] == ["go", "a", "b", "c", "d"]
    assert len(recorder.of(HookFailed)) == 1


@virtual
async def test_the_first_smaller_view_after_an_overflow_is_used():
    asked = []

    def answering(name, answer):
        def hook(self, context):
            asked.append(name)
            return answer(context)

        return plugin("context_overflow_recovery", hook, name)

    plugins = [
        answering("silent", lambda context: None),
        answering("same", lambda context: context.messages),
        answering("smaller", lambda context: [UserMessage("go")]),
        answering("late", lambda context: [UserMessage("g")]),
    ]
    script = [fail(ContextOverflowError("too much")), "done"]
    recorder = EventRecorder()
    with ScriptedModel(script) as model:
        agent = Agent(model=model, limits=LIMITS, plugins=plugins, event_sink=recorder)
        result = await agent.run("go " * 500)
    assert result.text == "done"
    assert asked == ["silent", "same", "smaller"]
    assert recorder.one(ContextShaped).strategy == "smaller"


# --- gates --------------------------------------------------------------------------------------------------------


def gate(name, answer):
    return plugin("tool_gate", lambda self, context: answer, name)


def names(*allowed, **more):
    return Gate(allowed=frozenset(allowed), **more)


SUPPRESSING = names("rest", required=False, priority=2, suppresses=True)


@pytest.mark.parametrize(
    ("answers", "left", "winner"),
    [
        ([None, None], {"work", "rest", "deliver"}, None),
        ([{"work", "rest"}, names("rest", "deliver")], {"rest"}, None),
        ([names("work"), names("rest")], set(), None),
        ([names()], set(), None),
        ([names("work", required=False), names("rest", required=False)], {"work"}, "g0"),
        ([names("work", "rest", required=False), names("deliver", required=False)], {"deliver"}, "g1"),
        ([names("work", required=False), names("rest", required=False, priority=1)], {"rest"}, "g1"),
        ([names("work", "rest"), names("deliver", required=False)], {"work", "rest"}, "g0"),
        ([names("deliver", required=False), names("work", "rest")], {"work", "rest"}, "g1"),
        ([names("work", "rest"), names(required=False, priority=9)], {"work", "rest"}, "g0"),
        ([names("work"), names("rest", required=False), names("work", required=False)], {"work"}, "g2"),
        ([names("work"), names("work", "rest", priority=1), names("deliver", required=False)], {"work"}, "g1"),
        ([names("work", required=False), names(required=False, priority=1)], set(), "g1"),
        ([names(required=False)], set(), "g0"),
        ([names("work", required=False), SUPPRESSING], {"rest"}, None),
        (
            [
                names("work", required=False, suppresses=True),
                SUPPRESSING,
            ],
            {"rest"},
            None,
        ),
        ([names("work"), names("work", "rest", priority=2, suppresses=True)], {"work"}, None),
        ([names("no_such_tool")], set(), None),
    ],
)
@virtual
async def test_gates_intersect_required_ones_hold_and_advisory_ones_give_way(answers, left, winner):
    _, model, recorder = await fly(["done"], *[gate(f"g{number}", answer) for number, answer in enumerate(answers)])
    assert set(model.requests[0].tools) == left
    assert [event.winner for event in recorder.of(GateConflictResolved)] == ([] if winner is None else [winner])
    assert bool(recorder.of(GateApplied)) == (left != {"work", "rest", "deliver"})


@virtual
async def test_a_denied_tool_that_is_called_anyway_does_not_run_and_the_reason_reaches_the_model():
    closed = gate("closed", names("rest", denial_reason="the shop is closed"))
    result, _, recorder = await fly([calls(call("work"), call("rest")), "done"], closed)
    assert [(name, kind) for name, kind, _ in results(result)] == [("work", "hidden_tool"), ("rest", None)]
    assert "the shop is closed" in results(result)[0][2]
    assert [event.tool_name for event in recorder.of(ToolStarted)] == ["rest"]


# --- what is refused before take-off --------------------------------------------------------------------------------


def refused(body):
    with pytest.raises(ConfigurationError) as caught:
        HookTable([type("Odd", (Plugin,), body)()])
    return str(caught.value)


def nothing(self, context):
    return None


@pytest.mark.parametrize("hook", HOOKS)
def test_a_misspelt_hook_is_refused_with_what_was_meant(hook):
    wrong = hook.replace("_", "", 1) if "_" in hook else hook + "s"
    assert f"did you mean {hook!r}?" in refused(
        {wrong: nothing, "steering" if hook != "steering" else "follow_up": nothing}
    )


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("run_before", "runs_before"), ("runs_afters", "runs_after"), ("inherit_to_child", "inheritable_to_child")],
)
def test_a_misspelt_setting_is_refused_with_what_was_meant(wrong, meant):
    assert f"did you mean {meant!r}?" in refused({wrong: ("x",), "steering": nothing})


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_takes_no_context_or_is_set_on_the_object_is_refused(hook):
    assert "one argument" in refused({hook: lambda self: None})
    assert "one argument" in refused({hook: lambda self, context, more: None})

    class Late(Plugin):
        def __init__(self):
            setattr(self, hook, lambda context: None)

        def steering(self, context): ...

        def follow_up(self, context): ...

    with pytest.raises(ConfigurationError, match=f"{hook} is set on the object"):
        HookTable([Late()])


def test_a_plugin_without_hooks_an_async_for_run_and_a_strange_inheritance_are_refused():
    async def later(self):
        return self

    assert "overrides no hook" in refused({})
    assert "plain method" in refused({"for_run": later, "steering": nothing})
    assert "plain method" in refused({"for_child": later, "steering": nothing})
    assert "inheritable_to_child" in refused({"inheritable_to_child": "yes", "steering": nothing})


@pytest.mark.parametrize("answer", [None, 7, Plugin(), "self"])
def test_a_plugin_for_a_run_must_have_the_same_hooks_or_a_guard_would_vanish(answer):
    class Guard(Plugin):
        def before_tool_call(self, context): ...

        def for_run(self):
            return answer

    with pytest.raises(ConfigurationError, match=r"Guard\.for_run\(\)|overrides no hook"):
        HookTable([Guard()]).for_run()


# --- observers ------------------------------------------------------------------------------------------------------


@virtual
async def test_an_observer_sees_the_events_it_asks_for_and_chunks_only_then():
    seen = {"some": [], "all": [], "chunks": []}

    def keep(name):
        return lambda self, event: seen[name].append(type(event))

    await fly(
        ["done"],
        plugin("event_observer", keep("some"), "some", events=(TurnEnded, RunEnded)),
        plugin("event_observer", keep("all"), "all"),
        plugin("event_observer", keep("chunks"), "chunks", events=(StreamChunk,)),
    )
    assert seen["some"] == [TurnEnded, RunEnded]
    assert StreamChunk not in seen["all"]
    assert set(seen["chunks"]) == {StreamChunk}


# --- answers and errors that cannot even be shown -------------------------------------------------------------------


class Unspeakable(Exception):  # noqa: N818
    def __str__(self):
        raise OSError("no words")


class Faceless:
    def __repr__(self):
        raise OSError("no face")


class Unreadable(Mapping):
    def __getitem__(self, key):
        raise OSError("no value")

    def __iter__(self):
        return iter(["n"])

    def __len__(self):
        return 1


def unspeakable(self, context):
    raise Unspeakable


@pytest.mark.parametrize("method", [unspeakable, lambda self, context: Faceless()], ids=["error", "answer"])
@pytest.mark.parametrize("hook", HOOKS)
@virtual
async def test_an_error_or_answer_that_cannot_be_shown_is_contained_like_any_other(hook, method):
    result, _, recorder = await fly(SCRIPTS[hook], plugin(hook, method))
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    if hook != "event_observer":
        assert {event.effect for event in recorder.of(HookFailed)} == {EFFECTS[hook]}


@virtual
async def test_arguments_that_cannot_be_read_block_the_call():
    replace = plugin("before_tool_call", lambda self, context: Replace(Unreadable()))
    result, _, _ = await fly([call("work"), "done"], replace)
    assert results(result) == [("work", "blocked", "Blocked: a guard of this tool failed.")]


def test_a_plugin_whose_name_or_run_state_cannot_be_made_is_refused():
    def leave(self):
        raise SystemExit(3)

    body = {"name": property(lambda self: {}["no name"]), "steering": nothing}
    assert "name raised KeyError" in refused(body)
    with pytest.raises(ConfigurationError, match=r"for_run\(\) raised SystemExit"):
        HookTable([plugin("steering", nothing, for_run=leave)]).for_run()


ASKED_IN_TURNS = ("steering", "tool_gate", "context_transform", "before_tool_call", "after_tool_call")


@pytest.mark.parametrize("hook", ASKED_IN_TURNS)
@virtual
async def test_a_context_that_a_hook_has_kept_does_not_change_with_the_next_turn(hook):
    kept = []
    await fly(
        [call("work", n=1), call("work", n=2), say("done")], plugin(hook, lambda _, context: kept.append(context))
    )
    iterations = [context.iteration for context in kept]
    assert len(iterations) >= 2
    assert iterations == sorted(set(iterations))
    assert {id(context) for context in kept[1:]}.isdisjoint({id(kept[0])})


@virtual
async def test_a_hook_is_shown_the_model_that_is_in_use_after_a_fallback():
    shown_models = []
    look = plugin("context_transform", lambda _, context: shown_models.append(context.model_id))
    first = ScriptedModel([call("work", n=1), fail(TransientError("busy"))], name="first")
    second = ScriptedModel([say("done")], name="second")
    agent = Agent(model=first, fallback_models=[second], tools=[work], plugins=[look], limits=LIMITS, max_retries=0)
    assert (await agent.run("go")).text == "done"
    assert shown_models[0] == "first"
    assert shown_models[-1] == "second"
