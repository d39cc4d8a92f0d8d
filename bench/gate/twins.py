"""Whose call is it? Fifty runs of six agents at once behind one gate, twins with equal prompts among them.

    python bench/gate/twins.py [--runs 50] [--at-once 10]

Claude Code, Codex and OpenCode (whose sub-agents the model starts), Qwen Code, LangGraph and the OpenAI Agents SDK run
before one `glidepath gate serve`. Every second run is the twin of the one before: the same program, the same task, at
the same time. The gate is given no hint: no path, no header of ours. What it kept is compared with what the provider
saw, by the ids of tool calls, which no two conversations share: each must be one agent of one session, whole.
"""

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from flight import Stage, run_command
from install import is_installed
from served import KEY, ServedProcess
from table import AGENTS

from glidepath.sessions import SqliteStore, read_journal
from glidepath.testing import ScriptedUpstream

NAMES = ("claude-code", "codex", "opencode", "qwen-code", "langgraph/chat", "openai-agents/responses")
SPAWNING = ("claude-code", "codex", "opencode")


async def run_agent(name, folder, url, limit):
    """One unmodified program, pointed at the gate as a person would; its exit code."""
    async with limit:
        stage = Stage(AGENTS[name], folder, "Count the steps, then report.", url, KEY)
        command, env = stage.prepare(bare=True)
        code, _ = await asyncio.to_thread(run_command, command, env, stage.folder, 300)
        return code


def group_calls(log):
    """The provider's calls by conversation: two are of one if the later repeats a tool call of the earlier."""
    owner, conversations = {}, []
    for line in log.read_text().splitlines():
        call = json.loads(line)
        if call["status"] != 200:
            continue
        ids = find_ids(call["body"])
        place = next((owner[one] for one in ids if one in owner), None)
        if place is None:
            place = len(conversations)
            conversations.append([])
        owner.update(dict.fromkeys(ids, place))
        conversations[place].append(call)
    return conversations


def find_ids(value):
    """Ids of tool calls anywhere in a request."""
    found = []
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("tool_use_id", "tool_call_id", "call_id") and isinstance(inner, str):
                found.append(inner)
            else:
                found += find_ids(inner)
    elif isinstance(value, list):
        for inner in value:
            found += find_ids(inner)
    return found


async def read_sessions(path):
    """What the gate kept: ids of tool calls by session, and how many calls each session has."""
    store = SqliteStore(path)
    owners, turns = defaultdict(set), Counter()
    entries = await store.entries("gate:")
    for entry in entries:
        folded = (await read_journal(store, entry.session_id)).folded
        turns[entry.session_id] = folded.snapshot.iterations
        for message in folded.messages:
            for call in getattr(message, "tool_calls", ()):
                owners[call.id].add(entry.session_id)
    await store.close()
    return owners, turns


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=10)
    options = parser.parse_args()
    names = [name for name in NAMES if is_installed(AGENTS[name].program)]
    plan = list(itertools.islice(itertools.cycle([name for name in names for _ in range(2)]), options.runs))
    logs = Path(tempfile.mkdtemp(prefix="gate-twins-"))
    log = logs / "upstream.jsonl"
    behavior = "spawn:children=1,then=answer,child=honest,calls=3"
    async with ScriptedUpstream(behavior, log=log, bodies=True, keep=0) as up:
        with ServedProcess(up.url, folder=None) as gate:
            limit = asyncio.Semaphore(options.at_once)
            flights = [
                run_agent(name, logs / f"{number}-{name.replace('/', '-')}", gate.url, limit)
                for number, name in enumerate(plan)
            ]
            codes = await asyncio.gather(*flights)
            gate.stop()
            owners, turns = await read_sessions(gate.store)
        used = up.usage
    conversations = group_calls(log)
    split = [
        ids
        for one in conversations
        if len(ids := {name for call in one for i in find_ids(call["body"]) for name in owners[i]}) > 1
    ]
    shared = Counter(
        name for one in conversations for name in {n for call in one for i in find_ids(call["body"]) for n in owners[i]}
    )
    found = {
        "runs": len(plan),
        "programs": len(names),
        "failed": sum(code != 0 for code in codes),
        "calls": used.calls,
        "calls kept": sum(turns.values()),
        "conversations with tools": sum(any(find_ids(call["body"]) for call in one) for one in conversations),
        "sessions": len(turns),
        "conversations in two sessions": len(split),
        "sessions with two conversations": sum(count > 1 for count in shared.values()),
        "logs": str(logs),
    }
    print(json.dumps(found, indent=1))
    wrong = found["failed"] or split or found["sessions with two conversations"] or used.calls != sum(turns.values())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
