"""What a dollar buys: Claude Code with $1.00 and a model that never stops, and six honest sub-agents on little more.

    python bench/gate/dollar.py [--runs 1] [--work 12]

`endless work`: at least 95 % of $1.00 is spent and an answer comes. `honest`: six sub-agents, each with `--work` tool
calls and an answer, cost W together without a limit; on 2 W and on 1.2 W every one of them does all of its work, with
exit code 0 and no landing.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from flight import Stage, describe, run_command
from fly import MODEL, OWN, read_report
from table import AGENTS

from glidepath.testing import ScriptedUpstream

CHILDREN = 6
SHARE = 0.95


async def fly(folder, behavior, flags):
    """Claude Code behind `glidepath gate run`; what it cost, and how much of the work was done."""
    folder.mkdir(parents=True)
    report, log = folder / "report.json", folder / "upstream.jsonl"
    async with ScriptedUpstream(behavior, log=log, keep=0) as up:
        stage = Stage(AGENTS["claude-code"], folder, "Count the steps #run-dollar, then report.", up.url, "k")
        command, env = stage.prepare(bare=False)
        gate = [sys.executable, "-m", "glidepath", "gate", "run", *flags, "--report", str(report), "--upstream", up.url]
        whole = [*gate, "--store", "none", "--", *command]
        code, seconds = await asyncio.to_thread(run_command, whole, env, stage.folder, 300)
        found = describe("claude-code", stage.folder, code, seconds, f"{MODEL}|{OWN}")
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    told = read_report(report)
    return {
        "code": code,
        "answer": found.answer,
        "cost": round(told.get("cost") or 0, 6),
        "landed": told.get("landed"),
        "calls": len(calls),
        "children": len({call["child"] for call in calls if call["child"]}),
        "child calls": sum(bool(call["child"]) for call in calls),
        "seconds": round(seconds, 1),
    }


def judge(found, work):
    """Whether six sub-agents have done all of their work."""
    done = found["children"] == CHILDREN and found["child calls"] == CHILDREN * (work + 1)
    return found["code"] == 0 and found["answer"] and done and not found["landed"]


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--work", type=int, default=12, help="tool calls of each sub-agent")
    options = parser.parse_args()
    honest = f"spawn:children={CHILDREN},then=answer,child=honest,calls={options.work}"
    logs, bad = Path(tempfile.mkdtemp(prefix="gate-dollar-")), 0
    for number in range(options.runs):
        found = await fly(logs / f"loop-{number}", "loop", ["--max-budget-usd", "1.00"])
        good = found["code"] == 0 and found["answer"] and SHARE <= found["cost"] <= 1
        bad += not good
        print(json.dumps({"cell": "$1.00, endless work", "ok": good, **found}), flush=True)
        free = await fly(logs / f"free-{number}", honest, ["--max-budget-usd", "1000"])
        print(
            json.dumps({"cell": "six honest sub-agents, no limit", "ok": judge(free, options.work), **free}), flush=True
        )
        bad += not judge(free, options.work)
        for times in (2.0, 1.2):
            limit = f"{free['cost'] * times:.6f}"
            found = await fly(logs / f"honest-{times}-{number}", honest, ["--max-budget-usd", limit])
            good = judge(found, options.work) and found["cost"] <= float(limit)
            bad += not good
            row = {"cell": f"six honest sub-agents, {times} x their cost", "ok": good, "limit": float(limit), **found}
            print(json.dumps(row), flush=True)
    print(f"logs: {logs}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
