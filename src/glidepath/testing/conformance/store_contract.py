"""The contract of a `SessionStore`, clause by clause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from glidepath.sessions import link, this_owner, verify_commits
from glidepath.spi import Commit, Lease, SessionStore
from glidepath.testing.conformance.contract import StoreContract, assert_refused, with_lease
from glidepath.values import ConfigurationError, StoreError


class SessionStoreContract(StoreContract[SessionStore]):
    """Subclass this and provide `make_store`: an empty store, with the lease time it is asked for.

    `again(store)` returns another store object on the same data, like the one of a second process.
    """

    # --- commits ----------------------------------------------------------------------------------------------

    async def test_store_1_what_is_appended_is_loaded(self) -> None:
        """STORE-1: commits come back as they were written, in order, and the entry has the last one's head."""
        lease = await self.here.claim("s", this_owner())
        assert (lease.head, lease.hash) == (0, b"")
        commits = await write(self.here, lease, 5)
        await self.here.release(lease)
        entry, found = await self.there.load("s")
        assert list(found) == commits
        assert (entry.head, entry.hash) == (5, commits[-1].hash)
        assert len(list(verify_commits(found, head=entry.head, hash_=entry.hash))) == len(commits)

    async def test_store_2_a_commit_must_follow_the_head(self) -> None:
        """STORE-2: a commit that is not the next one is refused with kind conflict, and changes nothing."""
        lease = await self.here.claim("s", this_owner())
        (first,) = await write(self.here, lease, 1)
        for number in (1, 3, 99):
            await assert_refused("conflict", append(self.here, lease, Commit(number, b"[]", b"x" * 16)))
        _, found = await self.here.load("s")
        assert list(found) == [first]

    async def test_store_3_a_summary_is_kept_until_the_next(self) -> None:
        """STORE-3: the entry has the summary of the last commit that brought one."""
        lease = await self.here.claim("s", this_owner())
        await append(self.here, lease, Commit(1, b"[]", b"a" * 16), summary={"state": "running", "turns": 1})
        await append(self.here, lease, Commit(2, b"[]", b"b" * 16))
        assert (await self.here.load("s"))[0].summary == {"state": "running", "turns": 1}
        await append(self.here, lease, Commit(3, b"[]", b"c" * 16), summary={"state": "completed"})
        await self.here.release(lease)
        assert (await self.there.load("s"))[0].summary == {"state": "completed"}

    async def test_store_4_bytes_are_bytes(self) -> None:
        """STORE-4: a body of any size and content comes back byte for byte."""
        bodies = [b"", b"\x00\xff\xfe", bytes(range(256)) * 5000, "\u2028\U0001f6eb".encode()]
        lease = await self.here.claim("s \u00e9'\"%", this_owner())
        for number, body in enumerate(bodies, 1):
            await append(self.here, lease, Commit(number, body, bytes([number]) * 16))
        await self.here.release(lease)
        _, found = await self.there.load("s \u00e9'\"%")
        assert len(found) == len(bodies)
        changed = [commit.number for commit, body in zip(found, bodies, strict=True) if commit.body != body]
        assert changed == []  # the bodies themselves are not compared here: a diff of megabytes takes hours

    # --- leases -----------------------------------------------------------------------------------------------

    async def test_store_5_one_owner_at_a_time(self) -> None:
        """STORE-5: a second claim is refused with kind busy while the owner lives, and granted after its release."""
        lease = await self.here.claim("s", this_owner())
        await assert_refused("busy", self.there.claim("s", this_owner()))
        await self.here.release(lease)
        second = await self.there.claim("s", this_owner())
        assert second.token > lease.token

    @with_lease(0.8)
    async def test_store_6_a_silent_owner_is_replaced(self) -> None:
        """STORE-6: a lease that ran out can be claimed by another; beats and commits renew it."""
        lease = await self.here.claim("s", this_owner())
        for renew in ("beat", "commit", None):  # each held over by the one before
            await asyncio.sleep(0.5)
            with pytest.raises(StoreError):
                await self.there.claim("s", this_owner())
            if renew == "beat":
                await self.here.beat([lease], renew=True)
            elif renew == "commit":
                await append(self.here, lease, Commit(1, b"[]", b"x" * 16))
        await asyncio.sleep(0.5)
        second = await self.there.claim("s", this_owner())
        assert second.token > lease.token
        assert second.head == 1

    @with_lease(0.1)
    async def test_store_7_an_owner_that_was_replaced_cannot_write(self) -> None:
        """STORE-7: a write with an old token is refused with kind fenced, even if nobody has written since."""
        stalled = await self.here.claim("s", this_owner())
        await append(self.here, stalled, Commit(1, b"[]", b"a" * 16))
        await asyncio.sleep(0.15)
        owner = await self.there.claim("s", this_owner())
        await assert_refused("fenced", append(self.here, stalled, Commit(2, b"[]", b"b" * 16)))
        await append(self.there, owner, Commit(2, b"[1]", b"c" * 16))
        await self.here.release(stalled)  # it has nothing to give back
        with pytest.raises(StoreError):
            await append(self.here, stalled, Commit(3, b"[]", b"d" * 16))
        _, found = await self.there.load("s")
        assert [commit.body for commit in found] == [b"[]", b"[1]"]

    @with_lease(0.1)
    async def test_store_8_a_beat_says_what_was_lost(self) -> None:
        """STORE-8: a beat reports a lease that another owner has taken, and says nothing about one that is held."""
        lost, kept = await self.here.claim("lost", this_owner()), await self.here.claim("kept", this_owner())
        await asyncio.sleep(0.15)
        await self.there.claim("lost", this_owner())
        signs = await self.here.beat([lost, kept], renew=True)
        assert [(sign.session_id, sign.lost) for sign in signs] == [("lost", True)]

    async def test_store_9_a_dead_owner_of_this_host_is_replaced_at_once(self) -> None:
        """STORE-9: the lease of a dead process on this host can be claimed at once."""
        host, _, _, nonce = this_owner().split("|")
        dead = await self.here.claim("s", f"{host}|{_DEAD}|1|{nonce}")
        second = await self.there.claim("s", this_owner())
        assert second.token > dead.token

    # --- stop requests ----------------------------------------------------------------------------------------

    async def test_store_10_a_flag_reaches_the_owner(self) -> None:
        """STORE-10: a stop requested from anywhere is reported by the owner's beats, until it is withdrawn."""
        lease = await self.here.claim("s", this_owner())
        assert list(await self.here.beat([lease], renew=False)) == []
        await self.there.flag("s", "enough")
        (sign,) = await self.here.beat([lease], renew=False)
        assert (sign.session_id, sign.stop, sign.lost) == ("s", "enough", False)
        await self.there.flag("s", None)
        assert list(await self.here.beat([lease], renew=True)) == []

    async def test_store_11_a_stop_holds_through_a_claim(self) -> None:
        """STORE-11: a stop requested while nothing ran is found by the next claim, until it is withdrawn."""
        lease = await self.here.claim("s", this_owner())
        await self.here.release(lease)
        await self.there.flag("s", "enough")
        lease = await self.here.claim("s", this_owner())
        assert [sign.stop for sign in await self.here.beat([lease], renew=False)] == ["enough"]
        assert (await self.there.load("s"))[0].flag == "enough"
        await self.here.flag("s", None)
        assert list(await self.here.beat([lease], renew=False)) == []

    # --- missing sessions -------------------------------------------------------------------------------------

    async def test_store_12_what_is_missing_is_said(self) -> None:
        """STORE-12: load, flag, remove and a claim that may not create raise kind missing, and create nothing."""
        lease = await self.here.claim("other", this_owner())
        await self.here.release(lease)
        await assert_refused("missing", self.here.load("s"))
        await assert_refused("missing", self.here.flag("s", "stop"))
        await assert_refused("missing", self.here.remove("s"))
        await assert_refused("missing", self.here.claim("s", this_owner(), create=False))
        assert [entry.session_id for entry in await self.here.entries()] == ["other"]

    # --- housekeeping -----------------------------------------------------------------------------------------

    async def test_store_13_entries_are_listed_last_written_first(self) -> None:
        """STORE-13: entries lists every session once, the last written first, and only those with the prefix."""
        for name in ("a/1", "b/1", "a/2"):
            lease = await self.here.claim(name, this_owner())
            await append(self.here, lease, Commit(1, b"[]", b"x" * 16))
            await self.here.release(lease)
            await asyncio.sleep(0.01)
        assert [entry.session_id for entry in await self.here.entries()] == ["a/2", "b/1", "a/1"]
        assert [entry.session_id for entry in await self.here.entries("a/")] == ["a/2", "a/1"]
        assert list(await self.here.entries("c")) == []

    async def test_store_14_only_what_nobody_holds_is_removed(self) -> None:
        """STORE-14: remove is refused with kind busy while the owner lives; after it, nothing is left."""
        lease = await self.here.claim("s", this_owner())
        await write(self.here, lease, 2)
        await assert_refused("busy", self.here.remove("s"))
        await self.here.release(lease)
        await self.here.remove("s")
        fresh = await self.here.claim("s", this_owner())
        assert (fresh.head, fresh.hash) == (0, b"")
        await self.here.release(fresh)
        assert list((await self.here.load("s"))[1]) == []

    async def test_store_15_a_cut_drops_the_tail(self) -> None:
        """STORE-15: after a cut the journal ends with the given head, the lease is dead, and writing continues."""
        lease = await self.here.claim("s", this_owner())
        commits = await write(self.here, lease, 4)
        await self.here.cut(lease, 2, commits[1].hash)
        with pytest.raises(StoreError):
            await append(self.here, lease, Commit(3, b"[]", b"z" * 16))
        second = await self.here.claim("s", this_owner())
        assert (second.head, second.hash) == (2, commits[1].hash)
        await append(self.here, second, Commit(3, b"[]", b"z" * 16))
        await self.here.release(second)
        _, found = await self.here.load("s")
        assert [commit.number for commit in found] == [1, 2, 3]

    # --- many at once -----------------------------------------------------------------------------------------

    async def test_store_16_many_sessions_at_once(self) -> None:
        """STORE-16: a hundred sessions written at the same time are each whole."""

        async def one(name: str) -> None:
            lease = await self.here.claim(name, this_owner())
            await write(self.here, lease, 5)
            await self.here.release(lease)

        await asyncio.gather(*[one(f"s{number}") for number in range(100)])
        for number in range(100):
            entry, found = await self.here.load(f"s{number}")
            assert len(list(verify_commits(found, head=entry.head, hash_=entry.hash))) == 5

    async def test_store_17_of_many_that_claim_at_once_one_gets_it(self) -> None:
        """STORE-17: of ten claims of one session at the same time exactly one succeeds; the others are busy."""
        claims = [self.there.claim("s", this_owner()) for _ in range(10)]
        found = await asyncio.gather(*claims, return_exceptions=True)
        won = [lease for lease in found if isinstance(lease, Lease)]
        assert len(won) == 1
        assert {getattr(error, "kind", error) for error in found if not isinstance(error, Lease)} == {"busy"}
        await self.here.release(won[0])

    @pytest.mark.parametrize("durability", ["sync", "full"])
    async def test_store_18_every_durability_writes_everything(self, durability: str) -> None:
        """STORE-18: with either durability, everything is there after the release, in order."""
        lease = await self.here.claim("s", this_owner())
        commits = await write(self.here, lease, 20, durability=durability)
        await self.here.release(lease)
        entry, found = await self.there.load("s")
        assert list(found) == commits
        assert entry.owner is None

    @pytest.mark.parametrize("durability", ["sync", "full"])
    async def test_store_19_each_commit_of_a_group_fails_alone(self, durability: str) -> None:
        """STORE-19: of commits that are written at the same time, one that is refused fails, and no other."""
        leases = [await self.here.claim(f"s{number}", this_owner()) for number in range(5)]

        async def one(place: int) -> None:
            number = 7 if place == 2 else 1
            await append(self.here, leases[place], Commit(number, b"[]", b"x" * 16), durability=durability)

        found = await asyncio.gather(*[one(place) for place in range(5)], return_exceptions=True)
        assert [getattr(error, "kind", error) for error in found] == [None, None, "conflict", None, None]
        for lease in leases:
            await self.here.release(lease)
        heads = [(await self.there.load(f"s{number}"))[0].head for number in range(5)]
        assert heads == [1, 1, 0, 1, 1]

    @pytest.mark.parametrize("durability", ["async", "exit"])
    async def test_store_20_there_are_two_durabilities(self, durability: str) -> None:
        """STORE-20: any durability but sync and full is a ConfigurationError that names them; nothing is written."""
        lease = await self.here.claim("s", this_owner())
        with pytest.raises(ConfigurationError, match=r"'sync'.*'full'"):
            await append(self.here, lease, Commit(1, b"[]", b"x" * 16), durability=durability)
        assert (await self.here.load("s"))[0].head == 0


_DEAD = 2**22 + 1  # a process id that no Linux or macOS gives out


async def append(store: SessionStore, lease: Lease, commit: Commit, **options: Any) -> None:
    """Append a commit and wait until the store has taken it."""
    later: Awaitable[None] | None = store.append(lease, commit, **options)
    if later is not None:
        await later


async def write(store: SessionStore, lease: Lease, count: int, **options: object) -> list[Commit]:
    """A chain of this many commits after the lease's head."""
    commits, before = [], lease.hash
    for number in range(lease.head + 1, lease.head + 1 + count):
        commit = link(before, number, number, 1.5, [("note", {"of": lease.session_id, "number": number})])
        await append(store, lease, commit, **options)
        commits.append(commit)
        before = commit.hash
    return commits
