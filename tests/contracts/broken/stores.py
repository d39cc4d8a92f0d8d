"""Stores that break one clause each: the one in memory, with a defect."""

import asyncio

from tests.contracts.examine import breaks

from glidepath.conformance import SessionStoreContract
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore
from glidepath.spi import Commit
from glidepath.testing import VirtualClock
from glidepath.values import replace


def now():
    return asyncio.get_running_loop().time()


class Trial(SessionStoreContract, MemoryStore):
    """The contract and the store in one, in virtual time."""

    def __init__(self, *, lease=10.0):
        MemoryStore.__init__(self, lease=lease, clock=now)

    def make_store(self, *, lease=10.0):
        return type(self)(lease=lease)

    def run(self, main):
        return VirtualClock().run(main)


@breaks("STORE-1", "STORE-16", "STORE-18")
class Backwards(Trial):
    """Gives commits back in another order."""

    async def load(self, session_id):
        entry, commits = await super().load(session_id)
        return (entry, commits[::-1]) if len(commits) > 4 else (entry, commits)


@breaks("STORE-2", "STORE-19")
class TakesAnyNumber(Trial):
    """Does not look whether a commit follows the head."""

    def append(self, lease, commit, **options):
        try:
            super().append(lease, commit, **options)
        except StoreError as error:
            if error.kind != "conflict":
                raise


@breaks("STORE-3")
class ForgetsSummaries(Trial):
    """Drops the summary with the next commit."""

    def append(self, lease, commit, *, summary=None, **options):
        super().append(lease, commit, summary=summary or {}, **options)


@breaks("STORE-4")
class TextOnly(Trial):
    """Keeps bytes as text."""

    def append(self, lease, commit, **options):
        body = commit.body.decode("utf-8", "replace").encode()
        super().append(lease, Commit(commit.number, body, commit.hash), **options)


@breaks("STORE-5", "STORE-6", "STORE-17")
class Open(Trial):
    """Lets anybody claim what another one holds."""

    async def claim(self, session_id, owner, *, create=True):
        shelf = self._shelves.get(session_id)
        if shelf is not None and shelf.entry.owner is not None:
            shelf.entry = replace(shelf.entry, owner=None, expires=0.0)
        return await super().claim(session_id, owner, create=create)


@breaks("STORE-6")
class ShortBreath(Trial):
    """A beat does not renew the lease."""

    async def beat(self, leases, *, renew):
        return await super().beat(leases, renew=False)


@breaks("STORE-7", "STORE-15")
class Unfenced(Trial):
    """Takes writes of an owner that was replaced."""

    def append(self, lease, commit, **options):
        current = self._shelves[lease.session_id].entry.token
        super().append(replace(lease, token=current), commit, **options)


@breaks("STORE-8")
class SaysNothingIsLost(Trial):
    """Does not report a lease that another one took."""

    async def beat(self, leases, *, renew):
        return [sign for sign in await super().beat(leases, renew=renew) if not sign.lost]


@breaks("STORE-9")
class WaitsForTheDead(Trial):
    """Waits for the lease of a process that does not exist."""

    async def claim(self, session_id, owner, *, create=True):
        return await super().claim(session_id, f"elsewhere{owner}", create=create)


@breaks("STORE-10", "STORE-11")
class KeepsFlags(Trial):
    """A flag cannot be taken back."""

    async def flag(self, session_id, reason):
        if reason is None:
            self._require_shelf(session_id)
            return
        await super().flag(session_id, reason)


@breaks("STORE-11")
class ForgetsTheStop(Trial):
    """A new owner does not hear of the stop that was given before it came."""

    async def claim(self, session_id, owner, *, create=True):
        lease = await super().claim(session_id, owner, create=create)
        await self.flag(session_id, None)
        return lease


@breaks("STORE-12")
class MakesWhatIsMissing(Trial):
    """Creates a session that is only asked for."""

    async def load(self, session_id):
        if session_id not in self._shelves:
            await self.release(await self.claim(session_id, "me"))
        return await super().load(session_id)


@breaks("STORE-13")
class ListsByName(Trial):
    """Lists sessions in the order of their names."""

    async def entries(self, prefix=""):
        return sorted(await super().entries(prefix), key=lambda entry: entry.session_id)


@breaks("STORE-14")
class RemovesAnything(Trial):
    """Removes what somebody holds."""

    async def remove(self, session_id):
        self._require_shelf(session_id)
        del self._shelves[session_id]


@breaks("STORE-15")
class CutsNothing(Trial):
    """Leaves the tail where it is."""

    async def cut(self, lease, head, hash_):
        await self.release(lease)


@breaks("STORE-16")
class SmallShelf(Trial):
    """Forgets the oldest of more than fifty sessions."""

    async def claim(self, session_id, owner, *, create=True):
        lease = await super().claim(session_id, owner, create=create)
        while len(self._shelves) > 50:
            self._shelves.pop(next(iter(self._shelves)))
        return lease

    def append(self, lease, commit, **options):
        if lease.session_id in self._shelves:
            super().append(lease, commit, **options)


@breaks("STORE-17")
class Racy(Trial):
    """Looks first and claims a moment later."""

    async def claim(self, session_id, owner, *, create=True):
        held = session_id in self._shelves and self._shelves[session_id].entry.owner is not None
        await asyncio.sleep(0)
        if not held and session_id in self._shelves:
            self._shelves[session_id].entry = replace(self._shelves[session_id].entry, owner=None, expires=0.0)
        return await super().claim(session_id, owner, create=create)


@breaks("STORE-18")
class DropsTheLast(Trial):
    """Does not write the last of what must survive a power loss."""

    def append(self, lease, commit, *, durability="sync", **options):
        if durability != "full" or commit.number < 20:
            super().append(lease, commit, durability=durability, **options)


@breaks("STORE-19")
class FailsTogether(Trial):
    """Refuses everything that came with a commit that is refused."""

    bad = False

    def append(self, lease, commit, **options):
        entry = self._shelves[lease.session_id].entry
        self.bad |= entry.token == lease.token and commit.number > 3 + entry.head
        if self.bad:
            asyncio.get_running_loop().call_later(0.01, setattr, self, "bad", False)
            raise StoreError("one of them is wrong", kind="conflict")
        super().append(lease, commit, **options)


@breaks("STORE-20")
class TakesAnyDurability(Trial):
    """Does not look at the durability."""

    def append(self, lease, commit, *, durability="sync", **options):
        super().append(lease, commit, **options)
