"""Models, estimators, constraints and policies that break one clause each."""

import asyncio
import time
from contextlib import asynccontextmanager
from typing import ClassVar

from tests.contracts.examine import breaks

from glidepath.conformance import (
    ModelContract,
    ProtocolPolicyContract,
    ResourceConstraintContract,
    TokenEstimatorContract,
)
from glidepath.context import CharEstimator
from glidepath.errors import TransientError
from glidepath.messages import StreamEnd, TextDelta, ToolCall, ToolCallDelta, Usage
from glidepath.outcome import AgentState, ResourceAction, ResourceValidation
from glidepath.spi import ProtocolPolicy, ResourceConstraint, ResourceContext
from glidepath.testing import ScriptedModel, VirtualClock, call, fail, hang, say
from glidepath.values import settle_field

# --- models -------------------------------------------------------------------------------------------------------

TURNS = {
    "text": say("The figures are 42.", delay=0.01),
    "tool": call("lookup", query="figures"),
    "failure": fail(TransientError("gone")),
    "silence": hang("one moment"),
}


class ModelTrial(ModelContract):
    """The contract and the model in one."""

    name = "trial"
    model = None

    @asynccontextmanager
    async def playing(self, scene):
        made = type(self)()
        made.scene = scene
        made.model = ScriptedModel(name="mine").forever(TURNS[scene])
        yield made

    def run(self, main):
        return VirtualClock().run(main)

    def open_requests(self, model):
        return model.model.open_streams

    async def stream(self, request):
        inner = self.model.stream(request)
        try:
            async for delta in inner:
                for changed in self.changed(delta):
                    yield changed
        finally:
            await inner.aclose()

    def changed(self, delta):
        """What is yielded instead of a delta."""
        return [delta]


@breaks("MODEL-1")
class Nameless(ModelTrial):
    """Has no name."""

    name = " "


@breaks("MODEL-2", "MODEL-4")
class EndsTwice(ModelTrial):
    """Says twice that it ended."""

    def changed(self, delta):
        return [delta, delta] if isinstance(delta, StreamEnd) and delta.stop_reason == "tool_use" else [delta]


@breaks("MODEL-3")
class Mumbles(ModelTrial):
    """Stops for another reason than it says."""

    def changed(self, delta):
        wrong = isinstance(delta, StreamEnd) and delta.stop_reason == "end_turn"
        return [StreamEnd("stop", delta.usage)] if wrong else [delta]


@breaks("MODEL-4")
class LosesFragments(ModelTrial):
    """Loses the end of a call's arguments."""

    def changed(self, delta):
        return [] if isinstance(delta, ToolCallDelta) and "}" in delta.arguments else [delta]


@breaks("MODEL-5")
class Flatters(ModelTrial):
    """Reports usage that cannot be true."""

    def changed(self, delta):
        return [StreamEnd(delta.stop_reason, Usage(10, 5, 50))] if isinstance(delta, StreamEnd) else [delta]


@breaks("MODEL-6")
class Leaks(ModelTrial):
    """Lets the transport's own errors out."""

    async def stream(self, request):
        try:
            async for delta in super().stream(request):
                yield delta
        except TransientError as gone:
            raise ConnectionError("reset by peer") from gone


@breaks("MODEL-7", "MODEL-8")
class Remembers(ModelTrial):
    """Answers differently after the first time."""

    calls = 0

    def changed(self, delta):
        if isinstance(delta, StreamEnd):
            self.calls += 1
        return [TextDelta(f"{delta.text}!")] if isinstance(delta, TextDelta) and self.calls else [delta]


@breaks("MODEL-8")
class OneAtATime(ModelTrial):
    """Mixes calls that are made at once."""

    busy = 0

    async def stream(self, request):
        self.busy += 1
        try:
            mixed = self.busy > 1
            async for delta in super().stream(request):
                yield TextDelta("?") if mixed and isinstance(delta, TextDelta) else delta
        finally:
            self.busy -= 1


@breaks("MODEL-9")
class GoesOn(ModelTrial):
    """Leaves the request open when the iterator is closed."""

    streams = ()

    async def stream(self, request):
        inner = self.model.stream(request)
        self.streams = (*self.streams, inner)
        async for delta in inner:
            yield delta


@breaks("MODEL-10")
class TakesCancelForATimeout(ModelTrial):
    """Turns a cancellation into an error."""

    async def stream(self, request):
        try:
            async for delta in super().stream(request):
                yield delta
        except asyncio.CancelledError as stop:
            raise TransientError("timed out") from stop


@breaks("MODEL-11")
class TidiesUp(ModelTrial):
    """Takes out of the transcript what it cannot send."""

    async def stream(self, request):
        request.messages[:] = [message for message in request.messages if message.role != "custom"]
        async for delta in super().stream(request):
            yield delta


@breaks("MODEL-12", "MODEL-11")
class Picky(ModelTrial):
    """Cannot cope with pictures."""

    async def stream(self, request):
        for message in request.messages:
            message.content.strip() if message.role == "user" else None
        async for delta in super().stream(request):
            yield delta


@breaks("MODEL-13")
class Boasts(ModelTrial):
    """Has a window without an end."""

    context_window = float("inf")


@breaks("MODEL-14")
class NeedsTools(ModelTrial):
    """Takes it that there is always a tool to call."""

    async def stream(self, request):
        assert request.tools[0].name
        async for delta in super().stream(request):
            yield delta


# --- estimators ---------------------------------------------------------------------------------------------------


class EstimatorTrial(TokenEstimatorContract):
    samples = (("The quick brown fox jumps over the lazy dog.", 10), ("word " * 40, 41), ("figures", 2))

    def make_estimator(self):
        return type(self)()

    def estimate(self, text):
        return CharEstimator().estimate(text)


@breaks("EST-1")
class HalfTokens(EstimatorTrial):
    """Chokes on what UTF-8 cannot write."""

    def estimate(self, text):
        text.encode()
        return super().estimate(text)


@breaks("EST-2", "EST-5")
class Optimist(EstimatorTrial):
    """Counts words."""

    def estimate(self, text):
        return len(text.split()) or bool(text) + 0


@breaks("EST-3")
class Pessimist(EstimatorTrial):
    """Counts a hundred tokens for a character."""

    def estimate(self, text):
        return 100 * len(text)


@breaks("EST-4")
class Learns(EstimatorTrial):
    """Counts more the more it has seen."""

    seen = 0

    def estimate(self, text):
        self.seen += len(text) % 7
        return super().estimate(text) + (self.seen % 3 if len(text) < 1000 else 0)


@breaks("EST-5")
class Capped(EstimatorTrial):
    """Stops counting after a hundred."""

    def estimate(self, text):
        return min(100, super().estimate(text))


@breaks("EST-6")
class Slow(EstimatorTrial):
    """Looks at every character, many times."""

    def estimate(self, text):
        until = time.thread_time() + (1.1 if len(text) > 500_000 else 0)
        while time.thread_time() < until:  # a fixed number of rounds is no second on a fast machine
            sum(map(ord, text))
        return super().estimate(text)


@breaks("EST-7")
class ForOneThread(EstimatorTrial):
    """Belongs to the thread that used it first."""

    owner = None

    def estimate(self, text):
        import threading

        self.owner = self.owner or threading.get_ident()
        if self.owner != threading.get_ident():
            raise RuntimeError("another thread")
        return super().estimate(text)


# --- constraints --------------------------------------------------------------------------------------------------


class ConstraintTrial(ResourceConstraintContract):
    """The constraint is the class `Limit` of the trial."""

    class Limit(ResourceConstraint):
        async def validate(self, context):
            return self.judge(context)

        def judge(self, context):
            if context.tool_calls < 3:
                return ResourceValidation.ok()
            return ResourceValidation.violation("enough", tool_calls=context.tool_calls)

    def make_constraint(self):
        return self.Limit()

    def violating(self, constraint):
        return ResourceContext(tool_calls=3)

    def run(self, main):
        return VirtualClock().run(main)


@breaks("CONSTR-1", "CONSTR-4", "CONSTR-9")
class AlwaysStops(ConstraintTrial):
    """Is violated before anything has happened."""

    class Limit(ConstraintTrial.Limit):
        def judge(self, context):
            return ResourceValidation.violation("no")


@breaks("CONSTR-2")
class OnlyBeforeFlight(ConstraintTrial):
    """Looks at one checkpoint only."""

    class Limit(ConstraintTrial.Limit):
        def judge(self, context):
            return super().judge(context) if context.checkpoint == "pre_flight" else ResourceValidation.ok()


@breaks("CONSTR-3")
class Toothless(ConstraintTrial):
    """Allows what it found to be too much."""

    class Limit(ConstraintTrial.Limit):
        def on_violation(self, validation):
            return ResourceAction.ALLOW


@breaks("CONSTR-4")
class CountsQuestions(ConstraintTrial):
    """Counts how often it was asked, not what was done."""

    class Limit(ConstraintTrial.Limit):
        asked = 0

        def judge(self, context):
            self.asked += context.iteration == 0 and context.tool_calls == 0 and context.agent_name == ""
            if 10 < self.asked < 100 and context.agent_name == "":
                return ResourceValidation.violation("asked too often")
            return super().judge(context)


@breaks("CONSTR-5")
class AssumesMeters(ConstraintTrial):
    """Divides by what may be nothing."""

    class Limit(ConstraintTrial.Limit):
        def judge(self, context):
            if context.agent_name:
                context.tokens_used / context.iteration
            return super().judge(context)


@breaks("CONSTR-6")
class Ponders(ConstraintTrial):
    """Takes a while."""

    class Limit(ConstraintTrial.Limit):
        async def validate(self, context):
            await asyncio.sleep(0.05)
            return self.judge(context)


@breaks("CONSTR-7")
class EndsRunning(ConstraintTrial):
    """Ends a run in a state that is no end."""

    class Limit(ConstraintTrial.Limit):
        state = AgentState.RUNNING


@breaks("CONSTR-8")
class KeepsObjects(ConstraintTrial):
    """Puts objects into its metrics."""

    class Limit(ConstraintTrial.Limit):
        def judge(self, context):
            found = super().judge(context)
            return ResourceValidation.violation("enough", when=object()) if found.violated else found


@breaks("CONSTR-9", "CONSTR-4")
class SharedAlarm(ConstraintTrial):
    """One violation stops everybody, once."""

    class Limit(ConstraintTrial.Limit):
        tripped = None

        def judge(self, context):
            kind = type(self)
            if super().judge(context).violated:
                kind.tripped = self
            elif kind.tripped not in (None, self):
                kind.tripped = None
                return ResourceValidation.violation("somebody else had enough")
            return super().judge(context)


# --- policies -----------------------------------------------------------------------------------------------------


class PolicyTrial(ProtocolPolicyContract, ProtocolPolicy):
    aliases: ClassVar = {"web_search": "search"}
    terminal_tool_names = frozenset({"finish"})

    def make_policy(self):
        return type(self)()

    def normalize_tool_calls(self, calls, tool_names):
        return [self.repaired(item, tool_names) for item in calls]

    def repaired(self, item, tool_names):
        meant = self.aliases.get(item.name)
        fits = item.name not in tool_names and meant in tool_names
        return ToolCall(item.id, meant, item.arguments) if fits else item


@breaks("POLICY-1")
class OneName(PolicyTrial):
    """Gives a text where names are wanted."""

    terminal_tool_names = "finish"


@breaks("POLICY-2")
class Vague(PolicyTrial):
    """Does not say which tool."""

    def plain_text_recovery_prompt(self, text, tool_name):
        return "Use the tool, please."


@breaks("POLICY-3")
class DropsUnknown(PolicyTrial):
    """Leaves out calls of tools that do not exist."""

    def normalize_tool_calls(self, calls, tool_names):
        return [item for item in super().normalize_tool_calls(calls, tool_names) if item.name in tool_names]


@breaks("POLICY-4")
class KnowsBetter(PolicyTrial):
    """Replaces a tool that exists."""

    def repaired(self, item, tool_names):
        meant = self.aliases.get(item.name)
        return ToolCall(item.id, meant, item.arguments) if meant in tool_names else item


@breaks("POLICY-5")
class RepairsNothing(PolicyTrial):
    """Leaves aliases as they are."""

    def repaired(self, item, tool_names):
        return item


@breaks("POLICY-6")
class MakesUp(PolicyTrial):
    """Replaces an alias also by a tool that is hidden now."""

    def repaired(self, item, tool_names):
        meant = self.aliases.get(item.name)
        fits = meant is not None and item.name not in tool_names
        return ToolCall(item.id, meant, item.arguments) if fits else item


@breaks("POLICY-7")
class InPlace(PolicyTrial):
    """Repairs the calls it was given."""

    def normalize_tool_calls(self, calls, tool_names):
        repaired = super().normalize_tool_calls(calls, tool_names)
        for item, good in zip(calls, repaired, strict=True):
            settle_field(item, "name", good.name)
        return repaired


@breaks("POLICY-8")
class Speechless(PolicyTrial):
    """Says nothing when no tool is left."""

    def hidden_tool_error(self, name, available):
        return ", ".join(available)


@breaks("POLICY-9")
class Moody(PolicyTrial):
    """Says something else each time."""

    asked = 0

    def plain_text_recovery_prompt(self, text, tool_name):
        self.asked += 1
        return f"Use {tool_name}!" + "!" * self.asked
