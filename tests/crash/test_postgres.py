"""PostgreSQL under load: how many connections, how many round trips, and a server that restarts in the middle."""

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from glidepath import Agent, Limits, tool
from glidepath.errors import ConfigurationError, StoreError
from glidepath.outcome import LoopOutcome
from glidepath.sessions import PostgresStore, link, this_owner
from glidepath.testing import ScriptedModel, call, say

from .postgres import Server, fresh_schema


class Tap:
    """A line to the server that counts its connections and its round trips, and can be cut."""

    def __init__(self, address, folder):
        self.behind = Path(re.search(r"host=([^&]+)", address)[1]) / ".s.PGSQL.5432"
        self.address = re.sub(r"host=[^&]+", f"host={folder}", address)
        self.path = folder / ".s.PGSQL.5432"
        self.trips = self.now = self.peak = 0
        self.deaf = False  # the server's answers are lost, and with them the connection
        self.writers = set()

    @asynccontextmanager
    async def open(self):
        server = await asyncio.start_unix_server(self._pass_on, self.path)
        try:
            yield self
        finally:
            server.close()
            for writer in list(self.writers):
                writer.transport.abort()
            await asyncio.sleep(0)

    async def _pass_on(self, reader, writer):
        there, back = await asyncio.open_unix_connection(self.behind)
        self.now += 1
        self.peak = max(self.peak, self.now)
        self.writers |= {writer, back}
        last = [None]
        copies = [self._copy(reader, back, last, "asks"), self._copy(there, writer, last, "answers")]
        copies = [asyncio.create_task(one) for one in copies]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        self.now -= 1
        for one in (writer, back):
            one.transport.abort()
            self.writers.discard(one)
        for one in copies:
            one.cancel()

    async def _copy(self, reader, writer, last, what):
        with suppress(OSError):
            while data := await reader.read(65536):
                if what == "answers" and self.deaf:
                    return
                if what == "asks" and last[0] != "asks":
                    self.trips += 1
                last[0] = what
                writer.write(data)
                await writer.drain()

    def take(self):
        trips, self.trips = self.trips, 0
        return trips


def stepper(store, done, steps=3, pause=0.0):
    @tool
    async def act(n: int) -> str:
        await asyncio.sleep(pause)
        done.append(n)
        return f"done {n}"

    script = [call("act", n=n) for n in range(steps)]
    return Agent(
        model=ScriptedModel(script).forever(say("all is done")),
        tools=[act],
        store=store,
        limits=Limits(max_iterations=20),
    )


def test_g13_a_herd_of_runs_keeps_to_its_connections_from_the_first_moment(tmp_path):
    """All of them begin at once, on a store that has never been used."""

    async def go():
        async with Tap(fresh_schema(), tmp_path).open() as tap:
            store = PostgresStore(tap.address, max_connections=20)
            runs = [stepper(store, [], steps=1).run("go", session=f"s{number}") for number in range(400)]
            results = await asyncio.gather(*runs)
            return tap.peak, {result.outcome for result in results}

    peak, outcomes = asyncio.run(go())
    assert outcomes == {LoopOutcome.DONE}
    assert peak <= 20


def test_reading_keeps_to_the_connections_as_well(tmp_path):
    async def go():
        async with Tap(fresh_schema(), tmp_path).open() as tap:
            store = PostgresStore(tap.address, max_connections=3)
            await stepper(store, [], steps=1).run("go", session="s")
            tap.peak = 0
            await asyncio.gather(*[store.load("s") for _ in range(40)], *[store.entries() for _ in range(40)])
            return tap.peak, tap.now

    peak, left = asyncio.run(go())
    assert 1 <= peak <= 3
    assert left == 0  # nobody holds a lease: nothing stays open


def test_a_commit_is_one_round_trip(tmp_path):
    async def go():
        async with Tap(fresh_schema(), tmp_path).open() as tap:
            store = PostgresStore(tap.address, max_connections=1)
            lease = await store.claim("s", this_owner())
            before, counts = b"", []
            for number in range(1, 6):
                commit = link(before, number, number, 1.0, [("note", number)])
                tap.take()
                await store.append(lease, commit)
                counts.append(tap.take())
                before = commit.hash
            await store.release(lease)
            tap.take()
            return counts

    assert asyncio.run(go())[1:] == [1, 1, 1, 1]  # the first prepares the statement


def test_the_heartbeats_of_many_runs_are_one_statement(tmp_path):
    async def go():
        async with Tap(fresh_schema(), tmp_path).open() as tap:
            store = PostgresStore(tap.address, max_connections=2)
            leases = [await store.claim(f"s{number}", this_owner()) for number in range(30)]
            await store.beat([leases[0]], renew=False)
            await store.flag("s7", "enough")
            tap.take()
            signs = await asyncio.gather(*[store.beat([lease], renew=True) for lease in leases])
            trips = tap.take()
            for lease in leases:
                await store.release(lease)
            return trips, [(sign.session_id, sign.stop) for found in signs for sign in found]

    trips, signs = asyncio.run(go())
    assert trips == 1
    assert signs == [("s7", "enough")]


@pytest.mark.parametrize("lost", ["before", "after"])
def test_g13_a_commit_whose_answer_is_lost_is_written_once(tmp_path, lost):
    """The line is cut before the server has heard of the commit, or after it has written it."""

    async def go():
        address = fresh_schema()
        async with Tap(address, tmp_path).open() as tap:
            store = PostgresStore(tap.address, max_connections=1)
            lease = await store.claim("s", this_owner())
            first = link(b"", 1, 1, 1.0, [("note", 1)])
            await store.append(lease, first)
            second = link(first.hash, 2, 2, 1.0, [("note", 2)])
            if lost == "before":
                for writer in list(tap.writers):
                    writer.transport.abort()
            else:
                tap.deaf = True
                asyncio.get_running_loop().call_later(0.2, setattr, tap, "deaf", False)
            await store.append(lease, second)
            await store.append(lease, link(second.hash, 3, 3, 1.0, [("note", 3)]))
            await store.release(lease)
            _, commits = await PostgresStore(address).load("s")
            return [commit.number for commit in commits], [commit.hash for commit in commits][:2], [first, second]

    numbers, hashes, written = asyncio.run(go())
    assert numbers == [1, 2, 3]
    assert hashes == [commit.hash for commit in written]


def test_a_commit_of_another_with_the_same_number_is_still_a_conflict():
    async def go():
        store = PostgresStore(fresh_schema())
        lease = await store.claim("s", this_owner())
        await store.append(lease, link(b"", 1, 1, 1.0, [("note", "mine")]))
        with pytest.raises(StoreError) as caught:
            await store.append(lease, link(b"", 1, 1, 1.0, [("note", "other")]))
        await store.release(lease)
        return caught.value.kind

    assert asyncio.run(go()) == "conflict"


def test_a_lease_that_could_not_be_given_back_is_free_for_the_same_process(tmp_path):
    async def go():
        address = fresh_schema()
        async with Tap(address, tmp_path).open() as tap:
            store = PostgresStore(tap.address, max_connections=1)
            lease = await store.claim("s", this_owner())
            tap.deaf = True
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.release(lease), 0.2)
        other = PostgresStore(address)
        await fetch(address, "UPDATE glidepath_sessions SET owner = $1, expires = 1e12", lease.owner)
        second = await other.claim("s", this_owner())
        with pytest.raises(StoreError, match="in flight"):
            await store_of(address).claim("s", this_owner())
        await other.release(second)
        return second.token > lease.token

    assert asyncio.run(go())


def store_of(address):
    return PostgresStore(address)


async def fetch(address, query, *arguments):
    connection = await asyncpg.connect(address)
    try:
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


def test_whatever_the_driver_raises_is_an_error_of_the_store(monkeypatch):
    async def broken(*_, **__):
        raise asyncpg.InternalClientError("got result for unknown protocol state 3")

    async def go():
        await PostgresStore("postgresql://nowhere/nothing").load("s")

    monkeypatch.setattr(asyncpg, "connect", broken)
    with pytest.raises(StoreError, match="unknown protocol state"):
        asyncio.run(go())


@pytest.mark.parametrize("session_id", ["a\0b", "\ud800", "x" * 5_000_000], ids=["nul", "surrogate", "long"])
def test_what_the_database_cannot_keep_fails_at_once(session_id):
    async def go():
        store, loop = PostgresStore(fresh_schema()), asyncio.get_running_loop()
        await store.entries()
        began = loop.time()
        with pytest.raises(StoreError):
            await store.claim(session_id, this_owner())
        return loop.time() - began

    assert asyncio.run(go()) < 10  # it is not taken for a restart


def test_nothing_is_left_of_a_beat_when_the_last_lease_is_given_back():
    async def go():
        store = PostgresStore(fresh_schema())
        leases = [await store.claim(name, this_owner()) for name in ("a", "b")]
        beating = asyncio.create_task(store.beat(leases, renew=False))
        await asyncio.sleep(0.01)
        beating.cancel()
        for lease in leases:
            await store.release(lease)
        return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert [name for name in asyncio.run(go()) if name.startswith("glidepath")] == []


def test_a_database_that_was_never_there_is_not_waited_for():
    async def go():
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(StoreError, match="cannot be reached"):
            await PostgresStore("postgresql://me@127.0.0.1:1/nothing").load("s")
        return loop.time() - began

    assert asyncio.run(go()) < 5


@pytest.mark.parametrize(("layout", "kind", "fix"), [(99, "newer", "a newer"), (0, "schema", "an older")])
def test_a_database_of_another_layout_is_refused(layout, kind, fix):
    async def look():
        address = fresh_schema()
        store = PostgresStore(address)
        await store.release(await store.claim("s", "me"))
        await store.close()
        connection = await asyncpg.connect(address)
        await connection.execute("UPDATE glidepath_layout SET version = $1", layout)
        await connection.close()
        store = PostgresStore(address)
        with pytest.raises(StoreError, match=f"has layout {layout}; this version knows 1: .*{fix} glidepath") as caught:
            await store.entries()
        assert caught.value.kind == kind
        await store.close()

    asyncio.run(look())


@pytest.mark.parametrize("most", [0, -1, True, None, 2.5])
def test_a_wrong_number_of_connections_is_refused(most):
    with pytest.raises(ConfigurationError, match="max_connections"):
        PostgresStore("postgresql://host/db", max_connections=most)


@pytest.mark.process
def test_g13_runs_ride_through_restarts_of_the_database():
    """Sixteen runs in flight, a clean restart and a crash of the server: all are done, and nothing is unknown."""
    server = Server()

    async def go():
        store, done = PostgresStore(server.dsn, max_connections=4), []
        agent = [stepper(store, done, steps=12, pause=0.15) for _ in range(16)]
        runs = [asyncio.create_task(one.run("go", session=f"s{place}")) for place, one in enumerate(agent)]
        for mode in ("fast", "immediate"):
            await asyncio.sleep(0.5)  # real time: let them fly
            await asyncio.to_thread(server.restart, mode)
            late = stepper(store, done, steps=2)
            runs.append(asyncio.create_task(late.run("go", session=f"late {mode}")))
        results = await asyncio.gather(*runs)
        journals = [len((await store.load(result.session_id))[1]) for result in results]
        return results, done, journals

    try:
        results, done, journals = asyncio.run(go())
    finally:
        server.close()
    assert {result.outcome for result in results} == {LoopOutcome.DONE}
    assert [result.unknown_effects for result in results] == [()] * 18
    assert len(done) == 16 * 12 + 2 * 2
    assert journals == [27] * 16 + [7] * 2
