"""Real agents, unmodified, with pinned releases: without a gate, and behind it with models that would never stop.

`make test` runs the slice: Claude Code, Codex and two frameworks. `make campaign` runs all of them, and tries the
newest releases: what those send that the table does not know is reported, and fails nothing.
"""

import asyncio
import functools
from pathlib import Path

import pytest
from tests.gate.zoo import ZOO, need_agent

SLICE = ("claude-code", "codex", "langgraph/anthropic", "openai-agents/responses")
AGENTS = tuple(ZOO.table.AGENTS)
CELLS = [(name, cell) for name in AGENTS for cell in ZOO.fly.CELLS if cell not in ZOO.table.AGENTS[name].cannot]
SLICE_CELLS = [(name, cell) for name, cell in CELLS if name in SLICE and cell in ("loop", "spawn")]
REPORTS = ZOO.install.REPOSITORY / "build" / "newest-agents"

pytestmark = pytest.mark.process


@functools.cache
def has_gate() -> bool:
    return ZOO.fly.has_gate()


def fly(name, cell, logs):
    need_agent(name)
    if not has_gate():
        pytest.skip("this glidepath has no `gate run`")
    found = asyncio.run(ZOO.fly.fly_cell(name, cell, logs, seconds=200))
    assert found.verdict == "ok", ZOO.fly.show(found)
    return found


@pytest.mark.parametrize(("name", "cell"), SLICE_CELLS)
def test_an_agent_of_the_slice_lands_with_an_answer_and_nothing_over(name, cell, tmp_path):
    found = fly(name, cell, tmp_path)
    assert found.tokens >= found.limit / 2  # it was let work until little was left
    report = ZOO.fly.read_report(Path(found.logs) / "report.json")
    # Codex leaves a reply in the middle when a sub-agent reports: what that cost is an estimate, and never too low.
    assert found.told == found.tokens or (report["estimated"] and found.told > found.tokens)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cell"), [pair for pair in CELLS if pair not in SLICE_CELLS])
def test_every_agent_lands_with_an_answer_and_nothing_over(name, cell, tmp_path):
    fly(name, cell, tmp_path)


def see(name, logs, *, newest=False):
    seen = asyncio.run(ZOO.observe.observe(name, logs, newest=newest))
    return ZOO.observe.compare(ZOO.observe.read_known()[name], seen), seen["version"]


@pytest.mark.parametrize("name", SLICE)
def test_an_agent_of_the_slice_answers_without_a_gate_and_sends_what_the_table_says(name, tmp_path):
    need_agent(name)
    assert see(name, tmp_path)[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in AGENTS if name not in SLICE])
def test_every_agent_answers_without_a_gate_and_sends_what_the_table_says(name, tmp_path):
    need_agent(name)
    assert see(name, tmp_path)[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("program", ZOO.table.PINS)
def test_the_newest_release_is_tried_and_what_is_new_is_reported(program, tmp_path):
    try:
        ZOO.install.install(program, newest=True)
    except ZOO.install.CannotInstallError as error:
        pytest.skip(str(error))
    lines = []
    for name, agent in ZOO.table.AGENTS.items():
        if agent.program == program:
            try:
                found, version = see(name, tmp_path / name.replace("/", "-"), newest=True)
                lines += [f"{name} {version}: {line}" for line in found] or [f"{name} {version}: nothing new"]
            except RuntimeError as error:
                lines.append(f"{name}: {error}")
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{program}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines
