"""Catalogs that break one clause each: the one in memory, with a defect."""

from tests.contracts.broken.stores import now
from tests.contracts.examine import breaks

from glidepath.conformance import CatalogContract
from glidepath.errors import ConfigurationError, StoreError
from glidepath.sessions import MemoryStore
from glidepath.spi import SessionPage
from glidepath.testing import VirtualClock
from glidepath.values import replace


class Trial(CatalogContract, MemoryStore):
    """The contract and the store in one, in virtual time."""

    def __init__(self, *, lease=10.0):
        MemoryStore.__init__(self, lease=lease, clock=now)

    def make_store(self, *, lease=10.0):
        return type(self)(lease=lease)

    def run(self, main):
        return VirtualClock().run(main)


@breaks("CATALOG-1")
class RepeatsTheLast(Trial):
    """Begins a page with the last session of the one before."""

    async def find(self, query):
        page = await super().find(query)
        if query.cursor is None or not page.sessions:
            return page
        return SessionPage((page.sessions[0], *page.sessions[:-1]), page.cursor)


@breaks("CATALOG-2")
class RemembersTheFirstSummary(Trial):
    """Finds a session by its first summary, and by no later one."""

    async def find(self, query):
        if query.outcome == "unfinished":
            return await super().find(replace(query, outcome=None, agent="scout"))
        return await super().find(query)


@breaks("CATALOG-3")
class MindsTheCase(Trial):
    """Finds text only in the case in which it was written."""

    async def find(self, query):
        page = await super().find(query)
        if not query.text:
            return page
        kept = [one for one in page.sessions if query.text in f"{one.title} {one.session_id} {one.summary.get('task')}"]
        return SessionPage(tuple(kept))


@breaks("CATALOG-4")
class ForgetsTitles(Trial):
    """Drops the title when the tags are set."""

    async def annotate(self, session_id, *, title=None, tags=None):
        await super().annotate(session_id, title=title if tags is None else "", tags=tags)


@breaks("CATALOG-5")
class ListsChildren(Trial):
    """Lists children among the roots."""

    async def find(self, query):
        return await super().find(replace(query, roots=False))


@breaks("CATALOG-6", "CATALOG-7")
class LeavesOrphans(Trial):
    """Removes a session without its children."""

    async def remove_many(self, session_ids):
        gone = []
        for one in session_ids:
            try:
                await self.remove(one)
            except StoreError:
                continue
            gone.append(one)
        return gone


@breaks("CATALOG-7")
class TakesWhatIsHeld(Trial):
    """Removes a family that somebody holds a part of."""

    async def remove_many(self, session_ids):
        for shelf in self._shelves.values():
            shelf.entry = replace(shelf.entry, owner=None)
        return await super().remove_many(session_ids)


@breaks("CATALOG-8")
class TakesAnyTag(Trial):
    """Drops odd tags without a word."""

    async def annotate(self, session_id, *, title=None, tags=None):
        try:
            await super().annotate(session_id, title=title, tags=tags)
        except ConfigurationError:
            await super().annotate(session_id, title=title)


@breaks("CATALOG-9")
class IgnoresTimes(Trial):
    """Lists what is too new."""

    async def find(self, query):
        return await super().find(replace(query, before=None))
