"""How a run comes to land: soft limits and verdicts, withdrawn tools, and what the constraints reported."""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar

from glidepath._wire import Record
from glidepath.run.unsaved import Unsaved
from glidepath.values import StopCause, ValidationRecord, Verdict


class WindDown(Record, eq=False, gc=False):
    """How close the run is to its end: told to wind down, in its last turn, condemned, landing."""

    SURVIVES: ClassVar[tuple[str, ...]] = ("landing_calls", "withdrawal", "withdrawn", "notices_told")
    UNTIL_IT_ENDS: ClassVar[tuple[str, ...]] = ("verdict", "notice", "wind_down", "final_turn", "work_withdrawn")

    unsaved: Unsaved
    begun: bool = False
    """Something of what follows is set: a turn may not be ordinary."""
    soft_at: float = inf
    soft_turns: float = inf
    """When, and after how many turns, the notice may be due: no need to ask before."""
    verdict: Verdict | None = None
    """Why it must come down at the next checkpoint."""
    wind_down: StopCause | None = None
    """A person has asked it to finish up."""
    notice: StopCause | None = None
    """Why the model was told to finish."""
    final_turn: Verdict | None = None
    """What it comes down for after this turn."""
    work_withdrawn: bool = False
    withdrawal: StopCause | None = None
    withdrawn: frozenset[str] = frozenset()
    notices_told: frozenset[tuple[str, str]] = frozenset()
    landing_calls: int = 0

    def note_restored(self) -> None:
        """The fields were put back from a snapshot: it may have begun in an earlier process."""
        asked = self.wind_down is not None or self.notice is not None or self.verdict is not None
        self.begun = asked or bool(self.withdrawn)

    def land_at_next_checkpoint(self, verdict: Verdict) -> None:
        """Land at the next checkpoint, for this reason."""
        self.verdict = verdict
        self.begun = True
        self.unsaved["verdict"] = None

    def land_unless_landing(self, verdict: Verdict) -> None:
        """The same, unless it already lands for another reason."""
        if self.verdict is None:
            self.land_at_next_checkpoint(verdict)

    def ask(self, cause: StopCause) -> None:
        """A person asks it to finish up; who asked first is why."""
        if self.wind_down is None:
            self.wind_down = cause
            self.begun = True
            self.unsaved["wind_down"] = None

    def give_notice(self, cause: StopCause) -> None:
        """The model is told to finish."""
        self.notice = cause
        self.begun = True
        self.unsaved["notice"] = None

    def mark_last_turn(self, verdict: Verdict) -> None:
        """The coming turn is the last."""
        self.final_turn = verdict
        self.unsaved["final_turn"] = None

    def withdraw_work(self, withdrawn: bool) -> None:
        """Whether only terminal tools may be called."""
        self.work_withdrawn = withdrawn
        self.unsaved["work_withdrawn"] = None

    def withdraw(self, tools: frozenset[str], cause: StopCause) -> None:
        """A guard takes these tools away."""
        self.withdrawn |= tools
        self.withdrawal = cause
        self.begun = True
        self.unsaved["withdrawn"] = self.unsaved["withdrawal"] = None

    def is_first_notice(self, constraint: str, notice: str) -> bool:
        """Whether the model has not been told this yet."""
        if (constraint, notice) in self.notices_told:
            return False
        self.notices_told |= {(constraint, notice)}
        self.unsaved["notices_told"] = None
        return True

    def call_landing(self) -> None:
        """The landing call is made."""
        self.landing_calls += 1
        self.unsaved["landing_calls"] = None


class Audit(Record, eq=False):
    """What the constraints have said, for the result."""

    SURVIVES: ClassVar[tuple[str, ...]] = ("violations",)

    violations: list[ValidationRecord] | tuple[()] = ()
    warned: dict[str, Any] | None = None
    """The constraints whose warning lasts, and what they said when it was last noted."""
    warnings: int = 0
    """Warnings noted so far."""
    passing: Any = None
    """What the constraints said at the last checkpoint at which they were asked."""
    passed: tuple[ValidationRecord, ...] = ()

    def warn(self, constraint: str, said: object) -> None:
        """A warning begins, or its words change."""
        self.warned = {**(self.warned or {}), constraint: said}
        self.warnings += 1

    def note_holding(self, constraint: str) -> None:
        """The constraint holds again."""
        self.warned = {other: said for other, said in (self.warned or {}).items() if other != constraint}

    def record_answers(self, passing: Any) -> None:
        """What was said at this checkpoint."""
        self.passing = passing

    def conclude(self, passed: tuple[ValidationRecord, ...]) -> None:
        """What holds in the end."""
        self.passed = passed
