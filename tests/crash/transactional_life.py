"""One life of a run with transactional calls: transactional_life.py DSN CALLS DURABILITY KILL NUMBER.

It starts the run, or resumes it, and kills itself at a place in the call with this number.
"""

import asyncio
import logging
import os
import signal
import sys

from glidepath import Agent, Limits, Usage, tool
from glidepath.errors import ConfigurationError
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta
from glidepath.sessions import PostgresStore, PostgresTransaction
from glidepath.tools import StoreConnection

DSN, CALLS, DURABILITY, KILL, NUMBER = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
BEGUN = []


def die(place):
    if place == KILL and BEGUN[-1] == NUMBER:
        os.kill(os.getpid(), signal.SIGKILL)


class Model:
    """Books the seats one after the other."""

    name, max_output_tokens = "m", 100

    async def stream(self, request):
        done = sum(message.role == "tool_result" for message in request.messages)
        if not request.tools or done >= CALLS:
            yield TextDelta("done")
            yield StreamEnd("end_turn", Usage(10, 5))
        else:
            yield ToolCallDelta(index=0, id=f"c{done}", name="book", arguments=f'{{"number": {done + 1}}}')
            yield StreamEnd("tool_use", Usage(10, 5))


@tool(transactional=True)
def book(connection: StoreConnection, number: int) -> str:
    """Book a seat."""
    BEGUN.append(number)
    die("begun")
    connection.execute("INSERT INTO seats VALUES($1, 'x')", number)
    die("inside")
    return f"booked {number}"


class Dying(PostgresTransaction):
    """Dies between the steps of a commit."""

    async def append(self, *given, **options):
        die("returned")
        execute, line = self._line.execute, self._line

        async def dying(query, *values, **more):
            if query == "COMMIT":
                die("appended")
            return await execute(query, *values, **more)

        line_of(self, line, dying)
        await super().append(*given, **options)
        die("committed")


class line_of:  # noqa: N801 - a wrapper of one method
    """The same connection with another `execute`."""

    def __init__(self, transaction, line, execute):
        self._line, self.execute = line, execute
        transaction._line = self

    def __getattr__(self, name):
        return getattr(self._line, name)


class Store(PostgresStore):
    """A store whose transactions may die."""

    async def begin_transaction(self, lease, seconds):
        return await Dying(self, lease, seconds).begin()


async def main():
    store = Store(DSN, lease=0.5)
    agent = Agent(model=Model(), tools=[book], store=store, durability=DURABILITY, limits=Limits(max_iterations=30))
    print("begun", flush=True)
    while True:
        try:
            result = await agent.resume("s")
        except ConfigurationError:
            result = await agent.run("go", session="s")
        if result.cause is None or result.cause.metrics.get("kind") != "busy":
            break
        await asyncio.sleep(0.1)
    await store.close()
    assert result.ok, result
    print(f"unknown={len(result.unknown_effects)}")


logging.disable(logging.WARNING)
asyncio.run(main())
