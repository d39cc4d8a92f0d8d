"""Stores that read a part of a journal wrongly, each in one way."""

from tests.contracts.examine import breaks

from glidepath.conformance import ExcerptsContract
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore


class Trial(ExcerptsContract, MemoryStore):
    """The contract and the store in one."""

    def __init__(self):
        MemoryStore.__init__(self)

    def make_store(self, *, lease=10.0):
        return type(self)()


@breaks("EXCERPT-1")
class BeginsLate(Trial):
    """Leaves out the commit it was asked to begin with."""

    async def load(self, session_id, *, since=0):
        return await super().load(session_id, since=since + 1 if since else 0)


@breaks("EXCERPT-2")
class GivesTheLast(Trial):
    """Gives the last commit where there is nothing to give."""

    async def load(self, session_id, *, since=0):
        entry, _ = await super().load(session_id)
        return await super().load(session_id, since=min(since, entry.head))


@breaks("EXCERPT-3")
class PicksAll(Trial):
    """Gives everything between the first and the last that was asked for."""

    async def pick(self, session_id, numbers):
        return await super().pick(session_id, range(min(numbers, default=0), max(numbers, default=0) + 1))


@breaks("EXCERPT-4")
class GivesNothing(Trial):
    """Has an answer for what is not there."""

    async def load(self, session_id, *, since=0):
        try:
            return await super().load(session_id, since=since)
        except StoreError:
            return None, ()
