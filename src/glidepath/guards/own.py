"""Guards of the application, beside the built-in ones: checked when the agent is made, made again for each run."""

from __future__ import annotations

from typing import Any

from glidepath.errors import ConfigurationError, shown


def is_call_guard(guard: object) -> bool:
    """True when it watches batches of tool calls."""
    return hasattr(guard, "before") and hasattr(guard, "after")


def is_stop_guard(guard: object) -> bool:
    """True when it answers replies without tool calls."""
    return callable(getattr(guard, "recover", None)) and callable(getattr(guard, "reset", None))


def check_guard(guard: object) -> None:
    """Raise `ConfigurationError` for what is not a guard."""
    if isinstance(guard, type) or not (is_call_guard(guard) or is_stop_guard(guard)):
        raise ConfigurationError(
            f"guards must be objects with before and after (CallGuard), or recover() and reset() (StopGuard), "
            f"not {shown(guard, 100)}"
        )
    name = getattr(guard, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{type(guard).__name__}.name must be a non-empty str")


def own_guards(guards: tuple[Any, ...], home: dict[str, Any], *, stops: bool) -> list[Any]:
    """The guards that serve one run: what `for_run(state)` makes of each, or the guard itself.

    `state` is a dict of the guard's own, plain JSON data that lives as long as the session.
    """
    wanted = is_stop_guard if stops else is_call_guard
    return [_for_run(guard, home) for guard in guards if wanted(guard)]


def _for_run(guard: Any, home: dict[str, Any]) -> Any:
    make = getattr(guard, "for_run", None)
    if make is None:
        return guard
    state = home.get(guard.name)
    if type(state) is not dict:
        state = home[guard.name] = {}
    return make(state)
