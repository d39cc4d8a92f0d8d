"""What every store can keep as text: ids of sessions, and reasons."""

from __future__ import annotations

from glidepath.errors import StoreError
from glidepath.tools.text import clean


def keepable(name: str) -> str:
    """This id of a session; raises `StoreError` (`missing`) for one that is in no store: not all could keep it."""
    if is_keepable(name):
        return name
    why = "has a NUL character" if "\0" in name else "is not valid Unicode"
    raise StoreError(f"{name!r:.80} {why}: it cannot be in a store", kind="missing")


def is_keepable(name: str) -> bool:
    """False for an id that some store could not keep: with a NUL character, or a lone surrogate."""
    return "\0" not in name and (name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name))


def keepable_reason(reason: str | None) -> str | None:
    """The reason of a stop as every store can keep it: a stop must not fail because of its words."""
    return None if reason is None else clean(reason).replace("\0", " ")
