"""The contract of `Excerpts`: a session store that reads a part of a journal, clause by clause."""

from __future__ import annotations

from typing import Protocol

import pytest

from glidepath.conformance.contract import StoreContract
from glidepath.conformance.store_contract import append
from glidepath.errors import StoreError
from glidepath.sessions.chain import link
from glidepath.sessions.owner import this_owner
from glidepath.spi.session_catalog import Excerpts
from glidepath.spi.sessions import Commit, SessionStore


class StoreWithExcerpts(Excerpts, SessionStore, Protocol):
    """A session store that can read a part of a journal."""


class ExcerptsContract(StoreContract[StoreWithExcerpts]):
    """Subclass this and provide `make_store`: an empty store that is a `SessionStore` and has `Excerpts`."""

    async def test_excerpt_1_a_journal_is_loaded_from_a_commit_on(self) -> None:
        """EXCERPT-1: load(since=n) gives the commits from n on, byte for byte, with the same entry."""
        async with self._stores() as (store, _other):
            commits = await _filled(store)
            whole, _ = await store.load("s")
            for since in (0, 1, 2, 5):
                entry, found = await store.load("s", since=since)
                assert list(found) == commits[max(0, since - 1) :]
                assert (entry.head, entry.hash, entry.summary) == (whole.head, whole.hash, whole.summary)

    async def test_excerpt_2_beyond_the_end_there_is_only_the_entry(self) -> None:
        """EXCERPT-2: load(since=n) for an n beyond the last commit gives the entry and no commit."""
        async with self._stores() as (store, _other):
            commits = await _filled(store)
            for since in (6, 1000, 1 << 62):
                entry, found = await store.load("s", since=since)
                assert (list(found), entry.head, entry.summary) == ([], len(commits), {"state": "completed"})

    async def test_excerpt_3_single_commits_are_picked(self) -> None:
        """EXCERPT-3: pick gives the commits with these numbers, in order, and leaves out missing ones."""
        async with self._stores() as (store, _other):
            commits = await _filled(store)
            assert list(await store.pick("s", [1, 3, 5])) == [commits[0], commits[2], commits[4]]
            assert list(await store.pick("s", [2, 9])) == [commits[1]]
            assert list(await store.pick("s", [])) == []

    async def test_excerpt_4_a_part_of_nothing_is_missing(self) -> None:
        """EXCERPT-4: load(since=n) of a missing session raises kind missing."""
        async with self._stores() as (store, _other):
            await _filled(store)
            with pytest.raises(StoreError) as caught:
                await store.load("nobody", since=3)
            assert caught.value.kind == "missing"


async def _filled(store: StoreWithExcerpts) -> list[Commit]:
    """Two sessions, so that a part of one is not a part of the other."""
    made: list[Commit] = []
    for name in ("other", "s"):
        lease = await store.claim(name, this_owner())
        made, before = [], b""
        for number in range(1, 6):
            commit = link(before, number, number, 1.5, [("note", {"of": name, "number": number})])
            await append(store, lease, commit, summary={"state": "completed"})
            made.append(commit)
            before = commit.hash
        await store.release(lease)
    return made
