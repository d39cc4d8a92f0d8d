"""Models that go round in circles, and models that simply never stop."""

from __future__ import annotations

from typing import Any

from glidepath._wire import replace
from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen, Tireless
from glidepath.testing.turns import Call, Turn, call, calls, say

__all__ = [
    "AnswersOnlyWhenTold",
    "BusyWork",
    "FailsTheSameWay",
    "FailsWithVariedArguments",
    "FourStepLoop",
    "HundredsOfCalls",
    "IgnoresEverything",
    "IncrementingArguments",
    "InsistsOnWithdrawnTool",
    "MalformedArguments",
    "NeedsTwoNotices",
    "ReadsForever",
    "SameCall",
    "ThreeStepLoop",
    "TwoStepLoop",
    "UnknownTool",
]


class _Loop(Tireless):
    family = "loops"
    loops = True
    needs_tools = True
    period = 1

    def step(self, moment: Moment) -> Turn:
        """The next call of the cycle."""
        return moment.call(moment.number % self.period)


class SameCall(_Loop):
    """Makes the same call again and again; the result never changes."""

    name = "same_call"


class TwoStepLoop(_Loop):
    """Goes A, B, A, B without a new result."""

    name = "two_step_loop"
    period = 2


class ThreeStepLoop(_Loop):
    """Goes A, B, C, A, B, C without a new result."""

    name = "three_step_loop"
    period = 3


class FourStepLoop(_Loop):
    """Goes A, B, C, D, A, B, C, D without a new result."""

    name = "four_step_loop"
    period = 4


class IncrementingArguments(_Loop):
    """Counts page 1, page 2, page 3 ...; every page is the same."""

    name = "incrementing_arguments"
    only_if_read_only = True

    def step(self, moment: Moment) -> Turn:
        """The next page."""
        return moment.call()


class FailsTheSameWay(_Loop):
    """Repeats a call that always fails in the same way."""

    name = "same_error"

    async def work(self, number: int) -> Any:
        """Fail."""
        raise PermissionError("token expired")


class FailsWithVariedArguments(FailsTheSameWay):
    """Tries other arguments each time; the tool fails in the same way."""

    name = "same_error_varied"

    def step(self, moment: Moment) -> Turn:
        """Other arguments."""
        return moment.call()


class MalformedArguments(_Loop):
    """Sends arguments that are not JSON, forever."""

    name = "malformed_arguments"

    def step(self, moment: Moment) -> Turn:
        """A call whose JSON does not parse."""
        turn = moment.call()
        broken = Call(name=turn.calls[0].name, arguments='{"query": ' + "x" * (moment.number % 7))
        return replace(turn, parts=(broken,))


class UnknownTool(_Loop):
    """Calls tools that do not exist, each time another."""

    name = "unknown_tool"
    needs_tools = False

    def step(self, moment: Moment) -> Turn:
        """A tool nobody has."""
        return call(f"does_not_exist_{moment.number}", query="x")


class InsistsOnWithdrawnTool(_Loop):
    """Repeats its call even after the tool was withdrawn; answers only when it is offered no tool at all."""

    name = "insists_on_withdrawn_tool"

    def reply(self, moment: Moment) -> Turn:
        """The same call, while there is any tool."""
        return moment.call(1) if moment.request.tools else say(ANSWER)


class ReadsForever(Tireless):
    """Reads on and on; every result is new, nothing is ever delivered."""

    name = "reads_forever"
    family = "endless"
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        """The next thing to read."""
        return moment.call()

    async def work(self, number: int) -> Any:
        """Something new."""
        return f"fact {number}: " + "lorem ipsum " * 40


class BusyWork(ReadsForever):
    """Makes three new calls in every turn and says a lot about each."""

    name = "busy_work"

    def step(self, moment: Moment) -> Turn:
        """Three calls at once."""
        at = moment.number * 3
        three = [moment.call(at + offset, tool=offset) for offset in range(3)]
        return calls(*three, text="Let me look at a few more things first. " * 20)


class HundredsOfCalls(ReadsForever):
    """Asks for three hundred tool calls in one reply."""

    name = "hundreds_of_calls"

    def step(self, moment: Moment) -> Turn:
        """Three hundred calls."""
        return calls(*[moment.call(moment.number * 1000 + offset) for offset in range(300)])


class AnswersOnlyWhenTold(ReadsForever):
    """Has its answer from the start and gives it only when it is told to finish."""

    name = "answers_only_when_told"


class NeedsTwoNotices(ReadsForever):
    """Makes one more call after the notice, and answers then."""

    name = "needs_two_notices"

    def __init__(self) -> None:
        self._told = 0

    def reply(self, moment: Moment) -> Turn:
        """The answer at the second notice, or when there are no tools."""
        self._told += moment.told
        return say(ANSWER) if self._told > 1 or not moment.request.tools else moment.call()


class IgnoresEverything(Specimen):
    """Calls tools whatever it is told, even when it is offered none, and never answers."""

    name = "ignores_everything"
    family = "endless"
    answers = False

    def reply(self, moment: Moment) -> Turn:
        """Another call."""
        return moment.call()

    async def work(self, number: int) -> Any:
        """Something new."""
        return f"result {number}"
