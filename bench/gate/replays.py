"""Recorded sessions of real agents, replayed in the sandbox with no network but the recording: how many are the same.

python bench/gate/replays.py                              # Claude Code and Codex, 25 fixture tasks each
python bench/gate/replays.py claude-code --tasks "one sub-agent" "a repository" --out build/replays.json

Each session is recorded by `glidepath gate run --record`, with a scripted model that does files, edits, shell commands,
failing commands and sub-agents. Then the model is switched off, the workspace is made anew, and `glidepath replay` runs
the same command. It counts when the exit code is 0, nothing differs, and the answer on standard output is the same.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from flight import Stage, run_command
from install import installed_version, is_installed
from replay_tasks import TASKS, FixtureModel, make_workspace
from table import AGENTS

from glidepath.testing import ScriptedUpstream

SLICE = ("a failing test, mended", "two sub-agents")
SECONDS = 180
TOOLS = {"claude-code": ("Bash", "Agent", "Read", "Write", "Edit")}


@dataclass
class Replayed:
    """One session. `calls` is what the model answered while it was recorded."""

    agent: str
    task: str
    verdict: str
    why: str = ""
    calls: int = 0
    size: int = 0
    seconds: float = 0.0
    logs: str = ""


def prepare(name, folder, task, url):
    """The command, its environment and its fresh workspace."""
    agent = AGENTS[name]
    shutil.rmtree(folder / "work", ignore_errors=True)
    shutil.rmtree(folder / "home", ignore_errors=True)
    stage = Stage(agent, folder, f"Work on the task: {task.name}.", url, "upstream-key")
    command, env = stage.prepare(bare=False)
    if name in TOOLS:
        command = [*command[: command.index("--allowedTools")], "--allowedTools", *TOOLS[name]]
    make_workspace(stage.folder / "work")
    env |= {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    return command, env


async def replay_session(name, task, logs, *, flags=()):
    """Record one session and replay it; the two runs share nothing but the recording."""
    folder = (logs / name / task.name.replace(" ", "-").replace(",", "")).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = Replayed(name, task.name, "", logs=str(folder))
    glidepath = [sys.executable, "-m", "glidepath"]
    store = ["--store", str(folder / "sessions.db")]
    model = FixtureModel(task, folder / "work")
    async with ScriptedUpstream(speaker=model, log=folder / "upstream.jsonl", keep=0) as up:
        command, env = prepare(name, folder, task, up.url)
        whole = [*glidepath, "gate", "run", "--record", *store, "--upstream", up.url, "--", *command]
        code, _ = await asyncio.to_thread(run_command, whole, env, folder, SECONDS)
        found.calls = up.usage.calls
    first = keep_logs(folder, "recorded")
    found.size = (folder / "sessions.db").stat().st_size
    if code or not found.calls:
        found.verdict, found.why = "not recorded", f"exit code {code}: {first[1][-300:]}"
        return found
    command, env = prepare(name, folder, task, "http://127.0.0.1:9")
    whole = [*glidepath, "replay", "--last", *store, *flags, "--", *command]
    code, found.seconds = await asyncio.to_thread(run_command, whole, env, folder, SECONDS)
    second = keep_logs(folder, "replayed")
    wrong = []
    if code or "nothing differs" not in second[1]:
        wrong.append(f"exit code {code}: {second[1][-600:]}")
    if first[0] != second[0]:
        wrong.append(f"answered {second[0][-100:]!r} instead of {first[0][-100:]!r}")
    found.verdict, found.why = ("FAILED", "; ".join(wrong)) if wrong else ("same", "")
    return found


def keep_logs(folder, word):
    """What a run said, kept under another name."""
    said = []
    for stream in ("stdout", "stderr"):
        path = folder / f"{word}.{stream}"
        (folder / stream).replace(path)
        said.append(path.read_text(encoding="utf-8", errors="replace"))
    return said


def show(found):
    """One line."""
    size = f"{found.size // 1024:6} kB"
    told = f"{found.verdict:12} {found.calls:3} calls {size} {found.seconds:5.1f} s {found.why}"
    return f"{found.agent:12} {found.task:36} {told}"


def main():
    """Entry point: 0 when every session is the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["claude-code", "codex"], metavar="AGENT")
    parser.add_argument("--tasks", nargs="*", metavar="NAME", help="of the fixture tasks, only these")
    parser.add_argument("--times", type=int, default=1, help="how often each (default: 1)")
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    missing = [name for name in options.names if not is_installed(AGENTS[name].program)]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}; python bench/gate/agents.py install {' '.join(missing)}")
    logs = options.logs or Path(tempfile.mkdtemp(prefix="gate-replays-"))
    done = []
    for name in options.names:
        for task in [one for one in TASKS if not options.tasks or one.name in options.tasks] * options.times:
            done.append(asyncio.run(replay_session(name, task, logs)))
            print(show(done[-1]), flush=True)
            if options.out:
                options.out.write_text(json.dumps([asdict(one) for one in done], indent=1) + "\n", encoding="utf-8")
    good = sum(one.verdict == "same" for one in done)
    releases = ", ".join(f"{name} {installed_version(AGENTS[name].program)}" for name in options.names)
    print(f"{good} of {len(done)} recorded sessions replayed the same ({releases}); logs: {logs}")
    return 0 if good == len(done) and done else 1


if __name__ == "__main__":
    sys.exit(main())
