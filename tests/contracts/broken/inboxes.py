"""Stores that keep notes for a run wrongly, each in one way."""

import asyncio

from tests.contracts.examine import breaks

from glidepath.conformance import InboxContract
from glidepath.sessions import MemoryStore
from glidepath.values import replace


class Trial(InboxContract, MemoryStore):
    """The contract and the store in one."""

    def __init__(self):
        MemoryStore.__init__(self)

    def make_store(self, *, lease=10.0):
        return type(self)()


@breaks("INBOX-1")
class ReadsOnce(Trial):
    """Whoever reads the notes takes them away."""

    async def notes(self, session_id, after=0):
        found = await super().notes(session_id, after)
        self._shelves[session_id].notes.clear()
        return found


@breaks("INBOX-2")
class WritesAgain(Trial):
    """A note that is posted again is written again."""

    async def post(self, session_id, note):
        again = sum(one.id.split("#")[0] == note.id for one in await self.notes(session_id))
        return await super().post(session_id, replace(note, id=f"{note.id}#{again}") if again else note)


@breaks("INBOX-3")
class MakesSessions(Trial):
    """Makes a session for a note to one that is not there."""

    async def post(self, session_id, note):
        if session_id not in self._shelves:
            await self.release(await self.claim(session_id, "me"))
        return await super().post(session_id, note)


@breaks("INBOX-4")
class RingsNoBell(Trial):
    """An owner never hears that there is mail."""

    async def beat(self, leases, *, renew):
        return [sign for sign in await super().beat(leases, renew=renew) if sign.stop is not None or sign.lost]


@breaks("INBOX-5")
class KeepsTheMail(Trial):
    """A session that is made again finds the notes of the one before."""

    def __init__(self):
        super().__init__()
        self.left = {}

    async def remove(self, session_id):
        self.left[session_id] = list(await self.notes(session_id))
        await super().remove(session_id)

    async def claim(self, session_id, owner, *, create=True):
        lease = await super().claim(session_id, owner, create=create)
        for note in self.left.pop(session_id, ()):
            await self.post(session_id, note)
        return lease


@breaks("INBOX-6", "INBOX-2")
class GivesNumbersTwice(Trial):
    """Two who post at the same time get the same number."""

    async def post(self, session_id, note):
        number = len(await self.notes(session_id)) + 1
        await asyncio.sleep(0)
        await super().post(session_id, note)
        return number
