"""The contract of an `Inbox`, which a session store may have."""

from __future__ import annotations

import asyncio
from typing import Protocol

from glidepath.sessions import this_owner
from glidepath.spi import Inbox, Note, SessionStore, is_implementing
from glidepath.testing.conformance.contract import StoreContract, assert_refused


class StoreWithInbox(SessionStore, Inbox, Protocol):
    """A session store with an inbox."""


class InboxContract(StoreContract[StoreWithInbox]):
    """Subclass this and provide `make_store`: an empty store with an inbox. `again(store)` is another on its data."""

    async def test_inbox_1_notes_come_back_in_order(self) -> None:
        """INBOX-1: notes are numbered from 1, come back as they were posted, and can be read again and again."""
        assert is_implementing(self.here, Inbox)
        await _make_session(self.here, "s")
        bodies = [b"{}", b"\x00\xff", "\u2028\U0001f6eb".encode()]
        numbers = [await self.there.post("s", _note(f"n{place}", body)) for place, body in enumerate(bodies)]
        assert numbers == [1, 2, 3]
        for _ in range(2):
            found = await self.here.notes("s")
            assert [(note.number, note.id, note.kind, note.body) for note in found] == [
                (place + 1, f"n{place}", "message", body) for place, body in enumerate(bodies)
            ]
        assert [note.number for note in await self.here.notes("s", 2)] == [3]
        assert list(await self.here.notes("s", 3)) == []

    async def test_inbox_2_the_same_id_is_the_same_note(self) -> None:
        """INBOX-2: a note that is posted again is not written again, and post returns its number."""
        await _make_session(self.here, "s")
        assert [await self.here.post("s", _note("a")), await self.here.post("s", _note("b"))] == [1, 2]
        assert await self.there.post("s", _note("a")) == 1
        again = await asyncio.gather(*[self.there.post("s", _note("c")) for _ in range(8)])
        assert again == [3] * 8
        assert [note.id for note in await self.here.notes("s")] == ["a", "b", "c"]

    async def test_inbox_3_what_is_missing_is_said(self) -> None:
        """INBOX-3: post and notes raise kind missing for a missing session, and create none."""
        await _make_session(self.here, "other")
        await assert_refused("missing", self.here.post("s", _note("a")))
        await assert_refused("missing", self.here.notes("s"))
        assert [entry.session_id for entry in await self.here.entries()] == ["other"]

    async def test_inbox_4_an_owner_hears_of_its_mail(self) -> None:
        """INBOX-4: a claim and every beat report the number of the last note; without notes a beat is silent."""
        lease = await self.here.claim("s", this_owner())
        assert lease.mail == 0
        assert list(await self.here.beat([lease], renew=False)) == []
        await self.there.post("s", _note("a"))
        await self.there.post("s", _note("b"))
        for renew in (False, True):
            (sign,) = await self.here.beat([lease], renew=renew)
            assert (sign.mail, sign.lost, sign.stop) == (2, False, None)
        await self.here.release(lease)
        lease = await self.here.claim("s", this_owner())
        assert lease.mail == 2

    async def test_inbox_5_notes_go_with_their_session(self) -> None:
        """INBOX-5: a session that is removed and created again has an empty inbox."""
        await _make_session(self.here, "s")
        await self.here.post("s", _note("a"))
        await self.here.remove("s")
        await _make_session(self.here, "s")
        assert list(await self.here.notes("s")) == []
        assert await self.here.post("s", _note("a")) == 1

    async def test_inbox_6_many_at_once_leave_no_gap(self) -> None:
        """INBOX-6: of fifty notes posted at the same time each has its own number, without a gap."""
        await _make_session(self.here, "s")
        posts = [(self.here, self.there)[place % 2].post("s", _note(f"n{place}")) for place in range(50)]
        numbers = await asyncio.gather(*posts)
        assert sorted(numbers) == list(range(1, 51))
        found = await self.here.notes("s")
        assert [note.number for note in found] == list(range(1, 51))
        assert [note.id for note in found] == [f"n{numbers.index(place)}" for place in range(1, 51)]


def _note(id_: str, body: bytes = b"{}") -> Note:
    return Note(id=id_, kind="message", body=body)


async def _make_session(store: StoreWithInbox, name: str) -> None:
    await store.release(await store.claim(name, this_owner()))
