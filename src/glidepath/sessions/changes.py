"""Patches between two states: small, however large the unchanged part is.

A patch of plain data is `["=", value]` (replaced), `["{", {key: patch}, [removed keys]]` (a dict) or
`["[", dropped, [added]]` (a list that lost its first items and got new ones at its end).
"""

from __future__ import annotations

from typing import Any


def diff(old: Any, new: Any) -> list[Any] | None:
    """The patch that turns `old` into `new`; None if they are equal."""
    if old is new:
        return None
    if old.__class__ is new.__class__:
        if old == new:
            return None
        if old.__class__ is dict:
            return _diff_dicts(old, new)
        if old.__class__ is list or old.__class__ is tuple:
            for dropped in range(len(old) + 1):
                kept = len(old) - dropped
                if old[dropped:] == new[:kept]:
                    return ["[", dropped, list(new[kept:])]
    return ["=", new]


def _diff_dicts(old: dict[str, Any], new: dict[str, Any]) -> list[Any]:
    changed: dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key, changed)  # a value that cannot be in `old`
        if before is changed:
            changed[key] = ["=", value]
        elif before != value:
            changed[key] = diff(before, value) or ["=", value]
    return ["{", changed, [] if old.keys() == new.keys() else [key for key in old if key not in new]]


def apply(old: Any, patch: Any) -> Any:
    """Apply a patch to `old`; raises ValueError or TypeError if it is not a patch, or does not fit."""
    kind, *rest = patch
    if kind == "=":
        return rest[0]
    if kind == "{":
        changed, removed = rest
        made = {key: value for key, value in (old or {}).items() if key not in removed}
        for key, inner in changed.items():
            made[key] = apply(made.get(key), inner)
        return made
    if kind == "[":
        dropped, added = rest
        return [*(old or [])[dropped:], *added]
    raise ValueError(f"{kind!r} is not a patch")
