"""Transactional tools: what one changed in the store's database and its result are both there, or neither."""

import asyncio
import random
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import asyncpg
import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.agent.replay import replay
from glidepath.errors import ConfigurationError
from glidepath.sessions import (
    MemoryStore,
    PostgresStore,
    PostgresTransaction,
    RedactingStore,
    SqliteStore,
    check_statement,
    read_journal,
)
from glidepath.spi import AfterDecision, Plugin
from glidepath.testing import ScriptedModel, call, calls, say
from glidepath.tools import StoreConnection

from .postgres import fresh_schema

pytestmark = pytest.mark.process
LIMITS = Limits(max_iterations=20)
PROGRAM = Path(__file__).with_name("transactional_life.py")
PLACES = ("begun", "inside", "returned", "appended", "committed")
MAKE = "CREATE TABLE IF NOT EXISTS seats(number int PRIMARY KEY, who text NOT NULL)"


@tool(transactional=True)
def book(connection: StoreConnection, number: int, who: str = "ann") -> str:
    """Book a seat."""
    connection.execute("INSERT INTO seats VALUES($1, $2)", number, who)
    return f"booked {number}; {connection.fetchval('SELECT count(*) FROM seats')} taken"


async def seats(dsn):
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT number FROM seats ORDER BY number")
    await connection.close()
    return [row["number"] for row in rows]


async def make_seats(dsn):
    connection = await asyncpg.connect(dsn)
    await connection.execute(MAKE)
    await connection.close()


def fly(*turns, tools=(book,), store=None, session="s", **options):
    """Run an agent with these turns; its result, its results of tools, and the seats that are taken."""
    dsn = fresh_schema()

    async def go():
        await make_seats(dsn)
        kept = PostgresStore(dsn) if store is None else store(dsn)
        model = ScriptedModel([*turns, say("done")])
        agent = Agent(model=model, tools=list(tools), store=kept, limits=LIMITS, **options)
        result = await agent.run("go", session=session)
        journal = await read_journal(kept, session)
        await kept.close()
        return result, journal, await seats(dsn)

    result, journal, taken = asyncio.run(go())
    return result, [one.text for one in result.messages if one.role == "tool_result"], taken, journal


# --- together ------------------------------------------------------------------------------------------------------


def test_the_effect_and_the_result_are_in_one_transaction():
    result, told, taken, journal = fly(call("book", number=7), call("book", number=8))
    assert (result.outcome, told, taken) == (LoopOutcome.DONE, ["booked 7; 1 taken", "booked 8; 2 taken"], [7, 8])
    assert [one.text for one in journal.folded.messages if one.role == "tool_result"] == told


@pytest.mark.parametrize("durability", ["sync", "full"])
def test_several_calls_of_one_reply_have_a_transaction_each(durability):
    three = calls(call("book", number=1), call("book", number=2), call("book", number=3))
    result, told, taken, _ = fly(three, durability=durability)
    assert (result.ok, len(told), taken) == (True, 3, [1, 2, 3])


def test_a_store_that_redacts_keeps_the_result_redacted():
    result, told, taken, journal = fly(
        call("book", number=7),
        store=lambda dsn: RedactingStore(PostgresStore(dsn), lambda text: text.replace("7", "X")),
    )
    assert (result.ok, told, taken) == (True, ["booked 7; 1 taken"], [7])
    assert "booked X; 1 taken" in [one.text for one in journal.folded.messages]


def test_the_model_does_not_see_the_connection():
    assert set(book.parameters["properties"]) == {"number", "who"}
    assert book.transactional


def test_the_example_books_once_however_often_it_is_run(capsys):
    dsn = fresh_schema()
    path = Path(__file__).resolve().parents[2] / "examples" / "transactional_tool.py"
    main = runpy.run_path(str(path))["main"]
    for _ in range(2):
        asyncio.run(main(dsn))
    assert capsys.readouterr().out.splitlines() == ["You sit in 12.", "calls whose effect is unknown: 0"] * 2


# --- neither -------------------------------------------------------------------------------------------------------


def test_an_exception_rolls_it_back_and_the_run_goes_on():
    @tool(transactional=True)
    def fail(connection: StoreConnection) -> str:
        """Fail."""
        connection.execute("INSERT INTO seats VALUES(1, 'x')")
        raise ValueError("sold out")

    result, told, taken, _ = fly(call("fail"), call("book", number=2), tools=[fail, book])
    assert (result.ok, told, taken) == (True, ["ValueError: sold out", "booked 2; 1 taken"], [2])


def test_an_error_of_the_database_is_told_to_the_model():
    result, told, taken, _ = fly(call("book", number=2), call("book", number=2))
    assert (result.ok, taken) == (True, [2])
    assert "duplicate key" in told[1]


def test_a_swallowed_error_of_the_database_commits_nothing():
    @tool(transactional=True)
    def careless(connection: StoreConnection) -> str:
        """Swallow."""
        connection.execute("INSERT INTO seats VALUES(1, 'x')")
        try:
            connection.execute("INSERT INTO seats VALUES(1, 'x')")
        except Exception:
            return "all is well"
        return "never"

    result, told, taken, _ = fly(call("careless"), tools=[careless])
    assert (result.ok, taken) == (True, [])
    assert "let the exception out of the tool" in told[0]


def test_a_call_that_takes_too_long_has_changed_nothing():
    late = threading.Event()
    seen = []

    @tool(transactional=True, timeout=0.3)
    def slow(connection: StoreConnection) -> str:
        """Sleep."""
        connection.execute("INSERT INTO seats VALUES(1, 'x')")
        late.wait(5)
        try:
            connection.execute("INSERT INTO seats VALUES(2, 'x')")
        except Exception as error:
            seen.append(str(error))
        return "late"

    result, told, taken, _ = fly(call("slow"), tools=[slow])
    late.set()
    assert (result.ok, taken) == (True, [])
    assert "no result within 0.3 s" in told[0]
    assert "may still" not in told[0]
    assert [one.tool_name for one in result.abandoned] == ["slow"]  # its thread is listed, and powerless
    until = time.monotonic() + 5
    while not seen and time.monotonic() < until:
        time.sleep(0.01)
    assert "transaction is over" in seen[0]


def test_a_statement_that_hangs_is_cut_off():
    @tool(transactional=True, timeout=0.3)
    def stuck(connection: StoreConnection) -> str:
        """Wait in the database."""
        connection.execute("INSERT INTO seats VALUES(1, 'x')")
        connection.execute("SELECT pg_sleep(30)")
        return "never"

    begun = time.monotonic()
    result, _, taken, _ = fly(call("stuck"), call("book", number=1), tools=[stuck, book])
    assert (result.ok, taken) == (True, [1])  # it held no lock any more
    assert time.monotonic() - begun < 4


def test_a_run_that_lost_its_session_commits_nothing():
    """Another process takes the session over while the tool works: the lease is checked in the same transaction."""
    dsn = fresh_schema()

    async def go():
        await make_seats(dsn)
        store, thief = PostgresStore(dsn), PostgresStore(dsn)
        loop = asyncio.get_running_loop()

        async def steal():
            connection = await asyncpg.connect(dsn)
            await connection.execute("UPDATE glidepath_sessions SET expires = 0")
            await connection.close()
            return await thief.claim("s", "somebody else")

        @tool(transactional=True)
        def robbed(connection: StoreConnection) -> str:
            """Be robbed."""
            connection.execute("INSERT INTO seats VALUES(1, 'x')")
            asyncio.run_coroutine_threadsafe(steal(), loop).result()
            return "booked"

        agent = Agent(model=ScriptedModel([call("robbed"), say("done")]), tools=[robbed], store=store, limits=LIMITS)
        result = await agent.run("go", session="s")
        await thief.close()
        await store.close()
        return result, await seats(dsn)

    result, taken = asyncio.run(go())
    assert (result.outcome, taken) == (LoopOutcome.FAILED, [])
    assert result.unknown_effects == ()


# --- what it may not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "COMMIT",
        "insert into seats values(1, 'x'); commit",
        "/* hello */ Rollback",
        "-- x\nBEGIN",
        "SAVEPOINT a",
        "SET ROLE postgres",
        "DELETE FROM glidepath_sessions",
        'UPDATE "glidepath_commits" SET body = NULL',
        'SELECT * FROM U&"\\0067lidepath_commits"',
    ],
)
def test_a_statement_that_is_not_for_tools_is_refused(query):
    with pytest.raises(Exception, match=r"not for a transactional tool|closed to tools"):
        check_statement(query)


@pytest.mark.parametrize(
    "query", ["SELECT 'commit; glidepath_x'", "SELECT $$ commit; $$", "UPDATE x SET y = 'it''s; end'"]
)
def test_what_is_only_text_is_not_refused(query):
    assert check_statement(query) == query


def test_tables_of_the_store_are_closed_to_functions_of_the_database_too():
    @tool(transactional=True)
    def sly(connection: StoreConnection) -> str:
        """Go round it."""
        connection.execute("INSERT INTO seats VALUES(1, 'x')")
        connection.execute("DO $$ BEGIN EXECUTE 'UPDATE glide' || 'path_sessions SET flag = NULL'; END $$")
        return "done"

    result, told, taken, _ = fly(call("sly"), tools=[sly])
    assert (result.ok, taken) == (True, [])
    assert "closed to tools" in told[0]


def test_it_needs_a_store_with_transactions(tmp_path):
    for store, said in (
        (None, "there is no store"),
        (MemoryStore(), "not MemoryStore"),
        (SqliteStore(tmp_path / "s.db"), "not SqliteStore"),
    ):
        with pytest.raises(ConfigurationError, match=f"needs store=PostgresStore.*{said}"):
            Agent(
                model=ScriptedModel([say("x")]),
                tools=[book],
                limits=LIMITS,
                **({} if store is None else {"store": store}),
            )


def test_the_option_and_the_parameter_go_together():
    def bare(connection: StoreConnection) -> str:
        """x"""

    def none(number: int) -> str:
        """x"""

    async def later(connection: StoreConnection) -> str:
        """x"""

    with pytest.raises(ConfigurationError, match="needs transactional=True"):
        tool(bare)
    with pytest.raises(ConfigurationError, match="without a StoreConnection"):
        tool(none, transactional=True)
    with pytest.raises(ConfigurationError, match="is for a plain function"):
        tool(later, transactional=True)
    with pytest.raises(ConfigurationError, match="runs on a thread"):
        tool(bare, transactional=True, isolation="process")


# --- the line breaks -----------------------------------------------------------------------------------------------


class Cut:
    """A connection that breaks when it commits: before the server has heard of it, or after."""

    def __init__(self, line, when):
        self._line, self._when = line, when

    async def execute(self, query, *values, **options):
        if query == "COMMIT":
            if self._when == "after":
                await self._line.execute(query)
            self._line.terminate()
            raise ConnectionResetError("the cable is cut")
        return await self._line.execute(query, *values, **options)

    def __getattr__(self, name):
        return getattr(self._line, name)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_line_that_breaks_while_it_commits_leaves_no_doubt(monkeypatch, when):
    """The database is asked what became of it: the run goes on, or ends, and a resume books exactly once."""
    dsn, whole = fresh_schema(), PostgresTransaction.append
    cut = []

    async def append(self, *given, **options):
        if not cut:
            cut.append(when)
            self._line = Cut(self._line, when)
        return await whole(self, *given, **options)

    monkeypatch.setattr(PostgresTransaction, "append", append)

    async def go():
        await make_seats(dsn)
        store = PostgresStore(dsn)
        agent = Agent(
            model=ScriptedModel([call("book", number=1), say("done"), say("done")]),
            tools=[book],
            store=store,
            limits=LIMITS,
        )
        first = await agent.run("go", session="s")
        taken = await seats(dsn)
        last = first if first.ok else await agent.resume("s")
        await store.close()
        return first, taken, last, await seats(dsn)

    first, taken, last, after = asyncio.run(go())
    assert (first.ok, taken) == ((True, [1]) if when == "after" else (False, []))
    assert (last.outcome, after, last.unknown_effects) == (LoopOutcome.DONE, [1], ())


class Looks(Plugin):
    """A hook that changes what the model sees."""

    def after_tool_call(self, context):
        return AfterDecision(content="[seat number removed]")


def test_what_a_hook_takes_out_of_a_result_is_in_no_journal():
    result, told, taken, journal = fly(call("book", number=4711), plugins=[Looks()])
    assert (result.ok, told, taken) == (True, ["[seat number removed]"], [4711])
    assert not any(b"booked 4711" in commit.body for commit in journal.commits)


@pytest.mark.parametrize("hooks", [[], [Looks()]], ids=["plain", "with a hook"])
def test_a_run_with_transactional_calls_is_replayed_without_them(hooks):
    dsn = fresh_schema()

    @tool(transactional=True)
    def fail(connection: StoreConnection) -> str:
        """Fail."""
        connection.execute("INSERT INTO seats VALUES(99, 'x')")
        raise ValueError("sold out")

    async def go():
        await make_seats(dsn)
        store = PostgresStore(dsn)
        two = calls(call("book", number=1), call("book", number=2))
        model = ScriptedModel([two, call("fail"), call("book", number=3), say("done")])
        agent = Agent(model=model, tools=[book, fail], store=store, limits=LIMITS, plugins=hooks)
        await agent.run("go", session="s")
        done = await replay(agent, store, "s")
        await store.close()
        return done, await seats(dsn)

    done, taken = asyncio.run(go())
    assert (done.same, done.difference, taken) == (True, "", [1, 2, 3])


# --- killed --------------------------------------------------------------------------------------------------------


def lives(dsn, seed, *, calls_made=6, durability="full"):
    """Run and resume in processes that are killed, until one ends in peace; how many were killed."""
    chance = random.Random(seed)
    for killed in range(40):
        kill = chance.choice([*PLACES, "time", "time"]) if killed < 6 else "never"
        delay, number = chance.uniform(0.0, 0.25), chance.randint(1, calls_made)
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), dsn, str(calls_made), durability, kill, str(number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        if kill == "time":
            process.stdout.readline()  # it has begun
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
        if process.returncode == 0:
            return killed, said.split()[-1]
        assert process.returncode == -9, said
    raise AssertionError("it never ended")


def check_lives(seeds):
    deaths = 0
    for seed in seeds:
        dsn = fresh_schema()
        asyncio.run(make_seats(dsn))
        killed, unknown = lives(dsn, seed)
        deaths += killed
        assert (asyncio.run(seats(dsn)), unknown) == (list(range(1, 7)), "unknown=0"), seed
    return deaths


def test_g13_killed_transactional_calls_are_made_once_and_are_never_unknown():
    assert check_lives(range(4)) > 4


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(4))
def test_g13_many_killed_transactional_calls(part):
    assert check_lives(range(100 + 15 * part, 115 + 15 * part)) > 15
