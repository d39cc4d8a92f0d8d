"""Journals of every release so far: this release reads in them what the release that wrote them did, and goes on.

`golden/RELEASE` is made by `make_golden.py`.
"""

import asyncio
import json
from pathlib import Path

import pytest

from glidepath import Agent, Limits, LoopOutcome, approve, tool
from glidepath._version import VERSION
from glidepath.sessions import MemoryStore, parse_export, read, read_journal
from glidepath.sessions.fold import KINDS
from glidepath.testing import ScriptedModel, say, transcript_errors

GOLDEN = Path(__file__).parent / "golden"
RELEASES = sorted(path for path in GOLDEN.iterdir() if path.is_dir())
JOURNALS = sorted(GOLDEN.glob("*/*.jsonl"))
SCENES = sorted(path for path in JOURNALS if ".child" not in path.name)


def named(path):
    return f"{path.parent.name}-{path.stem}"


async def shelved(*paths):
    """A store with these journals as they were written, under their own ids."""
    store = MemoryStore()
    found = {entry.session_id: (entry, commits) for path in paths for entry, commits in parse_export(path.read_bytes())}
    for entry, commits in found.values():
        lease = await store.claim(entry.session_id, "the release that wrote it")
        for commit in commits:
            store.append(lease, commit, summary=entry.summary)
        await store.release(lease)
    return store


def test_this_release_has_golden_journals():
    assert VERSION in [path.name for path in RELEASES]
    first = {path.name for path in GOLDEN.joinpath("0.1.0").iterdir()}
    assert all(first <= {path.name for path in folder.iterdir()} for folder in RELEASES)


def test_every_kind_of_record_is_in_a_golden_journal_of_this_release():
    journals = [path for path in JOURNALS if path.parent.name == VERSION]
    found = {
        record.kind
        for path in journals
        for _, commits in parse_export(path.read_bytes())
        for commit in commits
        for record in read(commit)
    }
    assert found == set(KINDS)


@pytest.mark.parametrize("path", JOURNALS, ids=named)
def test_every_golden_journal_says_what_it_said(path):
    async def look():
        store = await shelved(path)
        entry = min(await store.entries(), key=lambda one: len(one.session_id))  # an export has the children, too
        journal = await read_journal(store, entry.session_id)
        folded, wanted = journal.folded, json.loads(path.with_suffix(".json").read_text())
        snapshot, result = folded.snapshot, folded.result
        assert folded.unread == []
        if snapshot is None:  # a recording is no run
            assert wanted == {"kinds": [record.kind for commit in journal.commits for record in read(commit)]}
            return
        assert wanted == {
            "roles": [message.role for message in folded.messages],
            "texts": [message.text for message in folded.messages],
            "outcome": None if result is None else result.outcome.name,
            "text": None if result is None else result.text,
            "iterations": snapshot.iterations,
            "tool_calls": snapshot.tool_calls,
            "tokens": snapshot.tokens,
            "picodollars": snapshot.picodollars,
            "spent": snapshot.spent.usage.total,
            "pending": [] if result is None else [waiting.call.id for waiting in result.pending],
            "intents": sorted(folded.intents),
            "results": sorted(folded.results),
            "children": [child.session_id for child in folded.children],
            "runs": folded.session.totals.runs,
        }

    asyncio.run(look())


def tools_of_today():
    @tool
    async def send(n: int) -> str:
        """Send."""
        return f"done {n}"

    @tool(idempotent=True)
    async def put(n: int) -> str:
        """Put."""
        return f"done {n}"

    @tool(requires_approval=True)
    async def pay(n: int) -> str:
        """Pay."""
        return f"done {n}"

    kid = Agent(model=ScriptedModel([]).forever(say("kid done")), tools=[send, put, pay], agent_name="kid")
    return [send, put, pay, kid.as_tool("delegate", "Hand a task over.")]


@pytest.mark.parametrize("path", SCENES, ids=named)
@pytest.mark.parametrize("way", ["resume", "new prompt"])
def test_every_golden_journal_can_be_gone_on_with(path, way):
    async def go_on():
        family = [one for one in JOURNALS if one.parent == path.parent and one.stem.startswith(path.stem)]
        store = await shelved(*family)
        agent = Agent(
            model=ScriptedModel([]).forever(say("done")),
            tools=tools_of_today(),
            limits=Limits(max_iterations=30, max_tokens=1_000_000),
            store=store,
        )
        before = (await read_journal(store, "s")).folded
        begun = set(before.intents) - set(before.results)
        if way == "resume":
            last = before.result
            decisions = {} if last is None else {waiting.call.id: approve() for waiting in last.pending}
            result = await agent.resume("s", decisions=decisions, accept_repair=True)
            assert result.tool_calls >= before.snapshot.tool_calls
        else:
            result = await agent.run("and now?", session="s")
        assert result.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP)
        assert transcript_errors(result.messages) == []
        assert result.messages[0] == before.messages[0]
        answers = {message.call_id: message for message in result.messages if message.role == "tool_result"}
        for call_id in begun:
            unknown = call_id in {call.id for call in result.unknown_effects}
            assert unknown == (answers[call_id].kind == "unknown_effect")
            assert unknown or way == "resume"

    asyncio.run(go_on())
