"""What a journal costs: bytes and commits per turn, the same at turn 5,000 as at turn 20."""

import asyncio

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import SqliteStore, read_journal
from glidepath.values import codec

OVERHEAD = 1024


class Endless:
    """A model that calls a tool, each time about something else, until it is told to stop."""

    name = "endless"
    max_output_tokens = 1000

    def __init__(self, turns):
        self.left = turns

    async def stream(self, request):
        self.left -= 1
        yield TextDelta(f"Now number {self.left}. " * 10)
        if self.left:
            yield ToolCallDelta(
                0, f"call_{self.left}", "look", f'{{"query": "number {self.left}", "page": {self.left}}}'
            )
        yield StreamEnd("tool_use" if self.left else "end_turn", Usage(1000, 60))


@tool
async def look(query: str, page: int = 1) -> str:
    return f"page {page} about {query}: nothing new"


def fly(path, turns):
    """The bytes of the file after a checkpoint, the payload in it, and the bytes of each commit."""

    async def scene():
        store = SqliteStore(path)
        agent = Agent(
            model=Endless(turns),
            tools=[look],
            store=store,
            limits=Limits(max_iterations=10_000, max_tokens=10**11, max_cost="1000000"),
            prices={"endless": ("3", "15")},
        )
        result = await agent.run("go", session="s")
        assert (result.outcome, result.iterations) == (LoopOutcome.DONE, turns)
        journal = await read_journal(store, "s")
        store._group.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await store.close()
        payload = sum(len(codec.encode(message)) for message in result.messages)
        return payload, [len(commit.body) for commit in journal.commits]

    payload, sizes = asyncio.run(scene())
    return path.stat().st_size, payload, sizes


def test_a_turn_costs_less_than_a_kilobyte_over_its_payload(tmp_path):
    turns = 1000
    size, payload, sizes = fly(tmp_path / "s.db", turns)
    empty, little, _ = fly(tmp_path / "short.db", 1)  # the tables of a store take room, whatever is in them
    assert ((size - payload) - (empty - little)) / (turns - 1) < OVERHEAD
    assert len(sizes) <= 2 * turns + 2


def test_g19_turn_5000_writes_what_turn_20_writes(tmp_path):
    _, _, sizes = fly(tmp_path / "s.db", 5000)
    early, late = sum(sizes[20:120]), sum(sizes[-120:-20])
    assert late < early * 1.1
