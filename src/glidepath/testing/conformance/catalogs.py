"""The contract of a `Catalog`: a session store that finds, labels and removes many sessions, clause by clause."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Protocol

import pytest

from glidepath.sessions import this_owner
from glidepath.spi import Catalog, SessionQuery, SessionStore
from glidepath.testing.conformance.contract import StoreContract, assert_refused
from glidepath.testing.conformance.store_contract import write
from glidepath.values import ConfigurationError


class FindingStore(SessionStore, Catalog, Protocol):
    """A session store with a catalog."""


class CatalogContract(StoreContract[FindingStore]):
    """Subclass this and provide `make_store`: an empty store that is a `SessionStore` and a `Catalog`.

    `again(store)` returns another store object on the same data, like the one of a second process.
    """

    async def test_catalog_1_pages_have_every_session_once(self) -> None:
        """CATALOG-1: pages go from the newest to the oldest, and together have every session once."""
        names = [f"s{number}" for number in range(7)]
        for name in names:
            await _append_summary(self.here, name)
        seen, cursor = [], None
        for size in (3, 3, 1):
            page = await self.there.find(SessionQuery(limit=3, cursor=cursor))
            assert len(page.sessions) == size
            seen += [entry.session_id for entry in page.sessions]
            cursor = page.cursor
        assert cursor is None
        assert seen == names[::-1]

    async def test_catalog_2_sessions_are_found_by_what_their_summary_says(self) -> None:
        """CATALOG-2: state, outcome, agent and cost match the last summary as soon as it is written."""
        await _append_summary(self.here, "a", state="completed", outcome="done", agent="clerk", cost="0.5")
        await _append_summary(self.here, "b", state="error", outcome="failed", agent="clerk", cost="2")
        await _append_summary(self.here, "c", state="running", outcome=None, agent="scout")
        assert await _find_ids(self.there, state="completed") == ["a"]
        assert await _find_ids(self.there, outcome="failed") == ["b"]
        assert await _find_ids(self.there, outcome="unfinished") == ["c"]
        assert await _find_ids(self.there, agent="clerk") == ["b", "a"]
        assert await _find_ids(self.there, min_cost=Decimal("0.5"), max_cost=Decimal(1)) == ["a"]
        await _append_summary(self.here, "c", state="completed", outcome="done", agent="scout")
        assert await _find_ids(self.there, outcome="unfinished") == []
        assert await _find_ids(self.there, outcome="done", agent="scout") == ["c"]

    async def test_catalog_3_text_is_found_whatever_its_case(self) -> None:
        """CATALOG-3: text is found in tasks, titles and ids, ignoring case, and no character in it is special."""
        await _append_summary(self.here, "Order-1", task="Refund 100% of it")
        await _append_summary(self.here, "order-2", task="Nothing")
        await self.here.annotate("order-2", title="The big_one")
        assert await _find_ids(self.there, text="refund") == ["Order-1"]
        assert await _find_ids(self.there, text="BIG_") == ["order-2"]
        assert await _find_ids(self.there, text="ORDER") == ["order-2", "Order-1"]
        assert await _find_ids(self.there, text="0% of") == ["Order-1"]
        for special in ("%", "_o%", "'", '"', "*"):
            assert len(await _find_ids(self.there, text=special)) == (special == "%")

    async def test_catalog_4_titles_and_tags_stay_with_their_session(self) -> None:
        """CATALOG-4: annotate replaces the title or the tags; writing to the journal changes neither."""
        await _append_summary(self.here, "s", task="one")
        await self.here.annotate("s", title="First", tags=["b", "a"])
        await _append_summary(self.here, "s", task="two")
        (entry,) = (await self.there.find(SessionQuery(tag="a"))).sessions
        assert (entry.title, entry.tags, entry.summary["task"]) == ("First", ("a", "b"), "two")
        await self.there.annotate("s", tags=["c"])
        assert await _find_ids(self.here, tag="a") == []
        (entry,) = (await self.here.find(SessionQuery(tag="c"))).sessions
        assert (entry.title, entry.tags) == ("First", ("c",))

    async def test_catalog_5_children_are_left_out_unless_asked_for(self) -> None:
        """CATALOG-5: a session whose summary names a parent is listed only with roots=False."""
        await _append_summary(self.here, "s")
        await _append_summary(self.here, "s/call.1", parent={"session_id": "s"})
        assert await _find_ids(self.there) == ["s"]
        assert await _find_ids(self.there, roots=False) == ["s/call.1", "s"]
        assert await _find_ids(self.there, roots=False, prefix="s/") == ["s/call.1"]

    async def test_catalog_6_a_family_is_removed_together(self) -> None:
        """CATALOG-6: remove_many removes the children, too, and nothing else; none of them is found afterwards."""
        for name in ("s", "t", "s2"):
            await _append_summary(self.here, name)
        await _append_summary(self.here, "s/call.1", parent={"session_id": "s"})
        await _append_summary(self.here, "s/call.1/x.1", parent={"session_id": "s/call.1"})
        await _append_summary(self.here, "s/mine")  # a name that somebody chose
        await self.here.annotate("s", tags=["old"])
        gone = await self.there.remove_many(["s", "nobody", "t"])
        assert sorted(gone) == ["s", "s/call.1", "s/call.1/x.1", "t"]
        assert await _find_ids(self.here, roots=False) == ["s/mine", "s2"]
        assert await _find_ids(self.here, tag="old") == []
        await _append_summary(self.here, "s")
        assert (await self.here.find(SessionQuery(prefix="s", limit=1))).sessions[0].tags == ()

    async def test_catalog_7_what_somebody_holds_stays(self) -> None:
        """CATALOG-7: remove_many leaves a family alone while a living owner holds any of it, and removes the others."""
        await _append_summary(self.here, "s")
        await _append_summary(self.here, "s/call.1", parent={"session_id": "s"})
        await _append_summary(self.here, "t")
        lease = await self.here.claim("s/call.1", this_owner())
        assert await self.there.remove_many(["s", "t"]) == ["t"]
        await self.here.release(lease)
        assert sorted(await self.there.remove_many(["s", "t"])) == ["s", "s/call.1"]

    async def test_catalog_8_what_cannot_be_is_refused(self) -> None:
        """CATALOG-8: a missing session, an odd tag, limit or cursor is refused, and nothing changes."""
        await _append_summary(self.here, "s")
        await assert_refused("missing", self.here.annotate("nobody", title="x"))
        for tags in (["a b"], ["a,b"], [""], ["x" * 65], ["nul\0"], "abc"):
            with pytest.raises(ConfigurationError, match="tag"):
                await self.here.annotate("s", tags=tags)
        with pytest.raises(ConfigurationError, match="limit"):
            await self.here.find(SessionQuery(limit=0))
        with pytest.raises(ConfigurationError, match="cursor"):
            await self.here.find(SessionQuery(cursor="what"))
        assert (await self.here.find(SessionQuery())).sessions[0].tags == ()

    async def test_catalog_9_times_are_bounds(self) -> None:
        """CATALOG-9: before and after bound the time at which a session was last written."""
        await _append_summary(self.here, "old")
        await _append_summary(self.here, "new")
        new, old = (await self.there.find(SessionQuery())).sessions
        assert await _find_ids(self.there, before=new.updated) == ["old"]
        assert await _find_ids(self.there, after=new.updated) == ["new"]
        assert await _find_ids(self.there, before=old.updated) == []


async def _append_summary(store: FindingStore, name: str, **summary: object) -> None:
    """One more commit in this session, with this summary."""
    lease = await store.claim(name, this_owner())
    whole: Mapping[str, Any] = {"state": "completed", "outcome": "done", **summary}
    await write(store, lease, 1, summary=whole)
    await store.release(lease)
    await asyncio.sleep(0.005)


async def _find_ids(store: FindingStore, **fields: Any) -> list[str]:
    return [entry.session_id for entry in (await store.find(SessionQuery(**fields))).sessions]
