"""The guards of one run, made from its settings, with what the application brings of its own."""

from __future__ import annotations

from typing import Any

from glidepath.guards.guardrails_config import GuardrailsConfig
from glidepath.guards.repetition import RepetitionGuard
from glidepath.guards.stops import STOP_GUARDS
from glidepath.guards.streaks import ErrorStreakGuard, ReadOnlyGuard
from glidepath.spi import CallGuard, StopGuard
from glidepath.texts import Texts

_WATCHING = tuple(guard for guard in STOP_GUARDS if not guard.bad_ends_only)
_STOPS = frozenset(guard.name for guard in STOP_GUARDS)
_CALL_GUARDS: dict[str, Any] = {
    "max_repeated_tool_steps": RepetitionGuard,
    "max_error_streak": ErrorStreakGuard,
    "read_only_loop_threshold": ReadOnlyGuard,
}
_BUILT_IN = _STOPS | {guard.name for guard in _CALL_GUARDS.values()} | {"programs"}


def make_guards(
    config: GuardrailsConfig,
    metadata: dict[str, Any],
    *,
    resumed: bool = False,
    texts: Texts | None = None,
    own: tuple[Any, ...] = (),
) -> tuple[CallGuard, ...]:
    """The guards of a run's steps, their state in `metadata["guardrails"]`; forgotten unless the run is resumed."""
    fresh = resumed or "guardrails" not in metadata
    home = _dict(metadata, "guardrails")
    guards: list[Any] = []
    for setting, kind in _CALL_GUARDS.items():
        if limit := getattr(config, setting):
            guards.append(kind(limit, _dict(home, kind.name), texts))
    made = tuple(guards) if fresh else _forgetful(guards)
    if not own:
        return made
    from glidepath.guards.own import OwnCallGuard, own_guards  # there since the settings were checked

    return (*made, *own_guards(own, home, OwnCallGuard, _BUILT_IN))


def make_stop_guards(
    config: GuardrailsConfig,
    metadata: dict[str, Any],
    *,
    resumed: bool = False,
    texts: Texts | None = None,
    own: tuple[Any, ...] = (),
) -> tuple[StopGuard, ...]:
    """The guards of a run's end, made when an end looks bad; their state as that of the others."""
    home = _dict(metadata, "guardrails")
    guards: list[Any] = []
    for kind in STOP_GUARDS:
        times = getattr(config, kind.setting) or 0
        if times or kind.always:
            guards.append(kind(times, _dict(home, kind.name), texts))
    made = tuple(guards) if resumed else _forgetful(guards)
    if not own:
        return made
    from glidepath.guards.own import OwnStopGuard, own_guards  # there since the settings were checked

    return (*made, *own_guards(own, home, OwnStopGuard, _BUILT_IN))


def known_stop_guards(
    config: GuardrailsConfig,
    metadata: dict[str, Any],
    *,
    resumed: bool = False,
    texts: Texts | None = None,
    own: tuple[Any, ...] = (),
) -> tuple[StopGuard, ...] | None:
    """The same at the beginning of a run, when an earlier one has needed them or one looks at every answer."""
    home = metadata.get("guardrails")
    counted = type(home) is dict and not home.keys().isdisjoint(_STOPS)
    watching = any(getattr(config, kind.setting) for kind in _WATCHING)
    if not counted and not watching and not (own and _look_at_ends(own)):
        return None
    return make_stop_guards(config, metadata, resumed=resumed, texts=texts, own=own)


def _look_at_ends(own: tuple[Any, ...]) -> bool:
    from glidepath.guards.own import OwnStopGuard

    return any(map(OwnStopGuard.fits, own))


def _forgetful(guards: list[Any]) -> tuple[Any, ...]:
    """The same guards, without what an earlier run did."""
    for guard in guards:
        guard.new_run()
    return tuple(guards)


def _dict(home: dict[str, Any], key: str) -> dict[str, Any]:
    """The live dict under this key; a new one when there is none, or something else."""
    kept = home.get(key)
    if type(kept) is not dict:
        kept = home[key] = {}
    return kept
