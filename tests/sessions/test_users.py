"""Who a session was for: kept with it, found by it, and added up."""

import asyncio
import json

import pytest
from tests.crash.postgres import fresh_schema

from glidepath import Agent, ConfigurationError, Limits
from glidepath.cli import main
from glidepath.sessions import MemoryStore, RedactingStore, SqliteStore, find_sessions, report_costs
from glidepath.spi import SessionQuery
from glidepath.testing import ScriptedModel, say


def make_agent(store):
    model = ScriptedModel(max_output_tokens=100).forever(lambda request: say("Here you are."))
    return Agent(model=model, limits=Limits(max_iterations=3), store=store, prices={"scripted": ("3", "15")})


def make_store(kind, tmp_path):
    if kind == "postgresql":
        from glidepath.sessions import PostgresStore

        return PostgresStore(fresh_schema())
    return MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "costs.db")


async def fill(store):
    agent = make_agent(store)
    for number, user in enumerate(("ann", "bob", "ann", None)):
        await agent.run("A question.", session=f"s{number}", user=user)
    await agent.run("Another one.", session="s0", user="ann")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
def test_sessions_are_found_by_their_user_in_every_store(kind, tmp_path):
    async def look():
        store = make_store(kind, tmp_path)
        await fill(store)
        pages = [await find_sessions(store, SessionQuery(user=user)) for user in ("ann", "bob", "eve' OR '1'='1")]
        await store.close()
        return [sorted(one.session_id for one in page.sessions) for page in pages]

    assert asyncio.run(look()) == [["s0", "s2"], ["s1"], []]


def test_a_redaction_hook_sees_the_user(tmp_path):
    async def look():
        store = RedactingStore(SqliteStore(tmp_path / "s.db"), lambda text: text.replace("ann", "[user]"))
        await make_agent(store).run("A question.", session="s", user="ann")
        (entry,) = await store.entries()
        await store.close()
        return entry.summary["user"]

    assert asyncio.run(look()) == "[user]"


def run_report(capsys, place, *flags):
    code = main(["sessions", "report", "--store", str(place), *flags])
    return code, capsys.readouterr()


@pytest.fixture
def place(tmp_path):
    async def make():
        store = SqliteStore(tmp_path / "costs.db")
        await fill(store)
        await store.close()

    asyncio.run(make())
    return tmp_path / "costs.db"


def test_the_report_adds_up_by_user(capsys, place):
    code, shown = run_report(capsys, place, "--by", "user", "--json")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert code == 0
    assert {row["user"]: (row["sessions"], row["runs"]) for row in rows} == {"ann": (2, 3), "bob": (1, 1), None: (1, 1)}
    assert all(float(row["cost"]) > 0 for row in rows)
    assert rows[0]["user"] == "ann"  # the dearest first


def test_the_report_has_a_row_for_each_month_and_can_show_one(capsys, place):
    _, every = run_report(capsys, place, "--month", "--json")
    (month,) = {json.loads(line)["month"] for line in every.out.splitlines()}
    _, one = run_report(capsys, place, "--month", month)
    assert one.out.splitlines()[0].split() == ["MONTH", "USER", "SESSIONS", "RUNS", "TOKENS", "COST"]
    assert one.out.splitlines()[1].split()[:3] == [month, "ann", "2"]
    _, other = run_report(capsys, place, "--month", "1999-01")
    assert "no session matches" in other.err


def test_a_month_that_is_none_is_named(capsys, place):
    code, shown = run_report(capsys, place, "--month", "2026-13")
    assert code == 2
    assert "month='2026-13' must be a month such as '2026-11'" in shown.err
    code, shown = run_report(capsys, place, "--by", "team")
    assert code == 2
    assert "by='team' must be one of 'user', 'agent', 'model'" in shown.err


def test_the_same_report_in_python(place):
    async def report(**how):
        store = SqliteStore(place)
        try:
            return await report_costs(store, **how)
        finally:
            await store.close()

    rows = asyncio.run(report())
    assert {row.name: (row.month, row.sessions, row.runs) for row in rows} == {
        "ann": (None, 2, 3),
        "bob": (None, 1, 1),
        None: (None, 1, 1),
    }
    assert rows[0].name == "ann"  # the dearest first
    assert all(row.cost > 0 and row.tokens > 0 and row.unpriced == 0 for row in rows)
    (month,) = {row.month for row in asyncio.run(report(monthly=True))}
    assert len(asyncio.run(report(month=month, by="model"))) == 1
    assert asyncio.run(report(month="1999-01")) == []


@pytest.mark.parametrize("how", [{"by": "team"}, {"by": None}, {"month": "2026-13"}, {"month": 11}, {"month": ""}])
def test_a_report_that_cannot_be_made_names_the_field(how):
    with pytest.raises(ConfigurationError, match=f"{next(iter(how))}=.* must be"):
        asyncio.run(report_costs(MemoryStore(), **how))


def test_the_list_filters_by_user(capsys, place):
    assert main(["sessions", "list", "--store", str(place), "--user", "bob", "--json"]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["session_id"], row["user"]) == ("s1", "bob")
