"""A store by the path of its file."""

from __future__ import annotations

import os

from glidepath.spi import SessionStore, is_implementing
from glidepath.values import ConfigurationError, short_repr

_ENDINGS = (".db", ".sqlite", ".sqlite3")


def as_store(field: str, given: object) -> SessionStore:
    """The store itself, or a `SqliteStore` for a path; raises `ConfigurationError` for anything else.

    Of a text the ending must be that of such a file, so that a word such as `default` makes no file.
    """
    if isinstance(given, os.PathLike) or (isinstance(given, str) and given.endswith(_ENDINGS)):
        from glidepath.sessions.sqlite import SqliteStore

        return SqliteStore(given)
    if isinstance(given, str):
        advice = (
            "use PostgresStore(dsn)" if given.startswith("postgres") else f"end it with {' or '.join(_ENDINGS[:2])}"
        )
        raise ConfigurationError(
            f"{field} must be a session store or the path of its file; {advice}, not {given!r:.100}"
        )
    if not is_implementing(given, SessionStore):
        raise ConfigurationError(
            f"{field} must be a session store such as glidepath.sessions.SqliteStore(path), or the path of its file; "
            f"not {short_repr(given, 100)}"
        )
    return given
