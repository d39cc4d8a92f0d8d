"""What may still change: markers on extension points.

All extension points are experimental in 0.x. One becomes stable after an implementation outside this repository has
passed its contract class; a break of a stable one needs a decision record and a changelog entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from glidepath._wire import Value

__all__ = ["Stability", "experimental", "stable"]

T = TypeVar("T")
UNPROVEN = "no implementation outside this repository has passed its contract class yet"
_MARK = "_abc_stability"  # typing takes no name that begins like this for a member of a protocol


class Stability(Value, frozen=True, kw_only=True):
    """How firm an extension point is: `experimental` for a `reason`, or `stable` `since` a version."""

    level: str
    reason: str = ""
    since: str = ""


def experimental(*, reason: str) -> Callable[[T], T]:
    """Mark a class or a hook that may change in any minor version, and say why it is not stable yet."""
    if not isinstance(reason, str) or not reason:
        raise TypeError("experimental(reason=...) needs a reason")
    return _make_marker(Stability(level="experimental", reason=reason))


def stable(*, since: str) -> Callable[[T], T]:
    """Mark a class or a hook to which minor versions only add, from a version on."""
    if not isinstance(since, str) or not since:
        raise TypeError("stable(since=...) needs a version")
    return _make_marker(Stability(level="stable", since=since))


def stability_of(thing: object) -> Stability | None:
    """The mark of a class or hook itself; inherited marks do not count."""
    mark = getattr(thing, "__dict__", {}).get(_MARK)
    return mark if isinstance(mark, Stability) else None


def _make_marker(mark: Stability) -> Callable[[T], T]:
    def put(thing: T) -> T:
        setattr(thing, _MARK, mark)
        return thing

    return put
