"""A booking that happens exactly once, whatever dies in between.

The seat and the result of the call that books it are one PostgreSQL
transaction. Run it with the address of a database, and kill it as you like:

    python examples/transactional_tool.py postgresql://localhost/shop
"""

import asyncio
import sys

from glidepath import Agent, Limits, tool
from glidepath.sessions import PostgresStore
from glidepath.testing import ScriptedModel, call, say
from glidepath.tools import StoreConnection


@tool(transactional=True, timeout=5.0)
def book_seat(connection: StoreConnection, seat: int, passenger: str) -> str:
    """Book a seat for a passenger."""
    # No commit here: the seat and this call's result are committed together, after the function returns.
    connection.execute("CREATE TABLE IF NOT EXISTS seats(seat int PRIMARY KEY, passenger text NOT NULL)")
    taken = connection.fetchval("SELECT passenger FROM seats WHERE seat = $1", seat)
    if taken is not None:
        return f"Seat {seat} is taken by {taken}."
    connection.execute("INSERT INTO seats VALUES($1, $2)", seat, passenger)
    return f"Seat {seat} is yours."  # an exception instead would roll everything back


async def main(dsn: str) -> None:
    store = PostgresStore(dsn)
    model = ScriptedModel([call("book_seat", seat=12, passenger="Ann"), say("You sit in 12.")])
    agent = Agent(model=model, tools=[book_seat], store=store, durability="full", limits=Limits(max_iterations=5))
    sessions = {entry.session_id: entry for entry in await store.entries("trip")}
    # A process that died in the middle left either both, the seat and the result, or neither: resuming is safe.
    result = await (agent.resume("trip") if "trip" in sessions else agent.run("Book seat 12 for Ann.", session="trip"))
    print(result.text)
    print(f"calls whose effect is unknown: {len(result.unknown_effects)}")
    await store.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(main(sys.argv[1]))
    else:
        print(__doc__)
