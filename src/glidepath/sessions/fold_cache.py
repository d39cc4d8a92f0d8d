"""What a process remembers of the long sessions it has read: the next prompt reads only the commits that are new.

A state is remembered with the number and the hash of the commit it ends with, so that it is what everybody else finds
in the store up to there: what follows must continue its chain, or all of it is read again. Stores remember by
themselves and forget when they are gone; a few sessions, and not the short ones, which are read quickly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from glidepath._wire import Record
from glidepath.sessions.chain import read, verify_commits
from glidepath.sessions.child_sessions import refuse_unfinished
from glidepath.sessions.fold import Folded
from glidepath.spi import Commit, Entry
from glidepath.values import StoreError

_LEAST = 100  # commits: what is shorter is not remembered
_MOST_SESSIONS = 64
_MOST_BYTES = 32_000_000  # of journal, in all the sessions that one store remembers


class _Known(Record):
    """The state after commit `head`, and how many bytes of journal it was made of."""

    folded: Folded
    head: int
    hash: bytes
    weight: int


_REMEMBERED: WeakKeyDictionary[object, OrderedDict[str, _Known]] = WeakKeyDictionary()


def remember(store: object, entry: Entry, folded: Folded, weight: int) -> Folded:
    """Keep this state, which is that of the whole journal; answers with one that its owner may change."""
    if entry.head < _LEAST or not hasattr(store, "pick"):
        return folded
    return _remember(store, _Known(folded, entry.head, entry.hash, weight))


def _remember(store: object, known: _Known) -> Folded:
    try:
        shelf = _REMEMBERED.setdefault(store, OrderedDict())
    except TypeError:  # a store that cannot be told from others, or not be referred to
        return known.folded
    given = known.folded.copy()  # first: from here on another thread may find it
    if known.weight <= _MOST_BYTES:
        shelf[given.session.id] = known
        while len(shelf) > _MOST_SESSIONS or sum([one.weight for one in list(shelf.values())]) > _MOST_BYTES:
            shelf.popitem(last=False)
    return given


async def recall_state(store: Any, session_id: str) -> Folded | None:
    """The state of a session that is remembered, with what was written since; None when it is not, or is another."""
    known = _take_known(store, session_id)
    if known is None:
        return None
    entry, commits = await store.load(session_id, since=known.head + 1)
    refuse_unfinished(entry)
    if entry.head < known.head or not _take_new_commits(known, commits, entry):
        return None
    folded = _remember(store, known)
    folded.flag = entry.flag
    return folded


def _take_known(store: object, session_id: str) -> _Known | None:
    """What is remembered; taking it removes it."""
    with suppress(TypeError):
        shelf = _REMEMBERED.get(store)
        return None if shelf is None else shelf.pop(session_id, None)
    return None


def _take_new_commits(known: _Known, commits: Iterable[Commit], entry: Entry) -> bool:
    """Take the commits that are new; False when they do not continue what is known."""
    try:
        new = tuple(verify_commits(commits, head=entry.head, hash_=entry.hash, after=(known.head, known.hash)))
        for commit in new:
            known.folded.take(read(commit), commit)
            known.weight += len(commit.body)
    except StoreError:
        return False  # the whole journal says what is wrong
    known.head, known.hash = entry.head, entry.hash
    return True
