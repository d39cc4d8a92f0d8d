"""Plugins that break one clause each."""

import asyncio
import time

from tests.contracts.examine import breaks

from glidepath import Plugin
from glidepath.conformance import (
    AfterToolCallContract,
    BeforeToolCallContract,
    ContextOverflowRecoveryContract,
    ContextTransformContract,
    EventObserverContract,
    FollowUpContract,
    SteeringContract,
    ToolGateContract,
)
from glidepath.events import RunEnded
from glidepath.messages import ToolResultMessage, UserMessage
from glidepath.spi import AfterDecision, Block, Gate, Replace
from glidepath.testing import VirtualClock
from glidepath.testing.conformance import call_context
from glidepath.values import settle_field


class Trial:
    """The plugin is the class `Mine` of the trial."""

    def make_plugin(self):
        return self.Mine()

    def run(self, main):
        return VirtualClock().run(main)


# --- any plugin -----------------------------------------------------------------------------------------------------


class Steers(Trial, SteeringContract):
    """A channel of its own."""

    class Mine(Plugin):
        def __init__(self):
            self.waiting = []

        def steering(self, context):
            said, self.waiting = self.waiting, []
            return said or None

    def put(self, plugin, text):
        plugin.waiting.append(text)
        return True


@breaks("PLUGIN-1", "PLUGIN-3", "PLUGIN-4")
class TwoInOne(Steers):
    """Asks to stand before itself."""

    class Mine(Steers.Mine):
        name = "mine"
        runs_before = ("mine",)


@breaks("PLUGIN-2")
class GivesItsClass(Steers):
    """Gives its children a plugin without the hook."""

    class Mine(Steers.Mine):
        def for_child(self):
            class Other(Plugin):
                def follow_up(self, context):
                    return None

            return Other()


@breaks("PLUGIN-3")
class FailsLater(Steers):
    """Crashes when it sees an error."""

    class Mine(Steers.Mine):
        def steering(self, context):
            if context.messages[-1].text.endswith("there is no more"):
                raise RuntimeError("oh no")
            return super().steering(context)


@breaks("PLUGIN-4")
class Accumulates(Steers):
    """Has something to say after it has seen many runs."""

    class Mine(Steers.Mine):
        asked = 0

        def steering(self, context):
            self.asked += 1
            return [*(super().steering(context) or ()), *(["Stop calling!"] * 20 if self.asked > 30 else ())]

        def follow_up(self, context):
            return "And now?" if self.asked > 30 else None


# --- steering and follow-up -----------------------------------------------------------------------------------------


@breaks("STEER-1")
class SaysNothingAloud(Steers):
    """Sends a blank message."""

    class Mine(Steers.Mine):
        def steering(self, context):
            return super().steering(context) or (
                " " if context.run_id == "run_kit" and context.iteration == 5 else None
            )


@breaks("STEER-2")
class SaysItTwice(Steers):
    """Says the same again."""

    class Mine(Steers.Mine):
        def steering(self, context):
            said = list(self.waiting)
            if context.iteration:
                self.waiting = []
            return said or None


@breaks("STEER-3")
class WritesItself(Steers):
    """Puts its message into the transcript by itself."""

    class Mine(Steers.Mine):
        def steering(self, context):
            if context.run_id == "run_kit":
                context.messages.append(UserMessage("and"))
            return super().steering(context)


@breaks("STEER-4")
class WaitsForAPerson(Steers):
    """Waits until there is something to say."""

    class Mine(Steers.Mine):
        async def steering(self, context):
            if context.run_id == "run_kit" and not self.waiting and context.iteration == 2:
                await asyncio.sleep(30)
            return super().steering(context)


class Follows(Trial, FollowUpContract):
    """A channel of its own."""

    class Mine(Steers.Mine):
        steering = Plugin.steering

        def follow_up(self, context):
            said, self.waiting = self.waiting, []
            return said or None

    put = Steers.put


@breaks("FOLLOW-1")
class AnswersTrue(Follows):
    """Answers with a bool instead of a message."""

    class Mine(Follows.Mine):
        def follow_up(self, context):
            return [True] if context.iteration == 4 and context.run_id == "run_kit" else super().follow_up(context)


@breaks("FOLLOW-2")
class NeverLetsGo(Follows):
    """Keeps every run going."""

    class Mine(Follows.Mine):
        def follow_up(self, context):
            return super().follow_up(context) or ("Are you sure?" if context.run_id == "run_kit" else None)


@breaks("FOLLOW-3")
class Backwards(Follows):
    """Says the last first."""

    class Mine(Follows.Mine):
        def follow_up(self, context):
            self.waiting.reverse()
            return super().follow_up(context)


@breaks("FOLLOW-4")
class CleansUp(Follows):
    """Takes messages out of the transcript."""

    class Mine(Follows.Mine):
        def follow_up(self, context):
            if context.run_id == "run_kit" and context.iteration < 2:
                context.messages.pop()
            return super().follow_up(context)


@breaks("FOLLOW-5")
class WaitsForMore(Follows):
    """Waits for more to say."""

    class Mine(Follows.Mine):
        async def follow_up(self, context):
            if context.run_id == "run_kit" and context.iteration == 2:
                await asyncio.sleep(20)
            return super().follow_up(context)


# --- before and after a call ----------------------------------------------------------------------------------------


class Before(Trial, BeforeToolCallContract):
    """Keeps a tool inside a folder."""

    class Mine(Plugin):
        def before_tool_call(self, context):
            if str(context.arguments.get("path", "")).startswith("/"):
                return Block("only paths inside the workspace are allowed")
            if len(context.arguments.get("query", "")) > 5 and context.replaceable:
                return Replace({**context.arguments, "query": context.arguments["query"][:5]})
            return None

    def refused(self):
        return call_context("read", arguments={"path": "/etc/passwd"})


@breaks("BEFORE-1")
class SaysNo(Before):
    """Answers with a bool instead of a decision."""

    class Mine(Before.Mine):
        def before_tool_call(self, context):
            return False if context.call.name == "unheard_of" else super().before_tool_call(context)


@breaks("BEFORE-2")
class WithoutAReason(Before):
    """Blocks without a word."""

    class Mine(Before.Mine):
        def before_tool_call(self, context):
            answer = super().before_tool_call(context)
            return Block("") if isinstance(answer, Block) else answer


@breaks("BEFORE-3")
class InPlace(Before):
    """Changes the arguments it is shown."""

    class Mine(Before.Mine):
        def before_tool_call(self, context):
            if "deep" in context.arguments:
                context.arguments["deep"]["list"].append(3)
            return super().before_tool_call(context)


@breaks("BEFORE-4")
class NeverDone(Before):
    """Replaces its own replacement."""

    class Mine(Before.Mine):
        def before_tool_call(self, context):
            answer = super().before_tool_call(context)
            again = answer is None and "deep" in context.arguments
            return Replace({**context.arguments, "n": len(context.arguments)}) if again else answer


@breaks("BEFORE-5")
class GetsTired(Before):
    """Guards the first turns only."""

    class Mine(Before.Mine):
        def before_tool_call(self, context):
            return super().before_tool_call(context) if context.iteration < 20 else None


@breaks("BEFORE-6")
class AsksAround(Before):
    """Takes its time."""

    class Mine(Before.Mine):
        async def before_tool_call(self, context):
            await asyncio.sleep(6 if context.approved else 0)
            return super().before_tool_call(context)


class After(Trial, AfterToolCallContract):
    """Takes account numbers out of results."""

    hidden = "12345678"

    class Mine(Plugin):
        def after_tool_call(self, context):
            text = context.result.text.replace("12345678", "[number]")
            return AfterDecision(content=text) if text != context.result.text else None


@breaks("AFTER-1")
class AnswersText(After):
    """Answers with a vote that is neither yes nor no."""

    class Mine(After.Mine):
        def after_tool_call(self, context):
            answer = super().after_tool_call(context)
            return (
                AfterDecision(content=answer.content, is_error="maybe")
                if answer and context.run_id == "run_kit"
                else answer
            )


@breaks("AFTER-2")
class TidiesDetails(After):
    """Empties the details."""

    class Mine(After.Mine):
        def after_tool_call(self, context):
            if isinstance(context.result.details, dict):
                context.result.details.clear()
            return super().after_tool_call(context)


@breaks("AFTER-3", "AFTER-2", "AFTER-4", "AFTER-5")
class WantsText(After):
    """Cannot cope with nothing."""

    class Mine(After.Mine):
        def after_tool_call(self, context):
            return super().after_tool_call(context) if context.result.text else context.result.text[0]


@breaks("AFTER-4")
class TrustsErrors(After):
    """Does not look at errors."""

    class Mine(After.Mine):
        def after_tool_call(self, context):
            return None if context.result.is_error else super().after_tool_call(context)


@breaks("AFTER-5")
class ReadsSlowly(After):
    """Takes long for long results."""

    class Mine(After.Mine):
        async def after_tool_call(self, context):
            await asyncio.sleep(len(context.result.text) / 50_000)
            return super().after_tool_call(context)


# --- the context ----------------------------------------------------------------------------------------------------


class Transforms(Trial, ContextTransformContract):
    """Puts a reminder at the end of what the model sees."""

    class Mine(Plugin):
        def context_transform(self, context):
            return [*context.messages, UserMessage("Be brief.", internal=True, reason="reminder")]


@breaks("TRANSFORM-1", "TRANSFORM-3", "PLUGIN-3")
class ShowsNothing(Transforms):
    """Shows nothing when there is only a task."""

    class Mine(Transforms.Mine):
        def context_transform(self, context):
            return [] if len(context.messages) == 1 else super().context_transform(context)


@breaks("TRANSFORM-2")
class HidesErrors(Transforms):
    """Leaves out results that are errors."""

    class Mine(Transforms.Mine):
        def context_transform(self, context):
            return [item for item in super().context_transform(context) if not getattr(item, "is_error", False)]


@breaks("TRANSFORM-3")
class NewestOnly(Transforms):
    """Shows only what was said last of a long talk."""

    class Mine(Transforms.Mine):
        def context_transform(self, context):
            view = super().context_transform(context)
            return view[-1:] if len(view) > 50 else view


@breaks("TRANSFORM-4", "TRANSFORM-5")
class Appends(Transforms):
    """Puts the reminder into the transcript itself."""

    class Mine(Transforms.Mine):
        def context_transform(self, context):
            if context.run_id == "run_kit" and len(context.messages) > 50:
                context.messages.append(UserMessage("x"))
            return super().context_transform(context)


@breaks("TRANSFORM-5")
class AddsUp(Transforms):
    """Reminds once more each time."""

    class Mine(Transforms.Mine):
        asked = 0

        def context_transform(self, context):
            self.asked += 1
            return [*context.messages, *[UserMessage("Be brief.")] * self.asked]


@breaks("TRANSFORM-6")
class Translates(Transforms):
    """Takes long for a long talk."""

    class Mine(Transforms.Mine):
        async def context_transform(self, context):
            await asyncio.sleep(0.1 * len(context.messages))
            return super().context_transform(context)


class Recovers(Trial, ContextOverflowRecoveryContract):
    """Starts again from the task and what a person said last."""

    class Mine(Plugin):
        def context_overflow_recovery(self, context):
            said = [message for message in context.messages if isinstance(message, UserMessage)]
            return [said[0], said[-1]] if len(said) > 2 else None


@breaks("OVER-1", "OVER-4")
class GivesUp(Recovers):
    """Shows nothing when nothing can be left out."""

    class Mine(Recovers.Mine):
        def context_overflow_recovery(self, context):
            return super().context_overflow_recovery(context) or []


@breaks("OVER-2")
class ShowsAll(Recovers):
    """Shows the same again."""

    class Mine(Recovers.Mine):
        def context_overflow_recovery(self, context):
            return list(context.messages)


@breaks("OVER-3")
class CutsInHalf(Recovers):
    """Leaves out results."""

    class Mine(Recovers.Mine):
        def context_overflow_recovery(self, context):
            kept = [item for item in context.messages if not isinstance(item, ToolResultMessage)]
            return kept if len(kept) < len(context.messages) else None


@breaks("OVER-4")
class LastWordOnly(Recovers):
    """Keeps only what was said last."""

    class Mine(Recovers.Mine):
        def context_overflow_recovery(self, context):
            answer = super().context_overflow_recovery(context)
            return answer and answer[1:]


@breaks("OVER-5")
class PrunesTheTranscript(Recovers):
    """Makes the transcript itself smaller."""

    class Mine(Recovers.Mine):
        def context_overflow_recovery(self, context):
            answer = super().context_overflow_recovery(context)
            if answer:
                context.messages[:] = answer
            return answer


@breaks("OVER-6")
class Summarizes(Recovers):
    """Takes its time."""

    class Mine(Recovers.Mine):
        async def context_overflow_recovery(self, context):
            await asyncio.sleep(7)
            return super().context_overflow_recovery(context)


# --- gates ----------------------------------------------------------------------------------------------------------


class Gates(Trial, ToolGateContract):
    """Denies one tool."""

    denied = frozenset({"delete"})

    class Mine(Plugin):
        def tool_gate(self, context):
            return Gate(allowed=context.tools - {"delete"}, denial_reason="nothing is deleted here")


@breaks("GATE-1")
class OneName(Gates):
    """Answers with a text where there is only one tool."""

    class Mine(Gates.Mine):
        def tool_gate(self, context):
            answer = super().tool_gate(context)
            return next(iter(context.tools)) if len(context.tools) == 1 and context.run_id == "run_kit" else answer


@breaks("GATE-2")
class NoWord(Gates):
    """Denies without a word."""

    class Mine(Gates.Mine):
        def tool_gate(self, context):
            return Gate(allowed=context.tools - {"delete"})


@breaks("GATE-3")
class FirstTurnOnly(Gates):
    """Forgets what it denies."""

    class Mine(Gates.Mine):
        def tool_gate(self, context):
            return super().tool_gate(context) if context.iteration < 5 else None


@breaks("GATE-4")
class Flickers(Gates):
    """Allows now this and now that."""

    class Mine(Gates.Mine):
        asked = 0

        def tool_gate(self, context):
            self.asked += 1
            allowed = context.tools - {"delete"} - ({"finish"} if self.asked % 2 else set())
            return Gate(allowed=allowed, denial_reason="not now")


@breaks("GATE-5")
class WritesDown(Gates):
    """Notes in the transcript what it denied."""

    class Mine(Gates.Mine):
        def tool_gate(self, context):
            if context.run_id == "run_kit":
                context.messages.append(UserMessage("denied"))
            return super().tool_gate(context)


@breaks("GATE-6")
class LooksItUp(Gates):
    """Takes long for many tools."""

    class Mine(Gates.Mine):
        async def tool_gate(self, context):
            await asyncio.sleep(0.02 * len(context.tools))
            return super().tool_gate(context)


# --- observers ------------------------------------------------------------------------------------------------------


class Observes(Trial, EventObserverContract):
    """Counts."""

    class Mine(Plugin):
        count = 0

        def event_observer(self, event):
            self.count += 1


@breaks("OBS-1", "OBS-2", "OBS-3", "OBS-4", "OBS-5", "OBS-6", "PLUGIN-1", "PLUGIN-3", "PLUGIN-4")
class WantsNames(Observes):
    """Names events with words."""

    class Mine(Observes.Mine):
        events = ("RunStarted",)


@breaks("OBS-2", "OBS-3")
class ShortLine(Observes):
    """Cannot cope with long messages."""

    class Mine(Observes.Mine):
        def event_observer(self, event):
            assert len(getattr(getattr(event, "message", None), "text", "")) < 10_000


@breaks("OBS-3")
class AnswersBack(Observes):
    """Answers."""

    class Mine(Observes.Mine):
        def event_observer(self, event):
            return "thank you"


@breaks("OBS-4")
class Meddles(Observes):
    """Changes the text of the result it is shown."""

    class Mine(Observes.Mine):
        def event_observer(self, event):
            if isinstance(event, RunEnded):
                settle_field(event.result, "text", "all is well")


@breaks("OBS-5")
class Sleeps(Observes):
    """Sleeps where the run waits for it."""

    class Mine(Observes.Mine):
        def event_observer(self, event):
            self.count += 1
            if 30 < self.count < 100:
                time.sleep(0.03)


@breaks("OBS-6")
class KnowsThemAll(Observes):
    """Knows every event by name, and no other."""

    class Mine(Observes.Mine):
        def event_observer(self, event):
            if type(event).__name__.startswith("_"):
                raise KeyError(type(event).__name__)
