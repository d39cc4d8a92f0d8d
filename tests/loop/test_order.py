"""The order of SPEC 3: what happens in a run, step by step, as its events tell it."""

import asyncio

from glidepath import Agent, CancelToken, Limits, LoopOutcome, Plugin, ResourceConstraint, ResourceValidation, tool
from glidepath.errors import TransientError
from glidepath.events import BudgetReserved, BudgetSettled, RetryScheduled
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, fail, say, virtual

LIMITS = Limits(max_iterations=10)


@tool
async def add(a: int, b: int) -> int:
    return a + b


async def recorded(script, **settings):
    recorder = EventRecorder()
    settings = {"limits": LIMITS, "tools": [add]} | settings
    plugins = [*settings.pop("plugins", []), recorder.as_plugin()]
    with ScriptedModel(script) as model:
        result = await Agent(model=model, plugins=plugins, **settings).run("go")
    recorder.assert_legal()
    return result, recorder.without(BudgetReserved, BudgetSettled, RetryScheduled)


@virtual
async def test_a_run_without_tools():
    _, recorder = await recorded(["hello there"])
    recorder.expect(
        [
            "RunStarted agent",
            'MessageAdded user "go"',
            "TurnStarted 1",
            "StreamStarted scripted 1",
            'StreamChunk "hello "',
            'StreamChunk "there"',
            "StreamChunk finished",
            'MessageAdded assistant "hello there"',
            "TurnEnded 1",
            "RunEnded COMPLETED DONE",
        ]
    )


@virtual
async def test_a_run_with_a_tool():
    _, recorder = await recorded([call("add", a=1, b=2), "3"])
    recorder.expect(
        [
            "RunStarted agent",
            'MessageAdded user "go"',
            "TurnStarted 1",
            "StreamStarted scripted 1",
            "StreamChunk finished",
            'MessageAdded assistant add {"a": 1, "b": 2}',
            'ToolStarted add {"a": 1, "b": 2}',
            'ToolEnded add "3"',
            'MessageAdded tool_result add "3"',
            "TurnEnded 1",
            "TurnStarted 2",
            "StreamStarted scripted 1",
            'StreamChunk "3"',
            "StreamChunk finished",
            'MessageAdded assistant "3"',
            "TurnEnded 2",
            "RunEnded COMPLETED DONE",
        ]
    )


@virtual
async def test_results_stand_in_source_order_whatever_the_order_of_completion():
    @tool(parallel_safe=True)
    async def wait(seconds: int) -> str:
        await asyncio.sleep(seconds)
        return f"waited {seconds}"

    result, recorder = await recorded([calls(*[call("wait", seconds=n) for n in (3, 1, 2)]), "done"], tools=[wait])
    assert [m.text for m in result.messages if m.role == "tool_result"] == ["waited 3", "waited 1", "waited 2"]
    recorder.expect(
        [
            ...,
            'ToolStarted wait {"seconds": 3}',
            'ToolStarted wait {"seconds": 1}',
            'ToolStarted wait {"seconds": 2}',
            'ToolEnded wait "waited 3"',
            'MessageAdded tool_result wait "waited 3"',
            'ToolEnded wait "waited 1"',
            'MessageAdded tool_result wait "waited 1"',
            'ToolEnded wait "waited 2"',
            'MessageAdded tool_result wait "waited 2"',
            "TurnEnded 1",
            ...,
        ]
    )
    assert result.elapsed == 3


@virtual
async def test_a_retry_stays_inside_its_turn():
    _, recorder = await recorded([fail(TransientError("dropped"), text="hel"), "hello"])
    recorder.expect(
        [
            ...,
            "TurnStarted 1",
            "StreamStarted scripted 1",
            'StreamChunk "hel"',
            "StreamChunk finished",
            "AttemptDiscarded 1 TransientError: dropped",
            "StreamStarted scripted 2",
            'StreamChunk "hello"',
            "StreamChunk finished",
            'MessageAdded assistant "hello"',
            "TurnEnded 1",
            "RunEnded COMPLETED DONE",
        ]
    )


@virtual
async def test_the_turn_limit_announces_itself_then_lands():
    _, recorder = await recorded(
        [call("add", a=1, b=1), call("add", a=2, b=2), "four, so far"],
        limits=Limits(max_iterations=2, grace_iterations=1),
        landing="steer",
    )
    recorder.expect(
        [
            ...,
            "TurnEnded 1",
            "MessageAdded user (wind_down)...",
            'NoticeSent reason="wind_down" source="GracefulTurnLimit"...',
            "TurnStarted 2",
            ...,
            "TurnEnded 2",
            'ConstraintViolated constraint="MaxIterationConstraint"...',
            'LandingStarted source="MaxIterationConstraint"...',
            "MessageAdded user (wind_down)...",
            'NoticeSent reason="wind_down" source="MaxIterationConstraint"...',
            "StreamStarted scripted 1 landing",
            ...,
            'MessageAdded assistant "four, so far"',
            "RunEnded MAX_STEPS WRAPPED_UP",
        ]
    )


# --- checkpoints ----------------------------------------------------------------------------------------------


class Diary(ResourceConstraint):
    """Writes down when it is asked, and what it sees."""

    def __init__(self, journal):
        self.journal = journal

    async def validate(self, context):
        self.journal.append((context.checkpoint, context.iteration, context.tool_calls, context.tokens_used > 0))
        return ResourceValidation.ok()


@virtual
async def test_constraints_are_asked_at_the_three_checkpoints_of_every_turn():
    journal = []
    await recorded([call("add", a=1, b=1), "2"], constraints=[Diary(journal)])
    assert journal == [
        ("pre_flight", 0, 0, False),
        ("after_model", 0, 0, True),
        ("after_tools", 0, 1, True),
        ("pre_flight", 1, 1, True),
        ("after_model", 1, 1, True),
    ]


class Violated(ResourceConstraint):
    def __init__(self, checkpoint):
        self.checkpoint = checkpoint

    async def validate(self, context):
        if context.checkpoint == self.checkpoint:
            return ResourceValidation.violation("enough")
        return ResourceValidation.ok()


@virtual
async def test_a_graceful_verdict_after_the_model_still_lets_this_turns_tools_run():
    result, recorder = await recorded([call("add", a=1, b=1), "landed"], constraints=[Violated("after_model")])
    assert result.tool_calls == 1
    recorder.expect(
        [
            ...,
            'MessageAdded assistant add {"a": 1, "b": 1}',
            'ConstraintViolated constraint="Violated"...',
            "ToolStarted add...",
            'ToolEnded add "2"',
            'MessageAdded tool_result add "2"',
            ...,
            "TurnEnded 1",
            'LandingStarted source="Violated"...',
            ...,
        ]
    )
    assert result.outcome is LoopOutcome.WRAPPED_UP


@virtual
async def test_a_delivery_on_the_turn_of_a_graceful_verdict_wins():
    result, _ = await recorded(["done anyway"], constraints=[Violated("after_model")])
    assert (result.outcome, result.cause, result.landing_calls) == (LoopOutcome.DONE, None, 0)


@virtual
async def test_a_cancel_is_seen_before_the_constraints_are_asked():
    token, journal = CancelToken(), []
    token.cancel()
    agent = Agent(model=ScriptedModel([]), limits=LIMITS, constraints=[Diary(journal)])
    await agent.run("go", cancel=token)
    assert journal == []


# --- steering and follow-ups ----------------------------------------------------------------------------------


class Queue(Plugin):
    """Hands out one message per poll from each of two lists, and writes down when it was polled."""

    def __init__(self, steering=(), follow_up=()):
        self.waiting = {"steering": list(steering), "follow_up": list(follow_up)}
        self.polls = []

    def _next(self, hook, context):
        self.polls.append((hook, context.iteration))
        return self.waiting[hook].pop(0) if self.waiting[hook] else None

    def steering(self, context):
        return self._next("steering", context)

    def follow_up(self, context):
        return self._next("follow_up", context)


@virtual
async def test_steering_is_polled_once_before_the_first_call_and_after_every_turn():
    queue = Queue(steering=["be brief", "and kind"])
    result, recorder = await recorded([call("add", a=1, b=1), "2"], plugins=[queue])
    assert queue.polls == [("steering", 0), ("steering", 1), ("follow_up", 2)]
    recorder.expect(
        [
            "RunStarted agent",
            'MessageAdded user "go"',
            'MessageAdded user "be brief"',
            "TurnStarted 1",
            ...,
            "TurnEnded 1",
            'MessageAdded user "and kind"',
            "TurnStarted 2",
            ...,
        ]
    )
    assert result.undelivered == ()


@virtual
async def test_a_follow_up_keeps_a_finished_run_going():
    queue = Queue(follow_up=["and in French?"])
    result, recorder = await recorded(["hello", "bonjour"], plugins=[queue])
    assert (result.text, result.iterations) == ("bonjour", 2)
    recorder.expect(
        [
            ...,
            'MessageAdded assistant "hello"',
            "TurnEnded 1",
            'MessageAdded user "and in French?"',
            "TurnStarted 2",
            ...,
        ]
    )


@virtual
async def test_nothing_is_polled_when_a_terminal_tool_has_ended_the_run():
    @tool(terminal=True)
    async def deliver() -> str:
        return "delivered"

    queue = Queue(steering=[None, "too late"], follow_up=["too late"])
    result, _ = await recorded([call("deliver")], tools=[deliver], plugins=[queue])
    assert queue.polls == [("steering", 0)]
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_what_was_drained_and_could_not_be_delivered_is_in_the_result():
    queue = Queue(steering=[None, "too late"])
    result, _ = await recorded([call("add", a=1, b=1)], plugins=[queue], limits=Limits(max_iterations=1), landing="off")
    assert [message.text for message in result.undelivered] == ["too late"]


@virtual
async def test_a_steering_hook_that_answers_nonsense_is_skipped():
    result, recorder = await recorded(["hi"], plugins=[Queue(steering=[7], follow_up=[[object()]])])
    assert result.outcome is LoopOutcome.DONE
    assert [line.split(" error=")[0] for line in recorder.compact() if line.startswith("HookFailed")] == [
        'HookFailed plugin="queue" hook="steering"',
        'HookFailed plugin="queue" hook="follow_up"',
    ]


@virtual
async def test_steering_may_hand_over_messages_and_lists_of_them():
    from glidepath.messages import CustomMessage, UserMessage

    queue = Queue(steering=[[UserMessage("one"), "two", CustomMessage("note", {"n": 3})]])
    with ScriptedModel([say("hi")]) as model:
        result = await Agent(model=model, limits=LIMITS, plugins=[queue]).run("go")
    assert [message.text for message in model.requests[0].messages] == ["go", "one", "two"]
    assert [message.role for message in result.messages] == ["user", "user", "user", "custom", "assistant"]
