"""A signal handler may raise at any bytecode: no commit is waited for that nobody will report."""

import asyncio
import threading

import pytest

from glidepath import Agent, Limits, tool
from glidepath.sessions import GroupCommit, SqliteFile, SqliteStore, StoreJob
from glidepath.testing import ScriptedModel, call


class SoftLimitError(Exception):
    """What the handler raises."""


def test_a_queue_that_was_hit_while_it_began_is_flushed(tmp_path):
    async def main():
        group, loop = GroupCommit(SqliteFile(tmp_path / "runs.db"), 5.0), asyncio.get_running_loop()
        real = loop.call_soon

        def hit(*_, **__):
            loop.call_soon = real
            raise SoftLimitError

        loop.call_soon = hit
        with pytest.raises(SoftLimitError):
            group.submit(lambda _: 1)
        answer = group.submit(lambda _: 2)
        while not answer.done:
            async with asyncio.timeout(3):
                await answer.make_done_future()
        assert answer.error is None
        group.close()

    asyncio.run(main())


@tool
async def look() -> str:
    """Look."""
    return "nothing"


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_commit_whose_report_was_hit_is_not_waited_for_again(nth, tmp_path, monkeypatch):
    calls, real, ended = [], StoreJob.call_when_done, []

    def hit(self, *arguments):
        calls.append(1)
        if len(calls) == nth:
            raise SoftLimitError
        return real(self, *arguments)

    monkeypatch.setattr(StoreJob, "call_when_done", hit)
    store = SqliteStore(tmp_path / "runs.db")
    agent = Agent(
        model=ScriptedModel([call("look"), "done"]),
        tools=[look],
        limits=Limits(max_iterations=3),
        store=store,
        durability="full",
    )
    thread = threading.Thread(target=lambda: ended.append(agent.run_sync("go")), daemon=True)
    thread.start()
    thread.join(8)
    assert len(ended) == 1, "it waits for ever"
    assert len(calls) >= nth
