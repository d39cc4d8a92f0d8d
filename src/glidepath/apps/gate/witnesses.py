"""Who follows the calls of a gate beside its rules: a journal, a deck, telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from glidepath.apps.gate.governing import GateAnswer
from glidepath.apps.gate.passage import GovernedPassage

if TYPE_CHECKING:
    from glidepath.apps.gate.attribution import Attribution
    from glidepath.apps.gate.gate_calls import GateCall
    from glidepath.apps.gate.governing import GatePassage, GateRequest
    from glidepath.apps.gate.lines import Line
    from glidepath.kernel import CallCharge
    from glidepath.values import Verdict


class Witness(Protocol):
    """Follows every call of a gate.

    Contract: the methods that are awaited run before anything is sent, and a `StoreError` of theirs refuses the call:
    what cannot be kept is not spent. The others return at once and raise nothing; `end_call` comes once for every
    passage, also for one that `begin_call` has refused.
    """

    async def recall(self, line: Line, request: GateRequest, attribution: Attribution) -> None:
        """A request has come: have its run in the tree, if it is kept and not in memory, before it is attributed."""
        ...

    async def begin_call(self, passage: GovernedPassage) -> None:
        """A call is about to go out: keep what it may cost at worst."""
        ...

    def follow_growth(self, passage: GovernedPassage, size: int) -> bool:
        """More of a reply has come than `passage.mark`: move the mark. False when that must be awaited (`catch_up`)."""
        ...

    async def catch_up(self, passage: GovernedPassage) -> None:
        """Wait until what this reply may cost is kept again; raises `StoreError`."""
        ...

    def end_call(self, passage: GovernedPassage, charge: CallCharge | None) -> None:
        """A call is over; None when nobody bills it."""
        ...

    async def answer_call(self, call: GateCall, text: str, why: Verdict) -> None:
        """A call was answered with our own words and never made."""
        ...


async def show_outcome(witness: Witness, call: GateCall, outcome: GatePassage | GateAnswer) -> None:
    """Show a witness what was decided about a call. A passage that it refuses, or that nobody waits for, is closed."""
    if isinstance(outcome, GateAnswer):
        if outcome.why is not None:
            await witness.answer_call(call, outcome.said, outcome.why)
    elif isinstance(outcome, GovernedPassage):
        try:
            await witness.begin_call(outcome)
        except BaseException:
            await outcome.close()  # nothing was sent: all of it is given back
            raise
