"""The contract of a `Catalog`: a session store that finds, labels and removes many sessions, clause by clause."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Protocol

import pytest

from glidepath.conformance.contract import StoreContract
from glidepath.conformance.store_contract import append
from glidepath.errors import ConfigurationError, StoreError
from glidepath.sessions.chain import link
from glidepath.sessions.owner import this_owner
from glidepath.spi.session_catalog import Catalog, SessionQuery
from glidepath.spi.sessions import SessionStore


class FindingStore(SessionStore, Catalog, Protocol):
    """A session store with a catalog."""


class CatalogContract(StoreContract[FindingStore]):
    """Subclass this and provide `make_store`: an empty store that is a `SessionStore` and a `Catalog`.

    `again(store)` returns another store object on the same data, like the one of a second process.
    """

    async def test_catalog_1_pages_have_every_session_once(self) -> None:
        """CATALOG-1: pages go from the newest to the oldest, and together have every session once."""
        async with self._stores() as (store, other):
            names = [f"s{number}" for number in range(7)]
            for name in names:
                await _ended(store, name)
            seen, cursor = [], None
            for size in (3, 3, 1):
                page = await other.find(SessionQuery(limit=3, cursor=cursor))
                assert len(page.sessions) == size
                seen += [entry.session_id for entry in page.sessions]
                cursor = page.cursor
            assert cursor is None
            assert seen == names[::-1]

    async def test_catalog_2_sessions_are_found_by_what_their_summary_says(self) -> None:
        """CATALOG-2: state, outcome, agent and cost match the last summary as soon as it is written."""
        async with self._stores() as (store, other):
            await _ended(store, "a", state="completed", outcome="done", agent="clerk", cost="0.5")
            await _ended(store, "b", state="error", outcome="failed", agent="clerk", cost="2")
            await _ended(store, "c", state="running", outcome=None, agent="scout")
            assert await _found(other, state="completed") == ["a"]
            assert await _found(other, outcome="failed") == ["b"]
            assert await _found(other, outcome="unfinished") == ["c"]
            assert await _found(other, agent="clerk") == ["b", "a"]
            assert await _found(other, min_cost=Decimal("0.5"), max_cost=Decimal(1)) == ["a"]
            await _ended(store, "c", state="completed", outcome="done", agent="scout")
            assert await _found(other, outcome="unfinished") == []
            assert await _found(other, outcome="done", agent="scout") == ["c"]

    async def test_catalog_3_text_is_found_whatever_its_case(self) -> None:
        """CATALOG-3: text is found in tasks, titles and ids, ignoring case, and no character in it is special."""
        async with self._stores() as (store, other):
            await _ended(store, "Order-1", task="Refund 100% of it")
            await _ended(store, "order-2", task="Nothing")
            await store.annotate("order-2", title="The big_one")
            assert await _found(other, text="refund") == ["Order-1"]
            assert await _found(other, text="BIG_") == ["order-2"]
            assert await _found(other, text="ORDER") == ["order-2", "Order-1"]
            assert await _found(other, text="0% of") == ["Order-1"]
            for special in ("%", "_o%", "'", '"', "*"):
                assert len(await _found(other, text=special)) == (special == "%")

    async def test_catalog_4_titles_and_tags_stay_with_their_session(self) -> None:
        """CATALOG-4: annotate replaces the title or the tags; writing to the journal changes neither."""
        async with self._stores() as (store, other):
            await _ended(store, "s", task="one")
            await store.annotate("s", title="First", tags=["b", "a"])
            await _ended(store, "s", task="two")
            (entry,) = (await other.find(SessionQuery(tag="a"))).sessions
            assert (entry.title, entry.tags, entry.summary["task"]) == ("First", ("a", "b"), "two")
            await other.annotate("s", tags=["c"])
            assert await _found(store, tag="a") == []
            (entry,) = (await store.find(SessionQuery(tag="c"))).sessions
            assert (entry.title, entry.tags) == ("First", ("c",))

    async def test_catalog_5_children_are_left_out_unless_asked_for(self) -> None:
        """CATALOG-5: a session whose summary names a parent is listed only with roots=False."""
        async with self._stores() as (store, other):
            await _ended(store, "s")
            await _ended(store, "s/call.1", parent={"session_id": "s"})
            assert await _found(other) == ["s"]
            assert await _found(other, roots=False) == ["s/call.1", "s"]
            assert await _found(other, roots=False, prefix="s/") == ["s/call.1"]

    async def test_catalog_6_a_family_is_removed_together(self) -> None:
        """CATALOG-6: remove_many removes the children, too, and nothing else; none of them is found afterwards."""
        async with self._stores() as (store, other):
            for name in ("s", "t", "s2"):
                await _ended(store, name)
            await _ended(store, "s/call.1", parent={"session_id": "s"})
            await _ended(store, "s/call.1/x.1", parent={"session_id": "s/call.1"})
            await _ended(store, "s/mine")  # a name that somebody chose
            await store.annotate("s", tags=["old"])
            gone = await other.remove_many(["s", "nobody", "t"])
            assert sorted(gone) == ["s", "s/call.1", "s/call.1/x.1", "t"]
            assert await _found(store, roots=False) == ["s/mine", "s2"]
            assert await _found(store, tag="old") == []
            await _ended(store, "s")
            assert (await store.find(SessionQuery(prefix="s", limit=1))).sessions[0].tags == ()

    async def test_catalog_7_what_somebody_holds_stays(self) -> None:
        """CATALOG-7: remove_many leaves a family alone while a living owner holds any of it, and removes the others."""
        async with self._stores() as (store, other):
            await _ended(store, "s")
            await _ended(store, "s/call.1", parent={"session_id": "s"})
            await _ended(store, "t")
            lease = await store.claim("s/call.1", this_owner())
            assert await other.remove_many(["s", "t"]) == ["t"]
            await store.release(lease)
            assert sorted(await other.remove_many(["s", "t"])) == ["s", "s/call.1"]

    async def test_catalog_8_what_cannot_be_is_refused(self) -> None:
        """CATALOG-8: a missing session, an odd tag, limit or cursor is refused, and nothing changes."""
        async with self._stores() as (store, _other):
            await _ended(store, "s")
            with pytest.raises(StoreError) as caught:
                await store.annotate("nobody", title="x")
            assert caught.value.kind == "missing"
            for tags in (["a b"], ["a,b"], [""], ["x" * 65], ["nul\0"], "abc"):
                with pytest.raises(ConfigurationError, match="tag"):
                    await store.annotate("s", tags=tags)
            with pytest.raises(ConfigurationError, match="limit"):
                await store.find(SessionQuery(limit=0))
            with pytest.raises(ConfigurationError, match="cursor"):
                await store.find(SessionQuery(cursor="what"))
            assert (await store.find(SessionQuery())).sessions[0].tags == ()

    async def test_catalog_9_times_are_bounds(self) -> None:
        """CATALOG-9: before and after bound the time at which a session was last written."""
        async with self._stores() as (store, other):
            await _ended(store, "old")
            await _ended(store, "new")
            new, old = (await other.find(SessionQuery())).sessions
            assert await _found(other, before=new.updated) == ["old"]
            assert await _found(other, after=new.updated) == ["new"]
            assert await _found(other, before=old.updated) == []


async def _ended(store: FindingStore, name: str, **summary: object) -> None:
    """One more commit in this session, with this summary."""
    lease = await store.claim(name, this_owner())
    commit = link(lease.hash, lease.head + 1, lease.head + 1, 1.5, [("note", {"text": "x"})])
    whole: Mapping[str, Any] = {"state": "completed", "outcome": "done", **summary}
    await append(store, lease, commit, summary=whole)
    await store.release(lease)
    await asyncio.sleep(0.005)


async def _found(store: FindingStore, **fields: Any) -> list[str]:
    return [entry.session_id for entry in (await store.find(SessionQuery(**fields))).sessions]
