"""Finds the session a person means: by its id, the start of it, its name, or as the last one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from argparse import Namespace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.display_text import escape_invisible
from glidepath.values import ConfigurationError, StoreError

if TYPE_CHECKING:
    from glidepath.spi import Entry, SessionStore

_START = "session_"
_SHORT, _FEW = 8, 5


def shorten_id(session: str) -> str:
    """An id as short as a person can type it; `find_session` finds it again."""
    from glidepath.sessions.summaries import COPY

    inner = session.removeprefix(_START)
    if not session.startswith(_START) or len(inner) <= _SHORT:
        return session
    copy = inner.find(COPY)
    return inner[:_SHORT] + (inner[copy:] if copy >= _SHORT else "")


async def find_session(store: SessionStore, wanted: str) -> str:
    """The id of the session with this id, the only one with this prefix, or the only one of this name.

    Raises `ConfigurationError` when there is none, or several.
    """
    from glidepath.sessions import each_session, is_keepable

    if wanted.startswith(("team:", "eval:")) or not wanted:
        return wanted
    found: list[Entry] = []
    possible = is_keepable(wanted)  # else no session can have it as its id or in its name
    for prefix in (wanted, _START + wanted) if possible else ():
        async for entry in each_session(store, prefix=prefix, roots=False):
            if entry.session_id == wanted:
                return wanted
            if "/" not in entry.session_id[len(prefix) :]:  # children are named after their parents
                found.append(entry)
        if found:
            break
    if not found and possible:
        found = await _find_forks(store, wanted)
    found = _drop_forks(found)
    by_name = not found
    if by_name and possible:
        found = await _find_by_name(store, wanted)
    if len(found) == 1:
        return found[0].session_id
    if not found:
        raise ConfigurationError(
            f"there is no session {wanted!r:.80}: `glidepath sessions list` shows the ids; the start of one is enough"
        )
    few = ", ".join(map(_describe_entry, found[:_FEW])) + (", ..." if len(found) > _FEW else "")
    if by_name:
        raise ConfigurationError(f"{len(found)} sessions are called {wanted!r:.80}: {few}; give the id of one")
    raise ConfigurationError(f"{wanted!r:.80} matches {len(found)} sessions: {few}; give more of the id")


async def _find_forks(store: SessionStore, wanted: str) -> list[Entry]:
    """The forks whose short id begins like this."""
    from glidepath.sessions import each_session
    from glidepath.sessions.summaries import COPY

    head, sign, rest = wanted.partition(COPY[:-1])
    if not (head and sign):
        return []
    tail = sign + rest
    of_head = each_session(store, prefix=_START + head, roots=False)
    return [
        entry
        async for entry in of_head
        if (found := entry.session_id.find(COPY)) > 0
        and "/" not in entry.session_id
        and entry.session_id[found:].startswith(tail)
    ]


def _drop_forks(found: list[Entry]) -> list[Entry]:
    """Only the session itself where all others are forks of it: their ids begin with its id."""
    from glidepath.sessions.summaries import COPY

    first = min(found, key=lambda entry: len(entry.session_id), default=None)
    if first is None:
        return []
    forks = [entry for entry in found if entry.session_id.startswith(first.session_id + COPY)]
    return [first] if len(forks) == len(found) - 1 else found


def _describe_entry(entry: Entry) -> str:
    from glidepath.apps.cli.chat_cards import card_of

    when = datetime.fromtimestamp(entry.updated).astimezone().strftime("%Y-%m-%d %H:%M")
    folder = card_of(entry.session_id).folder
    return f"{escape_invisible(entry.session_id)} ({when}{', ' if folder else ''}{escape_invisible(folder)})"


async def _find_by_name(store: SessionStore, name: str) -> list[Entry]:
    """The sessions that have this name."""
    from glidepath.sessions import each_session

    line = " ".join(name.split())  # as it is kept
    return [entry async for entry in each_session(store, text=line) if entry.title == line]


async def find_last_session(store: SessionStore) -> str:
    """The session that was active last; raises `ConfigurationError` when there is none."""
    from glidepath.sessions import find_sessions

    page = await find_sessions(store, limit=1)
    if not page.sessions:
        raise ConfigurationError("there is no session yet: leave out --last")
    return page.sessions[0].session_id


async def choose_session(options: Namespace, store: SessionStore | None, folder: Path) -> str | None:
    """The session to continue; None for a new one."""
    if not (options.go_on or options.last or options.resume):
        return None
    if store is None:
        raise ConfigurationError("sessions are not being saved: leave --store none out to continue one")
    if options.go_on:
        return find_last_session_here(folder)
    if options.last:
        return await find_last_session(store)
    return await find_session(store, options.resume)


async def label_session(store: SessionStore, session: str, name: str | None, world: CliContext) -> None:
    """Remember the session for `--continue`, and give it its name."""
    from glidepath.sessions import annotate

    remember_here(world.folder, session)
    if name:
        try:
            await annotate(store, session, title=name)
            if any(entry.session_id != session for entry in await _find_by_name(store, name)):
                told = f"another session is also called {name!r:.80}, so use the id of this one"
                world.note(f"--name: {told}: {escape_invisible(shorten_id(session))}")
        except (ConfigurationError, StoreError) as error:
            world.note(f"--name: {error}")


# --- the last one in a folder ---------------------------------------------------------------------------------------


def data_folder() -> Path | None:
    """The user's data folder of glidepath; None when it is unknown."""
    from glidepath.sessions import default_file

    with contextlib.suppress(ConfigurationError, OSError):
        return default_file().parent
    return None


def decode_place(kind: str, name: bytes) -> Path | None:
    """Where a small file about this is kept in the user's data folder; None when the folder is unknown."""
    above = data_folder()
    return None if above is None else above / kind / hashlib.sha256(name).hexdigest()[:32]


def keep_file(place: Path | None, data: bytes) -> None:
    """Write a small file that only the user can read, if that is possible."""
    if place is None:
        return
    with contextlib.suppress(OSError):
        place.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # a parent that mkdir adds is open to all
        place.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


def remember_here(folder: Path, session: str) -> None:
    """Make this the session that `--continue` continues in this folder."""
    keep_file(_place(folder), f"{session}\n".encode())


def find_last_session_here(folder: Path) -> str:
    """The session that was last active in this folder; raises `ConfigurationError` when there is none."""
    place = _place(folder)
    with contextlib.suppress(OSError, ValueError):
        found = "" if place is None else place.read_text("utf-8").strip()
        if found:
            return found
    raise ConfigurationError(
        "no session of this folder is kept yet: runs in a pipe or a script are kept only with --store PATH or `--store "
        "default`. --last continues the last one anywhere"
    )


def _place(folder: Path) -> Path | None:
    return decode_place("last", os.fsencode(folder.resolve()))
