"""Which ids a session can have in every store."""

from __future__ import annotations

from glidepath.errors import StoreError


def keepable(name: str) -> str:
    """This id of a session; raises `StoreError` (`missing`) for one that is in no store: not all could keep it."""
    if is_keepable(name):
        return name
    why = "has a NUL character" if "\0" in name else "is not valid Unicode"
    raise StoreError(f"{name!r:.80} {why}: it cannot be in a store", kind="missing")


def is_keepable(name: str) -> bool:
    """False for an id that some store could not keep: with a NUL character, or a lone surrogate."""
    return "\0" not in name and (name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name))
