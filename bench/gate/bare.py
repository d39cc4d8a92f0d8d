"""Every agent without a gate: it answers when the model does, and runs on while the model wants it to."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from flight import TIMED_OUT, fly
from install import is_installed
from table import AGENTS

from glidepath.testing import ScriptedUpstream

WORKS = "SCRIPTED-ANSWER after [1-9]"
ANSWERS = "SCRIPTED-ANSWER"
LOOP_SECONDS = 20


async def try_agent(name: str, logs: Path, behavior: str, seconds: float, *, newest: bool) -> dict:
    """One run against its own upstream, with what the upstream counted."""
    folder = logs / name.replace("/", "-") / behavior.partition(":")[0]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "upstream.jsonl"
    log.unlink(missing_ok=True)
    marker = ANSWERS if "loop" in AGENTS[name].cannot else WORKS
    async with ScriptedUpstream(behavior, log=log, bodies=True, keep=0) as up:
        flight = await asyncio.to_thread(
            fly,
            name,
            folder,
            task="Count the steps #run-bare, then report.",
            url=up.url,
            key="some-key",
            seconds=seconds,
            marker=marker,
            newest=newest,
        )
        usage = up.usage
        return {
            **asdict(flight),
            "behavior": behavior,
            "looks": list(up.looks),
            "calls": usage.calls,
            "refused": usage.refused,
            "input": usage.input,
            "output": usage.output,
        }


def judge(row: dict) -> str:
    """Whether a row is as expected."""
    if row["refused"]:
        return "REFUSED"
    if row["behavior"] == "loop":
        return "ok" if row["code"] == TIMED_OUT and row["calls"] > 3 else "ENDED"
    return "ok" if row["code"] == 0 and row["answer"] else "FAILED"


def run_all(names: list[str], logs: Path, *, newest: bool, out: Path | None) -> int:
    """Each agent with an honest model, then with one that never stops; a table, and JSON if asked for."""
    rows = []
    for name in names:
        agent = AGENTS[name]
        if not newest and not is_installed(agent.program):
            print(f"{name:24} not installed: python bench/gate/agents.py install {agent.program}")
            continue
        for behavior, seconds in (("honest:calls=3", 120), ("loop", LOOP_SECONDS)):
            if behavior in agent.cannot:
                print(f"{name:24} {behavior:16} cannot: {agent.cannot[behavior]}", flush=True)
                continue
            row = asyncio.run(try_agent(name, logs, behavior, seconds, newest=newest))
            row["verdict"] = judge(row)
            rows.append(row)
            print(
                f"{name:24} {behavior:16} {row['verdict']:8} code {row['code']:3} {row['seconds']:6.1f} s "
                f"answer {'yes' if row['answer'] else 'no':3} calls {row['calls']:5} refused {row['refused']} "
                f"tokens {row['input']} + {row['output']}",
                flush=True,
            )
    if out:
        out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"logs: {logs}", file=sys.stderr)
    return 0 if all(row["verdict"] == "ok" for row in rows) else 1
