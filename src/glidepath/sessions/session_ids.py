"""What every store can keep as text: ids of sessions, and reasons. Where the runs of a team's request are."""

from __future__ import annotations

from glidepath.tools import clean
from glidepath.values import ConfigurationError, StoreError

_LONGEST_HOME = 120


def check_storable_id(name: str) -> str:
    """This id of a session; raises `StoreError` (`missing`) for one that is in no store: not all could keep it."""
    if is_keepable(name):
        return name
    why = "has a NUL character" if "\0" in name else "is not valid Unicode"
    raise StoreError(f"{name!r:.80} {why}: it cannot be in a store", kind="missing")


def is_keepable(name: str) -> bool:
    """False for an id that some store could not keep: with a NUL character, or a lone surrogate."""
    if not isinstance(name, str):
        raise ConfigurationError(f"an id must be a str, not {name!r:.80}")
    return "\0" not in name and (name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name))


def keepable_reason(reason: str | None) -> str | None:
    """The reason of a stop as every store can keep it: a stop must not fail because of its words."""
    return None if reason is None else clean(reason).replace("\0", " ")


def home_of(request_id: str) -> str:
    """The prefix that all sessions of a team's request share."""
    plain = len(request_id) <= _LONGEST_HOME and "/" not in request_id
    return request_id if plain else f"request_{digest_of(request_id)}"


def digest_of(text: str) -> str:
    """A short name for a text that is too long for an id."""
    from hashlib import blake2b  # a first run does without it

    return blake2b(text.encode(), digest_size=16).hexdigest()
