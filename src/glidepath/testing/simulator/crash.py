"""A flight whose process is killed in the middle of a tool, and which is resumed from its journal."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import warnings
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from glidepath._wire import encode, replace
from glidepath.agent import Agent, LoopConfig
from glidepath.run import CancelToken, approve
from glidepath.sessions import SqliteStore
from glidepath.testing.simulator.sim_world import SimWorld
from glidepath.testing.specimens import Specimen
from glidepath.tools import Tool
from glidepath.values import LoopOutcome, RunResult

PROMPT = "Do the work and report what you found."
SESSION = "killed"
APPROVALS = 25
PATIENCE = 20.0  # real seconds until the kill


class KilledWorld(SimWorld):
    """A world whose tools write a line to disk for every call; the second call kills the process."""

    def __init__(self, config: LoopConfig, specimen: Specimen, chance: Random, effects: Path, *, deadly: bool) -> None:
        super().__init__(config, specimen, chance)
        self._effects = effects
        self._deadly = deadly

    def _make_stand_in(self, original: Tool) -> Tool:
        async def stand_in(**arguments: object) -> str:
            self.count_tool_start()
            with self._effects.open("ab") as file:
                file.write(encode({original.name: arguments}) + b"\n")
            if self._deadly and self.tools_started > 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return f"done {self.tools_started}"

        return self.copy_of(original, stand_in)


def run_killed_and_resumed(
    config: LoopConfig, kind: type[Specimen], seed: int, sink: object
) -> tuple[SimWorld, RunResult, float, tuple[str, ...]]:
    """Run until the process is killed, then resume from the journal; returns that run, and what was done twice."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="glidepath-sim-") as folder:
        effects, journal = Path(folder) / "effects", Path(folder) / "journal.db"
        effects.touch()
        _run_and_kill(config, kind, seed, effects, journal)
        world = KilledWorld(config, kind(), Random(seed), effects, deadly=False)  # noqa: S311 - for tests
        result = asyncio.run(_resume_run(world, journal, sink))
        lines = effects.read_bytes().splitlines()
    idempotent = {tool.name.encode() for tool in config.tools if tool.idempotent}
    twice = {line for line in lines if lines.count(line) > 1 and not any(b'"%b"' % name in line for name in idempotent)}
    return world, result, time.monotonic() - began, tuple(sorted(line.decode() for line in twice))


def _run_and_kill(config: LoopConfig, kind: type[Specimen], seed: int, effects: Path, journal: Path) -> None:
    with warnings.catch_warnings():  # later Pythons warn of threads: the child runs its own loop and ends by a signal
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            world = KilledWorld(config, kind(), Random(seed), effects, deadly=True)  # noqa: S311 - for tests
            asyncio.run(_run_first_leg(world, journal))
        finally:
            os._exit(0)
    deadline = time.monotonic() + PATIENCE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:  # a plugin or constraint holds it up: only the journal counts
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.005)


async def _run_first_leg(world: SimWorld, journal: Path) -> None:
    agent = Agent(replace(world.configuration(None), store=SqliteStore(str(journal))))
    await approve_all(agent, await agent.run(PROMPT, session=SESSION))


async def _resume_run(world: SimWorld, journal: Path, sink: object) -> RunResult:
    store = SqliteStore(str(journal))
    agent = world.agent = Agent(replace(world.configuration(sink), store=store))
    try:
        return await approve_all(agent, await agent.resume(SESSION))
    finally:
        await store.close()


async def approve_all(agent: Agent, result: RunResult, cancel: CancelToken | None = None) -> RunResult:
    """Approve every pending call until the run ends."""
    for _ in range(APPROVALS):
        if result.outcome is not LoopOutcome.PAUSED:
            break
        decisions = {pending.call.id: approve() for pending in result.pending}
        result = await agent.resume(result, decisions=decisions, cancel=cancel)
    return result
