"""What a journal costs: bytes and commits per turn, the same at turn 5,000 as at turn 20."""

import asyncio
import os
import sys

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage, codec
from glidepath.sessions import MemoryStore, SegmentStore, SqliteStore, own_segment
from glidepath.sessions.archive import read_journal
from glidepath.sessions.scribe import Scribe

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
        store._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await store.close()
        payload = sum(len(codec.encode(message)) for message in result.messages)
        return payload, [len(commit.body) for commit in journal.commits]

    payload, sizes = asyncio.run(scene())
    return path.stat().st_size, payload, sizes


def test_a_turn_costs_less_than_a_kilobyte_over_its_payload(tmp_path):
    turns = 1000
    size, payload, sizes = fly(tmp_path / "s.db", turns)
    assert (size - payload) / turns < OVERHEAD
    assert len(sizes) <= 2 * turns + 2


def test_g19_turn_5000_writes_what_turn_20_writes(tmp_path):
    _, _, sizes = fly(tmp_path / "s.db", 5000)
    early, late = sum(sizes[20:120]), sum(sizes[-120:-20])
    assert late < early * 1.1


class Counting:
    """The system, as one module sees it, with a count of its calls and of the bytes written."""

    def __init__(self):
        self.calls, self.bytes = {}, 0

    def __getattr__(self, name):
        found = getattr(os, name)
        if not callable(found) or name == "getpid":
            return found

        def called(*arguments, **keywords):
            self.calls[name] = self.calls.get(name, 0) + 1
            if name == "write":
                self.bytes += len(arguments[1])
            return found(*arguments, **keywords)

        return called


def test_a_commit_in_a_segment_is_one_write_and_a_turn_less_than_two_kilobytes(tmp_path, monkeypatch):
    turns, counted = 300, Counting()
    monkeypatch.setattr(own_segment, "os", counted)

    async def scene():
        store = SegmentStore(tmp_path / "s")
        agent = Agent(
            model=Endless(turns),
            tools=[look],
            store=store,
            limits=Limits(max_iterations=10_000, max_tokens=10**11, max_cost="1000000"),
            prices={"endless": ("3", "15")},
        )
        assert (await agent.run("go", session="s")).outcome is LoopOutcome.DONE
        written = dict(counted.calls)
        commits = (await store.load("s"))[0].head
        await store.close()
        return written, commits

    written, commits = asyncio.run(scene())
    extra = 4  # the segment's head, the claim, the release, and one to spare
    assert commits <= 2 * turns + 2
    assert commits < written["write"] <= commits + extra
    assert written["lseek"] <= commits + extra
    assert counted.bytes / turns < 2000
    index = (tmp_path / "s" / "index.db").stat().st_size
    assert index < 64 * 1024  # it does not grow with the journal


MOST_OPCODES = 1_590  # of a turn, in the modules of sessions, all its commits written into a segment
FIRST, LAST = 30, 10  # turns between which they are counted


class Watched(Endless):
    """Counts the opcodes of the journal while it is asked for turns in the middle of a run."""

    def __init__(self, turns):
        super().__init__(turns)
        self.opcodes = 0

    def trace(self, frame, event, _):
        if "/glidepath/sessions/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and LAST <= self.left < FIRST:
            self.opcodes += 1
        return self.trace


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="opcodes are counted for Python 3.11")
def test_a_turn_in_a_segment_takes_no_more_opcodes_than_it_did(tmp_path):
    """Lower the figure when a commit gets cheaper; raise it only with a reason in the commit message."""
    model = Watched(40)

    async def scene():
        store = SegmentStore(tmp_path / "s")
        agent = Agent(model=model, tools=[look], store=store, limits=Limits(max_iterations=10_000, max_tokens=10**11))
        before = sys.gettrace()
        sys.settrace(model.trace)
        try:
            result = await agent.run("go", session="s")
        finally:
            sys.settrace(before)
        await store.close()
        return result

    assert asyncio.run(scene()).outcome is LoopOutcome.DONE
    assert MOST_OPCODES * 0.7 < model.opcodes / (FIRST - LAST) <= MOST_OPCODES


class Later(MemoryStore):
    """Takes a commit when it is awaited."""

    async def append(self, lease, commit, **how):
        await asyncio.sleep(0)
        return super().append(lease, commit, **how)


@pytest.mark.parametrize("store", [MemoryStore, Later])
def test_an_ordinary_commit_takes_the_short_way_also_after_one_that_had_to_be_awaited(store, monkeypatch):
    long, commit = [], Scribe._commit
    monkeypatch.setattr(Scribe, "_commit", lambda self, *args: long.append(self.number) or commit(self, *args))

    async def scene():
        kept = store()
        agent = Agent(model=Endless(8), tools=[look], store=kept, limits=Limits(max_iterations=50))
        assert (await agent.run("go", session="s")).outcome is LoopOutcome.DONE
        return (await kept.load("s"))[0].head

    head = asyncio.run(scene())
    assert long == [0, 1, head - 1]  # the beginning, the first call of the model, which nothing precedes, and the end
