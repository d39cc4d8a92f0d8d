"""Converts rows of an SQLite store, whatever is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glidepath.sessions.cards import summary_in
from glidepath.spi.sessions import Entry


def blob(value: object) -> bytes:
    """The bytes in a row; anything else was not written by us, and will not fit the chain."""
    return value if type(value) is bytes else str(value).encode()


def entry_in(row: Sequence[Any]) -> Entry:
    """The entry of a row of `sessions`."""
    return Entry(
        session_id=row[0],
        head=row[1],
        hash=blob(row[2]),
        token=row[3],
        owner=row[4],
        expires=row[5],
        updated=row[6],
        flag=row[7],
        summary=summary_in(row[8]),
    )
