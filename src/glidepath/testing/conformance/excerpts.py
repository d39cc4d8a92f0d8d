"""The contract of `Excerpts`: a session store that reads a part of a journal, clause by clause."""

from __future__ import annotations

from typing import Protocol

from glidepath.sessions import this_owner
from glidepath.spi import Commit, Excerpts, SessionStore
from glidepath.testing.conformance.contract import StoreContract, assert_refused
from glidepath.testing.conformance.store_contract import write


class StoreWithExcerpts(Excerpts, SessionStore, Protocol):
    """A session store that can read a part of a journal."""


class ExcerptsContract(StoreContract[StoreWithExcerpts]):
    """Subclass this and provide `make_store`: an empty store that is a `SessionStore` and has `Excerpts`."""

    async def test_excerpt_1_a_journal_is_loaded_from_a_commit_on(self) -> None:
        """EXCERPT-1: load(since=n) gives the commits from n on, byte for byte, with the same entry."""
        commits = await _fill_store(self.here)
        whole, _ = await self.here.load("s")
        for since in (0, 1, 2, 5):
            entry, found = await self.here.load("s", since=since)
            assert list(found) == commits[max(0, since - 1) :]
            assert (entry.head, entry.hash, entry.summary) == (whole.head, whole.hash, whole.summary)

    async def test_excerpt_2_beyond_the_end_there_is_only_the_entry(self) -> None:
        """EXCERPT-2: load(since=n) for an n beyond the last commit gives the entry and no commit."""
        commits = await _fill_store(self.here)
        for since in (6, 1000, 1 << 62):
            entry, found = await self.here.load("s", since=since)
            assert (list(found), entry.head, entry.summary) == ([], len(commits), {"state": "completed"})

    async def test_excerpt_3_single_commits_are_picked(self) -> None:
        """EXCERPT-3: pick gives the commits with these numbers, in order, and leaves out missing ones."""
        commits = await _fill_store(self.here)
        assert list(await self.here.pick("s", [1, 3, 5])) == [commits[0], commits[2], commits[4]]
        assert list(await self.here.pick("s", [2, 9])) == [commits[1]]
        assert list(await self.here.pick("s", [])) == []

    async def test_excerpt_4_a_part_of_nothing_is_missing(self) -> None:
        """EXCERPT-4: load(since=n) of a missing session raises kind missing."""
        await _fill_store(self.here)
        await assert_refused("missing", self.here.load("nobody", since=3))


async def _fill_store(store: StoreWithExcerpts) -> list[Commit]:
    """Two sessions, so that a part of one is not a part of the other."""
    made: list[Commit] = []
    for name in ("other", "s"):
        lease = await store.claim(name, this_owner())
        made = await write(store, lease, 5, summary={"state": "completed"})
        await store.release(lease)
    return made
