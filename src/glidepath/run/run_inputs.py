"""What a run was given: its session, its own settings, from where it continues, and its guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from glidepath._wire import Record, freeze, replace
from glidepath.run.cancel import CancelToken
from glidepath.run.unsaved import Unsaved
from glidepath.spi import CallGuard, StopGuard
from glidepath.values import NOT_CARRIED, Carried, ConfigurationChange, PerRun

if TYPE_CHECKING:
    from glidepath.run.plan import Plan
    from glidepath.run.snapshot import Resumption

_NOTHING: Final[Any] = MappingProxyType({})
PLAIN_CHOICES = ("auto", "required", "none")


class RunInputs(Record, eq=False, kw_only=True):
    """What a run was given beside its agent's settings, and when it began."""

    SURVIVES: ClassVar[tuple[str, ...]] = ("per_run", "carried")

    unsaved: Unsaved
    session_id: str
    started_at: float
    per_run: PerRun | None = None
    carried: Carried = NOT_CARRIED
    """What its meter has in it from earlier runs of the session."""
    extras: Mapping[str, Any] | None = None
    """The agent's, with its own on top."""
    tool_choice: str = "auto"
    token: CancelToken | None = None
    """Who may stop it from outside."""
    deps: Any = None
    """The application's own, for its tools and hooks; never written anywhere."""
    resumed: Resumption | None = None
    next_speaker: Callable[[], None] | None = None
    """Lets another agent speak, when the next turn begins."""
    countdown: Any = None
    """The view that the model was last told a task budget for, and that budget."""
    changes: tuple[ConfigurationChange, ...] = ()
    """What about its agent was different when it continued."""

    def settle(self, plan: Plan, given: PerRun | None) -> None:
        """What this run alone was given, on top of the agent's settings."""
        given = self.per_run or given
        if given is None:
            return
        self.per_run = replace(
            given,
            extras=None if given.extras is None else freeze(dict(given.extras)),
            metadata=None if given.metadata is None else freeze(dict(given.metadata)),
        )
        self.unsaved["per_run"] = None
        if given.extras is not None:
            self.extras = freeze(_merge_extras(plan.extras or {}, given.extras))
        if given.tool_choice in PLAIN_CHOICES or given.tool_choice in plan.tool_names:  # it may be another agent's
            self.tool_choice = given.tool_choice

    def take_notes(self, notes: Mapping[str, str]) -> None:
        """What observers want the journal to keep about this run."""
        per_run = self.per_run or PerRun()
        self.per_run = replace(per_run, notes={**(per_run.notes or {}), **notes})
        self.unsaved["per_run"] = None

    def accept(self, carried: Carried, token: CancelToken | None) -> None:
        """What its meter has in it from before, and who may stop it."""
        self.carried, self.token = carried, token
        self.unsaved["carried"] = self.unsaved["on_budget"] = None

    def change_speaker(self, take_over: Callable[[], None]) -> None:
        """Another agent speaks from the next turn on."""
        self.next_speaker = take_over

    def keep_speaker(self) -> None:
        """The agent that speaks continues."""
        self.next_speaker = None

    def speak_for(self, plan: Plan) -> None:
        """What is sent with each request is the speaking agent's."""
        self.next_speaker = None
        self.tool_choice, self.extras = plan.config.tool_choice, plan.extras

    def count_down(self, view: object, budget: tuple[int, int | None] | None) -> None:
        """What the model is told that it has left, for as long as it is shown this view."""
        self.countdown = view, budget

    def note_changes(self, changes: tuple[ConfigurationChange, ...]) -> None:
        """Record that the agent differs from the one that wrote the journal."""
        self.changes = changes

    def resume(self, resumed: Resumption) -> None:
        """It continues from there; the time it had used counts."""
        self.resumed = resumed
        self.started_at -= max(0.0, resumed.snapshot.elapsed)


def _merge_extras(extras: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the run on top; None takes the agent's out, or the adapter's own field where the agent has none."""
    taken_out = {key for key, value in given.items() if value is None and key in extras}
    return {key: value for key, value in {**extras, **given}.items() if key not in taken_out}


def find_before_guards(guards: tuple[CallGuard, ...]) -> tuple[CallGuard, ...]:
    """Those of the guards that look at a batch before it runs."""
    return tuple([guard for guard in guards if guard.before is not None])


def find_after_guards(guards: tuple[CallGuard, ...]) -> tuple[CallGuard, ...]:
    """Those of the guards that look at a batch that ran."""
    return tuple([guard for guard in guards if guard.after is not None])


class RunGuards(Record, eq=False):
    """The guards of one run, and where they keep what they count."""

    before: tuple[CallGuard, ...] = ()
    """Those that look at a batch before it runs."""
    after: tuple[CallGuard, ...] = ()
    """Those that look at a batch that ran."""
    stops: tuple[StopGuard, ...] | None = None
    """None: no end of this run has looked bad so far."""
    home: Mapping[str, Any] = _NOTHING
    """The session's metadata."""
    circles: Any = None
    """The one that looks for circles, where it can tell a journal what is new: `take_changes`."""

    @classmethod
    def of(cls, guards: tuple[CallGuard, ...], stops: tuple[StopGuard, ...] | None, home: dict[str, Any]) -> RunGuards:
        """Those of its calls and of its end."""
        before, after = find_before_guards(guards), find_after_guards(guards)
        return cls(
            before, after, stops, home, next((guard for guard in guards if hasattr(guard, "take_changes")), None)
        )

    def watch_stops(self, stops: tuple[StopGuard, ...]) -> tuple[StopGuard, ...]:
        """An end looks bad: these are asked from now on."""
        self.stops = stops
        return stops
