"""`glidepath sessions backup`, `verify` and `compact` in a shell."""

import asyncio
import json
import sqlite3

import pytest

from glidepath import Agent, Budget, Limits
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, say

from .shell_user import glidepath


@pytest.fixture
def shell(tmp_path):
    async def fill():
        store = SqliteStore(tmp_path / "s.db")
        wallet = Budget(Limits(max_tokens=10_000), name="month", store=store)
        for name in ("one", "two"):
            agent = Agent(model=ScriptedModel([say("noted")]), store=store, limits=Limits(max_iterations=3))
            await agent.run(f"Task of {name}", session=name, parent=wallet)
        await store.close()

    asyncio.run(fill())

    def run(*words, store="s.db"):
        return glidepath("sessions", *words, "--store", store, folder=tmp_path)

    return run


def test_a_store_is_backed_up_and_the_copy_is_used(shell, tmp_path):
    ran = shell("backup", "copy.db")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"{tmp_path / 'copy.db'}: 2 sessions and 1 wallet, ")
    assert shell("verify", store="copy.db").code == 0
    assert "Task of two" in shell("list", store="copy.db").out
    again = shell("backup", "copy.db")
    assert (again.code, "exists: name a new file" in again.err) == (2, True)
    told = json.loads(shell("backup", "other.db", "--json").out)
    assert (told["sessions"], told["wallets"], told["path"]) == (2, 1, str(tmp_path / "other.db"))


def test_damage_is_in_a_table_and_in_the_exit_code(shell, tmp_path):
    whole = shell("verify")
    assert (whole.code, whole.out) == (0, "")
    assert whole.err.endswith("1 wallet: everything is whole\n")
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("DELETE FROM commits WHERE instr(CAST(body AS TEXT), 'Task of two')")
    connection.close()
    ran = shell("verify")
    assert ran.code == 1
    head, row = ran.out.splitlines()
    assert head.split() == ["WHERE", "KIND", "WHAT"]
    assert row.split()[:2] == ["two", "damaged"]
    assert ran.err.endswith("something is damaged\n")
    ran = shell("verify", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["is_whole"], told["sessions"]) == (1, False, 2)
    assert [(one["where"], one["kind"]) for one in told["problems"]] == [("two", "damaged")]


def test_a_store_is_compacted(shell):
    assert shell("delete", "two").code == 0
    ran = shell("compact")
    assert (ran.code, ran.out) == (0, "")
    assert " before, " in ran.err
    told = json.loads(shell("compact", "--json").out)
    assert told["is_log_empty"] is True
    assert told["removed"] == []


@pytest.mark.parametrize("words", [("backup", "x.db"), ("compact",)])
def test_postgresql_has_its_own_tools(shell, words):
    ran = shell(*words, store="postgresql://user:secret@127.0.0.1:1/db")
    assert ran.code == 2
    assert "PostgreSQL" in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize("words", [("backup", "x.db"), ("verify",), ("compact",)])
def test_a_store_that_is_not_there_is_said(shell, words, tmp_path):
    ran = shell(*words, store="nothing.db")
    assert (ran.code, "there is no session store" in ran.err) == (2, True), ran
    assert not (tmp_path / "nothing.db").exists()
