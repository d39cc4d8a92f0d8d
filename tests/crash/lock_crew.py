"""One of several processes on one SQLite store: agents that work, until they are told to stop.

    python lock_crew.py STORE NAME

Prints `ready` once all agents work, reads one line, cancels every run, and prints what it saw as JSON. Times are by the
monotonic clock, which processes share.
"""

import asyncio
import json
import sys
import time

from glidepath import Agent, CancelToken, Limits, tool
from glidepath.messages import StreamEnd, ToolCallDelta, Usage
from glidepath.sessions import SqliteStore

BUSY, HANGING = 4, 2  # agents that call one short tool after the other, and agents in a call that does not end


class Caller:
    """Calls the same tool for ever."""

    name, max_output_tokens = "caller", 100

    def __init__(self, tool_name):
        self.tool_name, self.turn = tool_name, 0

    async def stream(self, request):
        self.turn += 1
        yield ToolCallDelta(0, f"c{self.turn}", self.tool_name, json.dumps({"n": self.turn}))
        yield StreamEnd("tool_use", Usage(50, 5))


class Seen:
    """What happened in this process, and when."""

    def __init__(self):
        self.begun, self.hanging, self.interrupted, self.lags = [], 0, [], []

    async def watch(self):
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self.lags.append((time.monotonic(), time.monotonic() - before - 0.01))


def tools_of(seen):
    @tool
    async def step(n: int) -> str:
        """Work a little."""
        seen.begun.append(time.monotonic())
        await asyncio.sleep(0.02)
        return f"did {n}"

    @tool
    async def hang(n: int) -> str:
        """Wait for something that does not come."""
        seen.hanging += 1
        try:
            await asyncio.sleep(600)
        finally:
            seen.interrupted.append(time.monotonic())
        return "never"

    return [step, hang]


async def main(path, name):
    seen, token, store = Seen(), CancelToken(), SqliteStore(path)
    limits = Limits(max_iterations=10**6, max_tokens=10**9)
    runs = [
        asyncio.create_task(
            Agent(
                model=Caller("step" if number < BUSY else "hang"), tools=tools_of(seen), limits=limits, store=store
            ).run("go", session=f"{name}-{number}", cancel=token)
        )
        for number in range(BUSY + HANGING)
    ]
    watching = asyncio.create_task(seen.watch())
    while seen.hanging < HANGING or len(seen.begun) < BUSY:  # noqa: ASYNC110 - until all are at work
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    token.cancel("enough")
    stopped = time.monotonic()
    ends = []
    for run in asyncio.as_completed(runs):
        result = await run
        ends.append((result.outcome.name, time.monotonic()))
    watching.cancel()
    await store.close()
    print(
        json.dumps(
            {
                "stopped": stopped,
                "ends": ends,
                "begun_late": [at for at in seen.begun if at > stopped],
                "interrupted": seen.interrupted,
                "lags": seen.lags,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
