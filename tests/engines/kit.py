"""A database for each test, worker processes, and what they did."""

import asyncio
import contextlib
import inspect
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import asyncpg
from tests.crash.postgres import dsn

from glidepath.apps.cli import CliContext
from glidepath.cli import main

HERE = Path(__file__).resolve().parent


def in_thread(coroutine):
    thread = threading.Thread(target=lambda: asyncio.run(coroutine))  # a loop may run in this one
    thread.start()
    thread.join()


def fresh_database() -> str:
    """The address of an empty database on the suite's server."""
    name = f"f{os.urandom(6).hex()}"

    async def create():
        connection = await asyncpg.connect(dsn())
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    in_thread(create())
    return dsn().replace("/postgres?", f"/{name}?")


class Crew:
    """Worker processes, and a file in which every effect leaves a line."""

    def __init__(self, address, folder, *, pause=0.0, lease=2.0, concurrency=8, agents=("stepper=crew:stepper",)):
        self.address = address
        self.effects_file = folder / "effects"
        self.log = folder / "log"
        self.workers = []
        self.options = ["--lease", str(lease), "--poll", "0.1", "--concurrency", str(concurrency), "--drain", "5"]
        for agent in agents:
            self.options += ["--agent", agent]
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        self.environment |= {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))),
            "CREW_EFFECTS": str(self.effects_file),
            "CREW_PAUSE": str(pause),
            "GLIDEPATH_STORE": address,
        }

    def start(self, count=1):
        for _ in range(count):
            with self.log.open("ab") as log:
                command = [sys.executable, "-m", "glidepath.cli", "worker", *self.options]
                self.workers.append(subprocess.Popen(command, stderr=log, stdout=log, env=self.environment, cwd=HERE))

    def command(self, *argv):
        """What a command says and answers, in this process."""
        out, err = io.StringIO(), io.StringIO()
        world = CliContext(environ=self.environment, stdin=io.StringIO(), stdout=out, stderr=err, folder=HERE)
        with contextlib.redirect_stderr(err):
            try:
                code = main(argv, world)
            except SystemExit as stop:  # of the parser
                code = stop.code
        return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())

    def kill(self, worker):
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        self.workers.remove(worker)

    def close(self):
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGCONT)
                worker.send_signal(signal.SIGKILL)
            worker.wait()

    def lines(self, kind):
        text = self.effects_file.read_text() if self.effects_file.exists() else ""
        return [tuple(line.split()[1:]) for line in text.splitlines() if line.split()[0] == kind]

    def sent(self):
        """How often each message of each run was sent."""
        return Counter((session, number) for session, number, _ in self.lines("send"))

    def ready(self):
        """How many workers have said that they are running."""
        return self.log.read_text().count(" is running: ") if self.log.exists() else 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


async def until(true, seconds=90.0):
    """Wait until something is so."""
    limit = time.monotonic() + seconds
    while not (await answer if inspect.isawaitable(answer := true()) else answer):
        assert time.monotonic() < limit, "it never came to that"
        await asyncio.sleep(0.05)


async def fetch(address, query, *arguments):
    connection = await asyncpg.connect(address)
    try:
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


async def within(seconds, *coroutines):
    """What they answer; when one does not, what each task of this loop is waiting for."""
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    _, late = await asyncio.wait(tasks, timeout=seconds)
    if late:
        stacks = io.StringIO()
        for task in asyncio.all_tasks():
            task.print_stack(file=stacks)
        raise AssertionError(f"{len(late)} of {len(tasks)} have not ended after {seconds} s\n{stacks.getvalue()}")
    return [task.result() for task in tasks]
