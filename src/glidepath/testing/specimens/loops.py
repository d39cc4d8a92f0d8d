"""Models that go around in circles, and models that simply never stop."""

from __future__ import annotations

from collections.abc import Callable

from glidepath._wire import replace
from glidepath.testing.specimens.specimen import ANSWER, Moment, Tireless, failing, specimen, table
from glidepath.testing.turns import Call, Turn, call, calls, say


class _Loop(Tireless):
    family = "loops"
    loops = True
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        return moment.call(0)


def _cycle(period: int) -> Callable[[Moment], Turn]:
    return lambda moment: moment.call(moment.number % period)


def _make_malformed_call(moment: Moment) -> Turn:
    turn = moment.call()
    broken = Call(name=turn.calls[0].name, arguments='{"query": ' + "x" * (moment.number % 7))
    return replace(turn, parts=(broken,))


_expired = failing(PermissionError, "token expired")

LOOPS = (
    specimen("same_call", "Makes the same call again and again; the result never changes.", _Loop),
    *table(
        _Loop,
        "step",
        two_step_loop=("Goes A, B, A, B without a new result.", _cycle(2)),
        three_step_loop=("Goes A, B, C, A, B, C without a new result.", _cycle(3)),
        four_step_loop=("Goes A, B, C, D, A, B, C, D without a new result.", _cycle(4)),
        malformed_arguments=("Sends arguments that are not JSON, forever.", _make_malformed_call),
    ),
    specimen("same_error", "Repeats a call that always fails in the same way.", _Loop, work=_expired),
    specimen(
        "same_error_varied",
        "Tries other arguments each time; the tool fails in the same way.",
        _Loop,
        step=Moment.call,
        work=_expired,
    ),
    specimen(
        "incrementing_arguments",
        "Counts page 1, page 2, page 3 ...; every page is the same.",
        _Loop,
        step=Moment.call,
        only_if_read_only=True,
    ),
    specimen(
        "unknown_tool",
        "Calls tools that do not exist, a different one each time.",
        _Loop,
        step=lambda moment: call(f"does_not_exist_{moment.number}", query="x"),
        needs_tools=False,
    ),
    specimen(
        "insists_on_withdrawn_tool",
        "Repeats its call even after the tool was withdrawn; answers only when no tool at all is offered.",
        _Loop,
        reply=lambda moment: moment.call(1) if moment.request.tools else say(ANSWER),
    ),
)


class _Reader(Tireless):
    family = "endless"
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        return moment.call()

    async def work(self, number: int) -> str:
        return f"fact {number}: " + "lorem ipsum " * 40


def _busy(moment: Moment) -> Turn:
    three = [moment.call(moment.number * 3 + offset, tool=offset) for offset in range(3)]
    return calls(*three, text="Let me look at a few more things first. " * 20)


def _hundreds(moment: Moment) -> Turn:
    return calls(*[moment.call(moment.number * 1000 + offset) for offset in range(300)])


ENDLESS = (
    specimen("reads_forever", "Keeps reading; every result is new, nothing is ever delivered.", _Reader),
    specimen("answers_only_when_told", "Has its answer from the start and gives it only when told to finish.", _Reader),
    specimen("busy_work", "Makes three new calls in every turn and says a lot about each.", _Reader, step=_busy),
    specimen("hundreds_of_calls", "Asks for three hundred tool calls in one reply.", _Reader, step=_hundreds),
    specimen(
        "ignores_everything",
        "Calls tools no matter what it is told, even when none is offered, and never answers.",
        _Reader,
        reply=Moment.call,
        work=lambda number: f"result {number}",
        needs_tools=False,
        answers=False,
    ),
)


class NeedsTwoNotices(_Reader):
    """Makes one more call after the notice, and answers then."""

    def __init__(self) -> None:
        self._told = 0

    def reply(self, moment: Moment) -> Turn:
        """The answer at the second notice, or when there are no tools."""
        self._told += moment.told
        return say(ANSWER) if self._told > 1 or not moment.request.tools else moment.call()
