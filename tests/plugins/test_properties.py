"""What holds for any plugins: guards fail closed, all see the same arguments, no message is lost, no state shared."""

import asyncio
import os
from dataclasses import dataclass

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import (
    Agent,
    CancelToken,
    Limits,
    LoopOutcome,
    Plugin,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    ToolResult,
    tool,
)
from glidepath.errors import FatalToolError, TransientError
from glidepath.events import ToolEnded, ToolStarted
from glidepath.messages import UserMessage
from glidepath.spi import Allow, Ask, Block, Gate, Replace
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    empty,
    fail,
    refuse,
    say,
    transcript_errors,
    truncated,
    virtual,
)

CAMPAIGN = bool(os.environ.get("GLIDEPATH_CAMPAIGN"))
EXAMPLES = 5_000 if CAMPAIGN else 150


# --- fail closed ----------------------------------------------------------------------------------------------------

PASSES = [None, Allow(), "replace"]
HOLDS = [Block("no"), Ask("?"), "crash", "crash_later", "hang", "nonsense", 7, "exit", "cancelled", "in_place"]


class Guarding(Plugin):
    """Answers each call by its number, in one of many ways."""

    def __init__(self, name, answers):
        self.name = name
        self.answers = answers

    async def before_tool_call(self, context):
        answer = self.answers[context.arguments["n"]]
        if answer == "hang":
            await asyncio.sleep(10_000)
        elif answer == "crash_later":
            await asyncio.sleep(0.01)
            raise OSError
        elif answer == "crash":
            raise ValueError("\ud800")
        elif answer == "exit":
            raise SystemExit(3)
        elif answer == "cancelled":
            raise asyncio.CancelledError
        elif answer == "in_place":
            context.arguments["n"] = 77
            return None
        elif answer == "replace":
            return Replace({"n": context.arguments["n"]}) if context.replaceable else None
        return answer


class Closing(Plugin):
    def __init__(self, name, answer):
        self.name = name
        self.answer = answer

    async def tool_gate(self, context):
        if self.answer == "hang":
            await asyncio.sleep(10_000)
        if self.answer == "crash":
            raise OSError
        if isinstance(self.answer, list):
            return Gate(allowed=frozenset(self.answer))
        return self.answer


GATES = st.sampled_from([None, ["act"], ["act", "other"], [], ["other"], "crash", "hang", 7, "act"])
SIZE = 3


@given(
    guards=st.lists(st.lists(st.sampled_from([*PASSES, *HOLDS]), min_size=SIZE, max_size=SIZE), max_size=3),
    gates=st.lists(GATES, max_size=3),
    inherited=st.booleans(),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_g9_a_call_that_is_blocked_asked_about_or_not_judged_never_runs(guards, gates, inherited):
    ran = []

    @tool
    async def act(n: int) -> str:
        ran.append(n)
        return f"acted {n}"

    @tool
    async def other() -> str:
        return "other"

    plugins = [Guarding(f"guard{number}", answers) for number, answers in enumerate(guards)]
    plugins += [Closing(f"gate{number}", answer) for number, answer in enumerate(gates)]
    model = ScriptedModel([calls(*[call("act", n=n) for n in range(SIZE)])]).forever(say("done"))
    limits = Limits(max_iterations=4)
    recorder = EventRecorder()
    if inherited:  # the same guards, but they are the parent's; they judge its call of `ask`, too
        for plugin in plugins:
            _spare(plugin, "ask")
        child = Agent(model=model, tools=[act, other])
        parent_model = ScriptedModel([call("ask", task="x")]).forever(say("done"))
        agent = Agent(model=parent_model, tools=[child.as_tool("ask", "Ask.")], limits=limits, plugins=plugins)
    else:
        agent = Agent(model=model, tools=[act, other], limits=limits, plugins=[*plugins, recorder.as_plugin()])
    VirtualClock().run(agent.run("go"))
    open_gate = all(answer is None or (isinstance(answer, list) and "act" in answer) for answer in gates)
    expected = [n for n in range(SIZE) if open_gate and all(answers[n] in PASSES for answers in guards)]
    assert sorted(ran) == expected
    recorder.assert_legal()


def _spare(plugin, name):
    """Let this guard have no opinion about one tool."""
    if isinstance(plugin, Guarding):
        judge = plugin.before_tool_call

        class Sparing(Guarding):
            async def before_tool_call(self, context):
                return None if context.call.name == name else await judge(context)

        plugin.__class__ = Sparing
    else:
        close = plugin.tool_gate

        class Open(Closing):
            async def tool_gate(self, context):
                return None if name in context.tools else await close(context)

        plugin.__class__ = Open


# --- one truth about arguments ---------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SENT = st.fixed_dictionaries(
    {"amount": st.one_of(st.integers(-99, 99), st.integers(-99, 99).map(str))},
    optional={
        "note": st.one_of(TEXTS, st.none()),
        "tags": st.lists(TEXTS, max_size=3),
        "urgent": st.sampled_from([True, False, "true", "false"]),
    },
)


@given(sent=SENT, replacements=st.lists(st.one_of(st.none(), SENT), max_size=3))
@settings(max_examples=EXAMPLES, deadline=None)
def test_g10_hooks_events_transcript_and_tool_agree_on_the_final_arguments(sent, replacements):
    seen = []

    @tool
    async def pay(amount: int, note: str = "", tags: list[str] = [], urgent: bool = False) -> str:  # noqa: B006
        seen.append(("tool", {"amount": amount, "note": note, "tags": tags, "urgent": urgent}))
        return "paid"

    class Replacing(Plugin):
        def __init__(self, name, arguments):
            self.name = name
            self.arguments = arguments

        def before_tool_call(self, context):
            if not context.replaceable:
                seen.append((self.name, dict(context.arguments)))
                seen.append((f"call of {self.name}", context.call.arguments))
            elif self.arguments is not None:
                return Replace(self.arguments)
            return None

        def after_tool_call(self, context):
            seen.append((f"after {self.name}", dict(context.arguments)))
            seen.append((f"call after {self.name}", context.call.arguments))

    plugins = [Replacing(f"p{number}", arguments) for number, arguments in enumerate(replacements)]
    recorder = EventRecorder()
    model = ScriptedModel([call("pay", **sent), "done"])
    agent = Agent(model=model, tools=[pay], limits=Limits(max_iterations=3), plugins=plugins, event_sink=recorder)
    result = VirtualClock().run(agent.run("go"))
    started = recorder.one(ToolStarted).arguments
    assert {name for name, _ in seen} >= {"tool", *(f"after {plugin.name}" for plugin in plugins)}
    for name, arguments in seen:
        assert arguments == started, name
    last = next((item for item in reversed(replacements) if item is not None), sent)
    assert started["amount"] == int(last["amount"])
    assert recorder.one(ToolEnded).result.text == "paid"
    assert transcript_errors(result.messages) == []


# --- nothing lost, nothing twice --------------------------------------------------------------------------------------


class Feeding(Plugin):
    """Hands out numbered messages and remembers which."""

    def __init__(self, name, sizes):
        self.name = name
        self.sizes = list(sizes)
        self.given = []

    def _hand(self, hook):
        if not self.sizes:
            return None
        batch = [f"{self.name}.{hook}.{len(self.given) + item}" for item in range(self.sizes.pop(0))]
        self.given += batch
        return batch

    def steering(self, context):
        return self._hand("s")

    def follow_up(self, context):
        return self._hand("f")


ENDS = st.sampled_from(
    [
        *("natural", "cap", "cap_off", "terminal", "vote", "cancel", "fail", "timeout", "hook_cancel", "wind_down"),
        *("refusal", "fatal", "emergency", "crashed", "pause", "output", "empty", "budget", "plain_text", "truncated"),
    ]
)


class Stern(ResourceConstraint):
    """Stops a run at once, or crashes, after so many turns."""

    def __init__(self, end, at):
        self.end, self.at = end, at

    async def validate(self, context):
        if context.iteration < self.at or self.end not in ("emergency", "crashed"):
            return ResourceValidation.ok()
        if self.end == "crashed":
            raise OSError("gone")
        return ResourceValidation.violation("enough")

    def on_violation(self, validation):
        return ResourceAction.EMERGENCY_STOP


@dataclass
class Answer:
    text: str


LAST = {
    "terminal": call("deliver"),
    "fail": fail(TransientError("gone")),
    "refusal": refuse("never"),
    "pause": calls(call("work"), call("send")),
    "truncated": truncated("and so"),
    "empty": empty(),
    **dict.fromkeys(("natural", "hook_cancel", "output", "plain_text"), say("done")),
}
"""What the model says in the end."""


async def _make_it_end(end, token):
    """What happens in the last tool call."""
    if end == "cancel":
        token.cancel("enough")
        await asyncio.sleep(1)
    elif end == "timeout":
        await asyncio.sleep(1_000)
    elif end == "wind_down":
        token.wind_down("finish up")
    elif end == "fatal":
        raise FatalToolError("broken")


@given(
    sizes=st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=2),
    end=ENDS,
    at=st.integers(1, 4),
    nudged=st.booleans(),
)
@settings(max_examples=EXAMPLES * 2, deadline=None)
def test_steering_follow_ups_and_notices_are_never_lost_and_never_repeated(sizes, end, at, nudged):
    token = CancelToken()
    count = 0

    @tool(terminal=True)
    async def deliver() -> str:
        return "delivered"

    @tool
    async def work() -> str | ToolResult:
        if count >= at:
            await _make_it_end(end, token)
        if end == "vote":
            return ToolResult(f"voted {count}", terminate=count >= at)
        return "same" if nudged else f"worked {count}"  # the same again and again calls the guard

    def turn(request):
        nonlocal count
        count += 1
        if not request.tools:
            return say("landed")
        return LAST.get(end, call("work")) if count > at else call("work")

    @tool(requires_approval=True)
    async def send() -> str:
        return "sent"

    class Hanging(Plugin):
        async def follow_up(self, context):
            if end == "hook_cancel":
                token.cancel("while it hangs")
                await asyncio.sleep(100)

    feeding = [Feeding(f"p{number}", batch) for number, batch in enumerate(sizes)]
    agent = Agent(
        model=ScriptedModel().forever(turn),
        tools=[work, deliver, send],
        limits=Limits(
            max_iterations=at if end in ("cap", "cap_off") else 12,
            timeout=500 if end == "timeout" else None,
            max_tokens=at * 2000 if end == "budget" else None,
        ),
        constraints=[Stern(end, at)],
        output_type=Answer if end == "output" else None,
        plain_text_terminal_fallback_tool="deliver" if end == "plain_text" else None,
        plain_text_terminal_fallback_eager=end == "plain_text",
        landing="off" if end == "cap_off" else "withdraw",
        plugins=[*feeding, Hanging()],
        max_retries=0,
    )
    result = VirtualClock().run(agent.run("go", cancel=token))
    given_ = [text for plugin in feeding for text in plugin.given]
    told = [m.text for m in result.messages if m.role == "user" and not m.internal and m.text != "go"]
    left = [m.text for m in result.undelivered if not m.internal]
    assert sorted(told + left) == sorted(given_)
    assert len(set(told + left)) == len(told + left)
    notices = [m for m in [*result.messages, *result.undelivered] if m.role == "user" and m.internal]
    assert len({(m.reason, m.text) for m in notices if m.reason == "wind_down"}) == len(
        [m for m in notices if m.reason == "wind_down"]
    )


@virtual
async def test_a_notice_that_could_not_be_told_is_in_the_result():
    @tool
    async def work() -> str:
        return "same"

    model = ScriptedModel().forever(call("work"))
    agent = Agent(model=model, tools=[work], limits=Limits(max_iterations=3, grace_iterations=0), landing="off")
    result = await agent.run("go")
    assert [(m.reason, m.internal) for m in result.undelivered] == [("repetition", True)]


@pytest.mark.parametrize("ending", ["text", "tool"])
@virtual
async def test_a_follow_up_is_not_taken_on_a_turn_that_delivers_at_the_limit(ending):
    class OnlyFollowUp(Plugin):
        taken = 0

        def follow_up(self, context):
            OnlyFollowUp.taken += 1
            return "more"

    @tool(terminal=True)
    async def deliver() -> str:
        return "delivered"

    turn = say("the answer") if ending == "text" else call("deliver")
    agent = Agent(
        model=ScriptedModel().forever(turn), tools=[deliver], limits=Limits(max_iterations=1), plugins=[OnlyFollowUp()]
    )
    result = await agent.run("go")
    told = [m.text for m in result.messages if m.role == "user" and not m.internal]
    assert told.count("more") + len(result.undelivered) == OnlyFollowUp.taken


# --- nothing crosses runs ---------------------------------------------------------------------------------------------


class Stateful(Plugin):
    """A plugin on every hook with state of its own for every run."""

    inheritable_to_child = False

    def __init__(self):
        self.calls = self.polls = self.fired = 0
        self.run_ids = set()

    def for_run(self):
        return Stateful()

    def _seen(self, context):
        self.run_ids.add(context.run_id)
        assert len(self.run_ids) == 1, "a plugin of one run was asked by another"

    async def before_tool_call(self, context):
        self._seen(context)
        self.calls += 1
        await asyncio.sleep(0.001)
        return Block("once is enough") if self.calls > 1 else None

    def after_tool_call(self, context):
        self._seen(context)

    def context_transform(self, context):
        self._seen(context)
        texts = [m.text for m in context.messages if m.role == "user"]
        assert len({text.split(":")[0] for text in texts}) == 1, "a view of another run"

    def event_observer(self, event):
        self._seen(event)

    def steering(self, context):
        self._seen(context)
        self.polls += 1
        prompt = context.messages[0].text.split(":")[0]
        return [UserMessage(f"{prompt}: steer")] if self.polls == 1 else None

    def follow_up(self, context):
        self._seen(context)
        self.fired += 1
        prompt = context.messages[0].text.split(":")[0]
        return f"{prompt}: and?" if self.fired == 1 else None

    def tool_gate(self, context):
        self._seen(context)
        return {"work"} if self.calls < 2 else set()


@virtual
async def test_g14_one_agent_runs_200_tasks_at_once_and_no_plugin_state_crosses_runs():
    @tool
    async def work(task: str) -> str:
        await asyncio.sleep(0.01)
        return f"worked on {task}"

    def turn(request):
        prompt = request.messages[0].text.split(":")[0]
        done = sum(message.role == "tool_result" for message in request.messages)
        return call("work", task=prompt) if done < 2 else say(f"{prompt} done")

    shared = Stateful()
    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel(delay=0.001).forever(turn),
        tools=[work],
        limits=Limits(max_iterations=9),
        plugins=[shared],
        event_sink=recorder,
    )
    results = await asyncio.gather(*(agent.run(f"task {number}: go") for number in range(200)))
    assert (shared.calls, shared.polls, shared.fired, shared.run_ids) == (0, 0, 0, set())
    for number, result in enumerate(results):
        assert result.outcome is LoopOutcome.DONE
        assert result.text == f"task {number} done"
        texts = [m.text for m in result.messages if m.role != "assistant"]
        assert texts == [
            f"task {number}: go",
            f"task {number}: steer",
            f"worked on task {number}",
            "Blocked: once is enough",
            f"task {number}: and?",
        ]
    recorder.assert_legal()
