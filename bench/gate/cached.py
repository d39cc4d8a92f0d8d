"""How much of the provider's prompt cache the landing call keeps: the last call of each program against the one before.

    python bench/gate/cached.py [AGENT ...]

For requests of at least 10,000 tokens. On chat and Responses at least 97 % of what could be cached is read. On
Anthropic tools and system prompt are, because another `tool_choice` loses the messages there. The scripted cache
follows the vendors' rules (`glidepath.testing.upstream.prefix_cache`).
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fly import fly_cell
from install import is_installed
from table import AGENTS

USUAL = ("claude-code", "codex", "codex/classic", "opencode", "qwen-code", "gemini-cli")
LEAST, SHARE = 10_000, 0.97
FIXED = 4  # bytes a token of JSON schemas and instructions, as the scripted provider counts


def look(name, log):
    """The landing call and what it could have read: all of the call before it."""
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    main = [call for call in calls if not call["child"] and call["status"] == 200 and call["tools"]]
    landing = next(call for call in reversed(main) if call["choice"] == "none")
    before = main[main.index(landing) - 1]
    found = {"agent": name, "input": landing["input"], "cached": landing["cached"], "before": before["input"]}
    if AGENTS[name].dialect == "anthropic":
        body = landing["body"]
        fixed = len(json.dumps([body.get("tools"), body.get("system")], separators=(",", ":"))) / FIXED
        found["tools and system"], found["kept"] = int(fixed), round(landing["cached"] / fixed, 4)
    else:
        found["kept"] = round(landing["cached"] / before["input"], 4)
    found["ok"] = landing["input"] < LEAST or found["kept"] >= (SHARE if AGENTS[name].dialect != "anthropic" else 0.9)
    return found


def main():
    logs, bad = Path(tempfile.mkdtemp(prefix="gate-cached-")), 0
    for name in sys.argv[1:] or USUAL:
        if not is_installed(AGENTS[name].program):
            print(f"{name}: not installed: python bench/gate/agents.py install {AGENTS[name].program}")
            continue
        cell = asyncio.run(fly_cell(name, "loop", logs, seconds=300))
        found = look(name, logs / name.replace("/", "-") / "loop" / "upstream.jsonl")
        bad += not found["ok"] or cell.verdict != "ok"
        print(json.dumps({"verdict": cell.verdict, **found}), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
