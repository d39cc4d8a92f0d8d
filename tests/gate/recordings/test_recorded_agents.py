"""Real Claude Code and Codex, recorded on fixture tasks and replayed in the sandbox with no network but the recording.

`make test` replays a slice where the agents are installed; `make campaign` all 25 tasks of both.
"""

import asyncio

import pytest
from tests.gate.zoo import ZOO, need_agent

from glidepath.apps.gate.recordings import explain_no_sandbox

TASKS = {task.name: task for task in ZOO.replays.TASKS}
AGENTS = ("claude-code", "codex")
SLICE = (("claude-code", "two sub-agents"), ("codex", "a failing test, mended"))
PAIRS = [(name, task) for name in AGENTS for task in TASKS]

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(explain_no_sandbox()), reason="bubblewrap does not work here"),
]


def replay(name, task, logs):
    need_agent(name)
    found = asyncio.run(ZOO.replays.replay_session(name, TASKS[task], logs))
    assert found.verdict == "same", ZOO.replays.show(found)
    return found


@pytest.mark.parametrize(("name", "task"), SLICE)
def test_a_recorded_session_of_the_slice_replays_the_same(name, task, tmp_path):
    assert replay(name, task, tmp_path).calls >= 5


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), [pair for pair in PAIRS if pair not in SLICE])
def test_every_recorded_session_replays_the_same(name, task, tmp_path):
    replay(name, task, tmp_path)


def test_there_are_twenty_five_tasks_for_each_agent_with_sub_agents_among_them():
    assert len(PAIRS) == 50
    assert sum(bool(task.children) for task in TASKS.values()) >= 5
