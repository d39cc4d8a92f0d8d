"""A database that is not there, at the start or in the middle: clear words, and nothing lost."""

import asyncio
import contextlib
import re
import signal
import threading
from pathlib import Path

import pytest

from glidepath.engines.dbos import Fleet, Worker
from glidepath.errors import ConfigurationError, StoreError

from . import crew as agents
from .kit import Crew, fresh_database, until
from .test_fleet import check_transcript

NOBODY = "postgresql://me:hunter2@127.0.0.1:1/nothing"


class Line:
    """A line to the server that can be cut and mended."""

    def __init__(self, address, folder):
        self.server_socket = Path(re.search(r"host=([^&]+)", address)[1]) / ".s.PGSQL.5432"
        self.folder = folder
        self.address = re.sub(r"host=[^&]+", f"host={folder}", address)
        self.writers = set()
        self.server = None

    async def mend(self):
        path = self.folder / ".s.PGSQL.5432"
        self.server = await asyncio.start_unix_server(self._pass_on, path)

    async def cut(self):
        self.server.close()
        (self.folder / ".s.PGSQL.5432").unlink(missing_ok=True)
        for writer in list(self.writers):
            writer.transport.abort()
        await self.server.wait_closed()

    async def _pass_on(self, reader, writer):
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_unix_connection(self.server_socket)
            self.writers |= {writer, back}
            await asyncio.wait(
                [asyncio.create_task(_copy(reader, back)), asyncio.create_task(_copy(there, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
            for one in (writer, back):
                one.transport.abort()
                self.writers.discard(one)


async def _copy(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@pytest.mark.process
def test_a_database_that_goes_away_in_the_middle_loses_nothing(tmp_path):
    async def go():
        address = fresh_database()
        line = Line(address, tmp_path)
        await line.mend()
        with Crew(line.address, tmp_path, pause=0.1, lease=2) as crew:
            crew.start(1)
            async with Fleet(address) as fleet:
                await until(crew.ready)
                await fleet.set_budget(tokens=1_000_000)
                sessions = [await fleet.submit("stepper", "go") for _ in range(3)]
                await until(lambda: len(crew.sent()) >= 6)
                await line.cut()
                await until(lambda: "cannot be reached" in crew.log.read_text() or "failed" in crew.log.read_text())
                assert crew.workers[0].poll() is None  # it waits
                await asyncio.sleep(1)  # real time: the database is away for a while
                before = len(crew.sent())
                await line.mend()
                for session in sessions:
                    assert await fleet.wait(session, 40) == "done"
                    check_transcript(await fleet.result(session))
                assert crew.workers[0].poll() is None
        await line.cut()
        assert before < 15  # it was in the middle
        assert set(crew.sent().values()) == {1}

    asyncio.run(go())


@pytest.mark.process
def test_a_worker_can_be_stopped_while_its_database_is_away(tmp_path):
    async def go():
        address = fresh_database()
        line = Line(address, tmp_path)
        await line.mend()
        with Crew(line.address, tmp_path, pause=0.1, lease=1) as crew:
            crew.start(1)
            async with Fleet(address) as fleet:
                await until(crew.ready)
                session = await fleet.submit("stepper", "go")
                await until(lambda: len(crew.sent()) >= 2)
                await line.cut()
                await until(lambda: "cannot be reached" in crew.log.read_text() or "failed" in crew.log.read_text())
                crew.workers[0].send_signal(signal.SIGTERM)
                gone = asyncio.to_thread(crew.workers.pop().wait, 30)
                assert await gone == 143
                await line.mend()
                crew.start(1)
                assert await fleet.wait(session, 30) == "done"
                check_transcript(await fleet.result(session))
        await line.cut()
        assert set(crew.sent().values()) == {1}

    asyncio.run(go())


def test_a_worker_says_that_its_database_is_not_there(tmp_path):
    async def go():
        await Worker(NOBODY, agents={"small": agents.small}).serve()

    with pytest.raises(StoreError, match="cannot be reached") as caught:
        asyncio.run(go())
    assert "hunter2" not in str(caught.value)


def test_a_submit_says_that_its_database_is_not_there():
    async def go():
        async with Fleet(NOBODY) as fleet:
            await fleet.submit("small", "go")

    with pytest.raises(StoreError, match="cannot be reached"):
        asyncio.run(go())


def test_a_second_worker_in_one_process_is_refused_and_the_first_goes_quietly(capfd):
    """DBOS has one instance for a process. No thread of it, and no word, is left."""

    async def go():
        address = fresh_database()
        first = Worker(address, agents={"small": agents.small}, poll=0.1)
        serving = asyncio.create_task(first.serve())
        await asyncio.wait_for(first.started(), 30)
        with pytest.raises(ConfigurationError, match="already has a worker"):
            await Worker(address, agents={"small": agents.small}).serve()
        async with Fleet(address) as fleet:
            session = await fleet.submit("small", "go")
            assert await fleet.wait(session, 30) == "done"
            check_transcript(await fleet.result(session))
        first.stop()
        await serving

    before = set(threading.enumerate())
    asyncio.run(go())
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert left == []
    assert capfd.readouterr() == ("", "")


def test_the_extra_is_named_when_it_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "dbos", None)
    with pytest.raises(ConfigurationError, match=r"\[dbos\]"):
        asyncio.run(Worker("postgresql://host/db", agents={"small": agents.small}).serve())
