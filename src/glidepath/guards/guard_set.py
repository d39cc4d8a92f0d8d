"""The guards of one run, made from its settings, with what the application brings of its own."""

from __future__ import annotations

from typing import Any

from glidepath.guards.guardrails_config import GuardrailsConfig
from glidepath.guards.repetition import RepetitionGuard
from glidepath.guards.stops import STOP_GUARDS
from glidepath.guards.streaks import ErrorStreakGuard, ReadOnlyGuard
from glidepath.guards.withdrawing import restore_state
from glidepath.spi import CallGuard, StopGuard
from glidepath.values import Texts

_STOPS = frozenset(guard.name for guard in STOP_GUARDS)
_CALL_GUARDS: dict[str, Any] = {
    "max_repeated_tool_steps": RepetitionGuard,
    "max_error_streak": ErrorStreakGuard,
    "read_only_loop_threshold": ReadOnlyGuard,
}
_BUILT_IN = _STOPS | {guard.name for guard in _CALL_GUARDS.values()} | {"programs", "replanning"}


class GuardSet:
    """Makes the guards of each run of an agent: `own` are the application's, asked after the built-in ones.

    Their state is in `metadata["guardrails"]` of the session; what an earlier run counted is forgotten, unless that
    run is resumed.
    """

    __slots__ = ("_config", "_own", "_texts", "_watching")

    def __init__(self, config: GuardrailsConfig, texts: Texts | None = None, own: tuple[Any, ...] = ()) -> None:
        self._config, self._texts, self._own = config, texts, own
        self._watching = False
        if own:
            from glidepath.guards.own import OwnStopGuard

            self._watching = any(map(OwnStopGuard.is_applicable, own))  # ours look only at bad ends

    def make_call_guards(self, metadata: dict[str, Any], *, resumed: bool = False) -> tuple[CallGuard, ...]:
        """The guards of a run's steps."""
        fresh = resumed or "guardrails" not in metadata
        home = restore_state(metadata, "guardrails", {})
        wanted = [(kind, limit) for name, kind in _CALL_GUARDS.items() if (limit := getattr(self._config, name))]
        states = [restore_state(home, kind.name, {}) for kind, _ in wanted]
        made = [kind(limit, state, self._texts) for (kind, limit), state in zip(wanted, states, strict=True)]
        return self._add_own_guards(made, home, fresh=fresh, ends=False)

    def make_stop_guards(self, metadata: dict[str, Any], *, resumed: bool = False) -> tuple[StopGuard, ...]:
        """The guards of a run's end, made when an end looks bad."""
        home = restore_state(metadata, "guardrails", {})
        made: list[Any] = []
        for kind in STOP_GUARDS:
            times = getattr(self._config, kind.setting) or 0
            if times or kind.always:
                made.append(kind(times, restore_state(home, kind.name, {}), self._texts))
        return self._add_own_guards(made, home, fresh=resumed, ends=True)

    def make_stop_guards_at_start(
        self, metadata: dict[str, Any], *, resumed: bool = False
    ) -> tuple[StopGuard, ...] | None:
        """The same at the beginning of a run, when an earlier one has needed them or one looks at every answer."""
        home = metadata.get("guardrails")
        counted = type(home) is dict and not home.keys().isdisjoint(_STOPS)
        return self.make_stop_guards(metadata, resumed=resumed) if counted or self._watching else None

    def _add_own_guards(self, made: list[Any], home: dict[str, Any], *, fresh: bool, ends: bool) -> tuple[Any, ...]:
        if not fresh:
            for guard in made:
                guard.new_run()
        if not self._own:
            return tuple(made)
        from glidepath.guards.own import (  # there since the settings were checked
            OwnCallGuard,
            OwnStopGuard,
            make_own_guards,
        )

        return (*made, *make_own_guards(self._own, home, OwnStopGuard if ends else OwnCallGuard, _BUILT_IN))
