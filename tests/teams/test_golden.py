"""Team journals of every release so far: this release goes on with them, and writes what they have."""

from pathlib import Path

import pytest

from glidepath import _wire, approve
from glidepath.sessions import MemoryStore, parse_export, read
from glidepath.teams import StepState, TeamStatus
from glidepath.testing import virtual

from .make_golden import SCENES, coordinator, crew, written

GOLDEN = sorted(Path(__file__).with_name("golden").glob("*/*.jsonl"))


async def shelved(data):
    """A store with these journals as they were written, under their own ids."""
    store = MemoryStore()
    for entry, commits in parse_export(data):
        lease = await store.claim(entry.session_id, "the release that wrote it")
        for commit in commits:
            store.append(lease, commit, summary=entry.summary)
        await store.release(lease)
    return store


def named(path):
    return f"{path.parent.name}-{path.stem}"


def test_there_is_a_golden_journal_of_every_scene():
    assert {path.stem for path in GOLDEN} == set(SCENES)


@pytest.mark.parametrize("path", GOLDEN, ids=named)
@virtual
async def test_g13_a_golden_team_goes_on_without_repeating_what_was_done(path):
    store = await shelved(path.read_bytes())
    team = crew(store)
    result = await team.resume(path.stem, coordinator=coordinator())
    if result.status is TeamStatus.PAUSED:  # the killed one comes this far only now
        [waiting] = result.outcome("post").pending
        result = await team.resume(path.stem, decisions={waiting.call.id: approve()}, coordinator=coordinator())
    assert result.status is TeamStatus.COMPLETED
    assert [outcome.state for outcome in result.step_outcomes] == [StepState.COMPLETED] * 3
    assert [outcome.output for outcome in result.step_outcomes] == ["Bees dance.", "A second text.", "It is out."]
    assert [outcome.attempts for outcome in result.step_outcomes] == [1, 2, 1]
    assert [verdict.feedback for verdict in result.outcome("text").verdicts] == ["name a source", ""]
    writer, editor = (member.agent.config.model for member in team.members)
    assert writer.calls == (1 if path.stem == "killed" else 0)
    assert editor.calls == 1


@pytest.mark.parametrize("path", GOLDEN, ids=named)
@virtual
async def test_this_release_writes_the_records_that_the_golden_journal_has_and_says_no_less_in_them(path):
    now, then = shape(await written(path.stem)), shape(path.read_bytes())
    assert {step: [kind for kind, _ in records] for step, records in now.items()} == {
        step: [kind for kind, _ in records] for step, records in then.items()
    }
    for step, records in then.items():
        assert all(said <= more for (_, said), (_, more) in zip(records, now[step], strict=True))


def shape(data):
    """The records of each step, and of the team, in order: their kinds, and the names of what they say."""
    [*_, commits] = next(item for item in parse_export(data) if item[0].session_id.startswith("team:"))
    found = {}
    for number, record in enumerate((record for commit in commits for record in read(commit)), 1):
        said = _wire.loads(bytes(record.payload))
        assert record.sequence == said["sequence"] == number
        found.setdefault(said["step_id"], []).append((record.kind, said.keys()))
    return found
