"""Whose a session is: tags of the store say which key started it and for which tenant, and nobody else reaches it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath._wire import replace
from glidepath.apps.server.locks import RESERVED, Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.sessions import annotate, find_sessions, normalize_tags
from glidepath.spi import SessionQuery
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.spi import SessionStore

__all__ = ["Owners", "check_tags", "key_name_in"]

_KEPT = 10_000  # sessions whose owner is remembered


def key_name_in(tags: Sequence[str]) -> str | None:
    """The name of the key that started a session, by its tags."""
    return next((tag.removeprefix("key:") for tag in tags if tag.startswith("key:")), None)


class Owners:
    """Marks the sessions that keys start, and tells who reaches which. A session without marks is the operator's."""

    def __init__(self, store: SessionStore | None) -> None:
        self._store = store
        self._known: OrderedDict[str, frozenset[str]] = OrderedDict()
        self.tags: dict[str, tuple[str, ...]] = {}
        """Of sessions that no store keeps."""

    async def is_visible(self, who: Visitor, session_id: str, *, child: bool = False) -> bool:
        """True when a visitor may see a session; a `child` belongs to whom its root belongs."""
        if who.scope is None:
            return True
        if who.scope in await self.read_marks(session_id):
            return True
        return child and who.scope in await self.read_marks(session_id.partition("/")[0])

    async def read_marks(self, session_id: str) -> frozenset[str]:
        """The marks of a session: of memory, else of the store. Those of one that was never marked are asked again."""
        known = self._known.get(session_id)
        if known is not None:
            return known
        found = frozenset(tag for tag in await self._read_tags(session_id) if tag.startswith(RESERVED))
        if found:
            self._remember(session_id, found)
        return found

    async def check_session(self, who: Visitor, session_id: str, *, known: bool) -> None:
        """Raise `HttpError` for a session that a visitor may not continue; `known` says that there is one."""
        if who.scope is None:
            return
        if "/" in session_id:  # that is how the sessions of children are named: it would belong to somebody else
            raise HttpError(400, "bad_session", f"session {session_id!r:.80} has a '/' in it: choose another name")
        if known and not await self.is_visible(who, session_id):
            raise HttpError(409, "session_taken", f"session {session_id!r:.80} is not yours: choose another name")

    async def mark(self, who: Visitor, session_id: str, tags: Sequence[str] | None) -> None:
        """Say whose a new session is, and keep the tags that its caller gave. Marks stay when tags are written."""
        if not who.marks and tags is None:
            return
        before = await self.read_marks(session_id)
        marks = before or frozenset(who.marks)
        if tags is None and marks == before:
            return
        self._remember(session_id, marks)
        every = normalize_tags([*(await self._read_tags(session_id) if tags is None else tags), *marks])
        if self._store is None:
            self.tags[session_id] = every
        else:
            await annotate(self._store, session_id, tags=every)

    async def inherit(self, session_id: str, origin: str) -> None:
        """A fork belongs to whom its origin belongs."""
        marks = await self.read_marks(origin)
        if marks and self._store is not None:
            self._remember(session_id, marks)
            await annotate(self._store, session_id, tags=normalize_tags([*await self._read_tags(session_id), *marks]))

    def _remember(self, session_id: str, marks: frozenset[str]) -> None:
        self._known[session_id] = marks
        self._known.move_to_end(session_id)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    async def _read_tags(self, session_id: str) -> Sequence[str]:
        if self._store is None:
            return self.tags.get(session_id, ())
        query = SessionQuery(prefix=session_id, roots=False, limit=100)
        try:
            while True:
                page = await find_sessions(self._store, query)
                for entry in page.sessions:
                    if entry.session_id == session_id:
                        return entry.tags
                if page.cursor is None:
                    return ()
                query = replace(query, cursor=page.cursor)
        except StoreError as error:
            if error.kind == "missing":  # nothing was written into it yet
                return ()
            raise


def check_tags(who: Visitor, tags: Sequence[str]) -> None:
    """Raise `HttpError` for tags that would say whose a session is."""
    odd = next((tag for tag in tags if tag.startswith(RESERVED)), None)
    if odd is not None and (who.scope is not None or who.key is not None):
        raise HttpError(400, "reserved_tag", f"tag {odd!r:.80} says whose a session is: only the server sets it")
