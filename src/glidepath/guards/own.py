"""Guards of the application, beside the built-in ones: checked when the agent is made, made again for each run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeAlias, TypeVar

from glidepath.guards.withdrawing import restore_state
from glidepath.spi import GuardVerdict, Recovery, Stop
from glidepath.values import ConfigurationError, describe_error, short_repr

A = TypeVar("A", GuardVerdict, Recovery)

_ACTIONS = ("nudge", "withdraw", "land")
_PARTS: dict[type, dict[str, Any]] = {
    GuardVerdict: {"action": str, "reason": str, "tools": frozenset, "notice": str, "notice_reason": str},
    Recovery: {"reason": str, "message": str, "fail": str | None},
}


class OwnCallGuard:
    """A call guard of the application. One that answers nonsense raises, as one that crashes does: the run lands."""

    parts = "before and after"

    @staticmethod
    def is_applicable(guard: object) -> bool:
        """True when it watches batches of tool calls."""
        hooks = [getattr(guard, name, 0) for name in ("before", "after")]
        return all(hook is None or callable(hook) for hook in hooks)

    def __init__(self, guard: Any) -> None:
        self.name: str = guard.name
        self.before = None if guard.before is None else partial(_ask_for_verdict, "before", guard.before)
        self.after = None if guard.after is None else partial(_ask_for_verdict, "after", guard.after)


def _ask_for_verdict(hook: str, ask: Callable[..., object], *shown_to_it: object) -> GuardVerdict | None:
    verdict = _check_answer(hook, ask(*shown_to_it), GuardVerdict)
    if verdict is not None and verdict.action not in _ACTIONS:
        raise ValueError(f"{hook} returned the action {verdict.action!r:.80}; use one of {', '.join(_ACTIONS)}")
    return verdict


def _check_answer(hook: str, answer: object, kind: type[A]) -> A | None:
    """A guard's answer; raises TypeError if that, or a part of it, cannot be used."""
    if answer is None:
        return None
    if not isinstance(answer, kind):
        raise TypeError(f"{hook} must return a {kind.__name__} or None, not {short_repr(answer, 80)}")
    for name, wanted in _PARTS[kind].items():
        if not isinstance(part := getattr(answer, name), wanted):
            raise TypeError(f"{hook} returned a {kind.__name__} whose {name} is {short_repr(part, 80)}")
    return answer


class OwnStopGuard:
    """A stop guard of the application. One that answers nonsense, or cannot forget, fails the run at its end."""

    parts = "recover() and reset()"

    @staticmethod
    def is_applicable(guard: object) -> bool:
        """True when it answers replies without tool calls."""
        return callable(getattr(guard, "recover", None)) and callable(getattr(guard, "reset", None))

    def __init__(self, guard: Any) -> None:
        self.name: str = guard.name
        self._guard = guard
        self._broken: Exception | None = None

    def recover(self, stop: Stop) -> Recovery | None:
        """The guard's answer."""
        if self._broken is not None:
            raise self._broken
        return _check_answer("recover", self._guard.recover(stop), Recovery)

    def reset(self) -> None:
        """Progress was made. What goes wrong here counts at the end, when the guard is asked."""
        try:
            self._guard.reset()
        except Exception as error:
            self._broken = error


Kind: TypeAlias = type[OwnCallGuard] | type[OwnStopGuard]


def check_guard(guard: object) -> None:
    """Raise `ConfigurationError` for what is not a guard."""
    if isinstance(guard, type) or not (OwnCallGuard.is_applicable(guard) or OwnStopGuard.is_applicable(guard)):
        raise ConfigurationError(
            f"guards must be objects with before and after (CallGuard), or recover() and reset() (StopGuard), "
            f"not {short_repr(guard, 100)}"
        )
    for hook in ("before", "after", "recover", "reset"):
        if iscoroutinefunction(getattr(guard, hook, None)):
            raise ConfigurationError(f"{type(guard).__name__}.{hook} must be a plain function: a guard is not awaited")
    name = getattr(guard, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{type(guard).__name__}.name must be a non-empty str")


def make_own_guards(guards: tuple[Any, ...], home: dict[str, Any], kind: Kind, taken: frozenset[str]) -> list[Any]:
    """The guards of this kind that serve one run: what `for_run(state)` makes of each, or the guard itself.

    `state` is a dict of the guard's own, plain JSON data that lives as long as the session. Two guards may have the
    same name, even one that is `taken`; each still has its own state.
    """
    made: list[Any] = []
    names: list[str] = []
    for guard in guards:
        again = names.count(guard.name) + (guard.name in taken)
        names.append(guard.name)
        if kind.is_applicable(guard):
            made.append(kind(_make_for_run(guard, home, f"{guard.name}:{again + 1}" if again else guard.name, kind)))
    return made


def _make_for_run(guard: Any, home: dict[str, Any], key: str, kind: Kind) -> Any:
    make = getattr(guard, "for_run", None)
    if make is None:
        return guard
    try:
        made = make(restore_state(home, key, {}))
    except Exception as error:
        raise ConfigurationError(f"for_run of guard {guard.name!r} failed: {describe_error(error)}") from error
    if not kind.is_applicable(made):
        raise ConfigurationError(
            f"for_run of guard {guard.name!r} must return a guard with {kind.parts}, not {short_repr(made, 100)}"
        )
    return made
