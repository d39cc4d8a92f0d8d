"""The options of a tool, and their checks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from glidepath.tools.advice import find_closest
from glidepath.tools.text import shorten
from glidepath.values import ConfigurationError, check_int, check_seconds, short_repr

if TYPE_CHECKING:
    from glidepath.tools.sandbox.policy import Sandbox

Isolation = Literal["inline", "thread", "process"]

_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:-")
_LONGEST_NAME = 128
"""Adapters translate names for each provider: see `glidepath.models.names`."""
_ISOLATIONS = ("inline", "thread", "process")


class RunOptions(TypedDict, total=False):
    """How a tool may be run."""

    exclusive: bool
    parallel_safe: bool
    counts_toward_limit: bool
    votes_on_termination: bool
    terminal: bool
    idempotent: bool
    transactional: bool
    read_only: bool
    consequential: bool
    untrusted: bool
    polling: bool
    background: bool
    timeout: float | None
    max_result_chars: int | None
    max_calls: int | None
    aborts_siblings_on_error: bool
    requires_approval: bool
    approval_reason: str | None
    isolation: Isolation | None
    sandbox: "Sandbox | None"
    strict: bool | None


class ToolOptions(RunOptions, total=False):
    """Every option of a tool besides its function."""

    name: str | None
    description: str | None


_FLAGS = tuple(name for name, kind in RunOptions.__annotations__.items() if kind is bool)
_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(ToolOptions.__annotations__),
    **dict.fromkeys(_FLAGS, False),
    "counts_toward_limit": True,
    "votes_on_termination": True,
}


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """All options with defaults filled in; raises `ConfigurationError` naming the wrong option and the fix."""
    for name in options:
        if name not in _DEFAULTS:
            meant = find_closest(name, _DEFAULTS)
            hint = f"did you mean {meant!r}?" if meant else f"the options are {', '.join(_DEFAULTS)}"
            raise ConfigurationError(f"unknown tool option {name!r}: {hint}")
    given = {**_DEFAULTS, **options}
    _check_flags(given)
    if given["name"] is not None:
        check_name(given["name"])
    if given["strict"] is not None and not isinstance(given["strict"], bool):
        raise ConfigurationError(
            f"strict: expected True, False, or None to follow strict_tools, got {short_repr(given['strict'], 100)}"
        )
    for name in ("description", "approval_reason"):
        text = "" if given[name] is None else given[name]
        if not isinstance(text, str):
            raise ConfigurationError(f"{name}: expected a str, got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigurationError(f"{name}: contains a lone surrogate: remove it") from None
    for name, check in (("timeout", check_seconds), ("max_result_chars", check_int), ("max_calls", check_int)):
        if given[name] is not None:  # which leaves it to the agent, so no error text may call it unlimited
            check(name, given[name], required=True)
    if given["isolation"] is not None and given["isolation"] not in _ISOLATIONS:
        raise ConfigurationError(f"isolation: expected one of {', '.join(_ISOLATIONS)}, got {given['isolation']!r}")
    if given["sandbox"] is not None:
        from glidepath.tools.sandbox.policy import Sandbox  # few tools have one

        if not isinstance(given["sandbox"], Sandbox):
            raise ConfigurationError(f"sandbox: expected a glidepath.sandbox.Sandbox, got {given['sandbox']!r:.80}")
        if given["isolation"] != "process":
            raise ConfigurationError("sandbox: only a process can be sandboxed: add isolation='process'")
    return given


def _check_flags(given: Mapping[str, Any]) -> None:
    for name in _FLAGS:
        if not isinstance(given[name], bool):
            raise ConfigurationError(f"{name}: expected True or False, got {given[name]!r}")
    if given["read_only"] and given["consequential"]:
        raise ConfigurationError(
            "read_only=True and consequential=True contradict each other: a tool only looks, or it changes the world; "
            "keep the one that is true"
        )
    if given["background"]:
        _check_background(given)


def _check_background(given: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for what a call that returns a handle cannot be."""
    for name, why in (
        ("terminal", "its call would end the run before it is done"),
        ("transactional", "its result is a handle, which cannot be kept with the effect"),
        ("exclusive", "it runs beside whatever the model does next"),
    ):
        if given[name]:
            raise ConfigurationError(f"background=True and {name}=True contradict each other: {why}; remove one")


def check_name(name: object) -> None:
    """Reject a name that cannot be typed or contains invisible characters."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not _NAME.issuperset(name):
        given = shorten(repr(name), 100)
        raise ConfigurationError(f"name: expected 1 to 128 letters, digits, _ - . / or :, got {given}: pass name='...'")
