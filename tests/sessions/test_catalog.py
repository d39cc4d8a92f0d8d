"""Catalogs: what was written before there was one, what an older version writes, and what cannot be written."""

import asyncio

import asyncpg
import pytest
from tests.crash.postgres import fresh_schema

from glidepath import Agent, ConfigurationError, Limits
from glidepath.apps.server import LogHead, log_for
from glidepath.errors import StoreError
from glidepath.sessions import (
    MemoryStore,
    PostgresStore,
    SqliteStore,
    annotate,
    each_session,
    export_journal,
    find_sessions,
    import_journal,
    prune,
    read_journal,
    remove_sessions,
    this_owner,
)
from glidepath.spi import SessionQuery
from glidepath.teams import Member, Team, TeamExecutionRequest
from glidepath.testing import ScriptedModel, call, say


def agent(store, **fields):
    return Agent(model=ScriptedModel().forever(say("hi")), limits=Limits(max_iterations=3), store=store, **fields)


async def flown(store, *names, **fields):
    for name in names:
        await agent(store, **fields).run(f"task of {name}", session=name)


def names(page):
    return [entry.session_id for entry in page.sessions]


def test_sessions_of_an_older_database_are_found():
    async def whole():
        dsn = fresh_schema()
        store = PostgresStore(dsn)
        await flown(store, "s", "t")
        connection = await asyncpg.connect(dsn)
        await connection.execute(
            "DROP TRIGGER glidepath_catalog_new ON glidepath_sessions; "
            "DROP TRIGGER glidepath_catalog_told ON glidepath_sessions; DROP TABLE glidepath_catalog"
        )
        await connection.close()
        again = PostgresStore(dsn)
        assert names(await find_sessions(again, outcome="done")) == ["t", "s"]
        assert await again.remove_many(["s"]) == ["s"]

    asyncio.run(whole())


def test_any_summary_is_taken_by_every_catalog(tmp_path):
    odd = [
        {"task": "nul \0 here", "cost": "NaN", "agent": 7},
        {"task": ["a"], "cost": "1e400", "state": "", "parent": ""},
        {"cost": [], "outcome": {"a": 1}, "task": "back \\u0000 slash"},
    ]

    async def whole():
        for store in (MemoryStore(), SqliteStore(tmp_path / "s.db"), PostgresStore(fresh_schema())):
            for number, summary in enumerate(odd):
                lease = await store.claim(f"s{number}", this_owner())
                from glidepath.sessions import link

                later = store.append(lease, link(b"", 1, 1, 1.0, []), summary=summary)
                if later is not None:
                    await later
                await store.release(lease)
            assert len((await find_sessions(store)).sessions) == 3
            assert (await find_sessions(store, min_cost=0)).sessions == ()
            await store.close()

    asyncio.run(whole())


class Plain:
    """A store of somebody else's, which has no catalog."""

    def __init__(self):
        self._store = MemoryStore()

    def __getattr__(self, name):
        if name in ("find", "remove_many", "annotate"):
            raise AttributeError(name)
        return getattr(self._store, name)


def test_a_store_without_a_catalog_is_searched_and_pruned():
    async def whole():
        store = Plain()
        await flown(store, "s", "t", "s/mine")
        assert names(await find_sessions(store, text="task OF s")) == ["s/mine", "s"]
        assert [entry.session_id async for entry in each_session(store, limit=1)] == ["s/mine", "t", "s"]
        assert await remove_sessions(store, ["s", "nobody"]) == ["s"]
        with pytest.raises(StoreError, match="Plain has no catalog"):
            await annotate(store, "t", tags=["a"])
        assert sorted(await prune(store, older_than=-1)) == ["s/mine", "t"]

    asyncio.run(whole())


def test_a_session_with_a_tag_is_kept_longer():
    async def whole():
        store = MemoryStore()
        await flown(store, "a", "b")
        await annotate(store, "a", tags=["scratch"])
        assert await prune(store, older_than=-1, tag="scratch") == ["a"]
        assert await prune(store, older_than=60) == []
        assert await prune(store, older_than=-1, states=("error",)) == []
        assert await prune(store, older_than=-1, states=None) == ["b"]

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"flavor": 1}, "flavor is not a search field"),
        ({"limit": "many"}, "limit must be a whole number"),
        ({"before": "yesterday"}, "before must be a"),
        ({"text": 7}, "text must be a str"),
        ({"tag": "nul\0"}, "tag must be text without NUL"),
        ({"min_cost": float("nan")}, "min_cost must be a number"),
        ({"cursor": "1.5"}, "is not from an earlier page"),
    ],
)
def test_what_sessions_cannot_be_found_by_is_named(fields, said):
    with pytest.raises(ConfigurationError, match=said):
        asyncio.run(find_sessions(MemoryStore(), **fields))


@pytest.mark.parametrize("older_than", ["1", None, float("nan"), True])
def test_an_age_that_is_no_number_is_refused(older_than):
    with pytest.raises(ConfigurationError, match="older_than must be a number of seconds"):
        asyncio.run(prune(MemoryStore(), older_than=older_than))


def test_a_query_is_passed_on_with_its_fields():
    with pytest.raises(ConfigurationError, match="SessionQuery"):
        asyncio.run(MemoryStore().find("s"))
    assert asyncio.run(find_sessions(MemoryStore(), SessionQuery(tag="a"), limit=3)).sessions == ()


@pytest.mark.parametrize("kept", [0, 1])
def test_what_is_deleted_is_in_no_file(kept, tmp_path):
    def opened():
        return SqliteStore(tmp_path / "s.db")

    async def scene():
        store = opened()
        for number in range(6):
            it = Agent(
                model=ScriptedModel([say(f"the code is SECRET{number}")]), limits=Limits(max_iterations=3), store=store
            )
            await it.run(f"tell SECRET{number}", session=f"s{number}")
            await annotate(store, f"s{number}", title=f"about SECRET{number}")
        await store.close()
        store = opened()
        await remove_sessions(store, [f"s{number}" for number in range(kept, 6)])
        data = b"".join([file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()])
        left = {number for number in range(6) if f"SECRET{number}".encode() in data}
        assert left == set(range(kept))
        store = opened()
        assert [entry.session_id for entry in await store.entries()] == [f"s{n}" for n in range(kept)]
        if kept:
            assert (await read_journal(store, "s0")).folded.result.text == "the code is SECRET0"
        await store.close()

    asyncio.run(scene())


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_events_that_a_server_kept_go_with_their_session(kind, tmp_path):
    async def scene():
        store = {
            "sqlite": lambda: SqliteStore(tmp_path / "s.db"),
            "postgres": lambda: PostgresStore(fresh_schema()),
        }[kind]()
        await flown(store, "stays", "goes")
        log = log_for(store)
        for run, session in (("r1", "stays"), ("r2", "goes"), ("r3", "goes")):
            later = log.append(LogHead(run_id=run, session_id=session), [b'{"event":"RunStarted"}'])
            if later is not None:
                await later
        assert await remove_sessions(store, ["goes", "nobody"]) == ["goes"]
        assert [await log.head(run) is not None for run in ("r1", "r2", "r3")] == [True, False, False]
        await log.close()
        await store.close()

    asyncio.run(scene())


def test_a_page_is_read_along_an_index_and_nothing_is_sorted(tmp_path):
    """So a page of 100,000 sessions costs what a page of 100 costs, whichever page it is."""

    async def whole():
        store = SqliteStore(tmp_path / "s.db")
        await flown(store, "a", "b", "c")
        cursor = (await find_sessions(store, limit=1)).cursor
        file = store._group.connection()
        asked = []
        file.set_trace_callback(asked.append)
        for fields in ({}, {"cursor": cursor}, {"before": 1e12, "state": "completed"}):  # the last as a prune asks
            assert names(await find_sessions(store, limit=1, **fields)) in (["c"], ["b"])
        file.set_trace_callback(None)
        plans = [
            [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {one}")]
            for one in asked
            if "ORDER BY c.updated" in one
        ]
        await store.close()
        return plans

    plans = asyncio.run(whole())
    assert len(plans) == 3
    for steps in plans:
        assert "_by_time" in steps[0]
        assert not any("TEMP B-TREE" in step for step in steps)
        assert not any(step.startswith("SCAN") for step in steps[1:])


def test_sessions_of_a_prefix_are_read_along_an_index(tmp_path):
    """A gate looks for the family of every new run: that may not cost more with every run there was."""

    async def whole():
        store = SqliteStore(tmp_path / "s.db")
        await flown(store, "a", "b", "b/1", "c")
        file = store._group.connection()
        asked = []
        file.set_trace_callback(asked.append)
        found = [entry.session_id for entry in await store.entries("b")]
        file.set_trace_callback(None)
        plans = [
            row[3] for one in asked if one.startswith("SELECT id") for row in file.execute(f"EXPLAIN QUERY PLAN {one}")
        ]
        await store.close()
        return found, plans

    found, plans = asyncio.run(whole())
    assert sorted(found) == ["b", "b/1"]
    assert plans
    assert not any(step.startswith("SCAN") for step in plans), plans


@pytest.mark.parametrize("kind", ["a team", "a session"])
def test_children_of_a_session_stay_when_a_team_of_the_same_name_is_deleted(kind):
    async def scene():
        store, limits = MemoryStore(), Limits(max_iterations=5)
        helper = Agent(model=ScriptedModel().forever(say("done")), limits=limits, agent_name="helper")
        parent = ScriptedModel([call("helper", task="x"), say("end")])
        tools = [helper.as_tool("helper", "Help")]
        await Agent(model=parent, tools=tools, limits=limits, store=store).run("go", session="s")
        if kind == "a team":
            team = Team(members=[Member(name="bee", agent=helper)], store=store)
            await team.run(TeamExecutionRequest(goal="g", id="s"))
        else:
            await store.fork("s", at=0, name="team:s")
        gone = await remove_sessions(store, ["team:s"])
        assert gone == (["team:s", "s/goal/1/bee"] if kind == "a team" else ["team:s"])
        assert sorted(one.session_id for one in await store.entries()) == ["s", "s/call_1.1"]

    asyncio.run(scene())


@pytest.mark.parametrize("request_id", ["r", "2026/june", "r" * 150], ids=["plain", "with a slash", "long"])
def test_the_runs_of_the_members_go_with_a_team_and_are_exported_with_it(request_id):
    async def scene():
        store, limits = MemoryStore(), Limits(max_iterations=5)
        bee = Agent(model=ScriptedModel().forever(say("done")), limits=limits)
        team = Team(members=[Member(name="bee", agent=bee)], store=store)
        await team.run(TeamExecutionRequest(goal="g", id=request_id))
        other = MemoryStore()
        await import_journal(other, await export_journal(store, f"team:{request_id}"))
        for kept in (store, other):
            assert len(await kept.entries()) == 2
            assert len(await remove_sessions(kept, [f"team:{request_id}"])) == 2
            assert await kept.entries() == []

    asyncio.run(scene())


@pytest.mark.parametrize("wrong", [3, b"s"])
def test_an_id_that_is_no_text_is_a_configuration_error(wrong):
    async def look():
        store = MemoryStore()
        await flown(store, "s")
        for act in (
            lambda: remove_sessions(store, [wrong]),
            lambda: export_journal(store, wrong),
            lambda: read_journal(store, wrong),
            lambda: store.wallets(wrong),
        ):
            with pytest.raises((ConfigurationError, StoreError)):
                await act()

    asyncio.run(look())
