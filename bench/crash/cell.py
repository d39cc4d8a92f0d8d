"""One cell: one agent, one specimen, bare or behind the gate; measured by the upstream and the process table."""

import asyncio
import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from flight import Stage
from fly import MODEL
from roster import CONTROL, SEED, SPECIMENS, Bounds, find_agent, find_bounds, find_release

from glidepath.testing import ScriptedUpstream

GRACE = 5.0
"""Seconds to exit in, after the limit on time."""
CAP = 40.0
"""Seconds after its first call when a run is ended from outside: it did not end."""
STARTING = 90.0
"""Seconds to make the first call in, on a machine with other work."""
WATCHED = 1.5
"""Seconds after its end in which a run may not work."""
OWN = r"\[(glidepath|runtime)\]"
REFUSED = r"(?i)cannot help|refus|policy|safety|content.?filter"
MARK = "CRASH_TEST_CELL"
TASK = "Count the steps, then report."


@dataclass
class Cell:
    """What was measured. `answer` is `model`, `own words`, or nothing."""

    agent: str
    specimen: str
    mode: str
    key: str
    """What was run: script, limits, release. Another key is another cell."""
    date: str = ""
    ended: bool = False
    code: int | None = None
    answer: str = ""
    calls: int = 0
    faults: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """From the first call to the end of the process."""
    whole: float = 0.0
    late: int = 0
    """Requests that began after the end."""
    left: int = 0
    """Processes that were alive after the end."""
    within: bool = False
    verdict: str = ""
    last_words: str = ""
    load: float = 0.0


def describe_key(name: str, specimen: str) -> str:
    """What decides whether a result of before still stands."""
    bounds = find_bounds(name, specimen)
    script = find_script(specimen)
    return f"{find_release(name)}; {script}; {bounds.tokens} tokens, {bounds.calls} calls, {bounds.seconds} s"


def find_script(specimen: str) -> str:
    """What the upstream does."""
    return (CONTROL if specimen == CONTROL.name else SPECIMENS[specimen]).script_for(SEED)


def prepare(name: str, specimen: str, mode: str, folder: Path, url: str) -> tuple[list[str], dict[str, str], Stage]:
    """The command of a cell and its environment."""
    bounds = find_bounds(name, specimen)
    stage = Stage(find_agent(name), folder, TASK, url, "upstream-key")
    command, env = stage.prepare(bare=mode == "bare")
    if mode == "gate":
        env |= {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
        command = [*gate_words(bounds, url, folder / "report.json"), *command]
    return command, env, stage


def gate_words(bounds: Bounds, url: str, report: Path) -> list[str]:
    """The beginning of a command that runs behind a gate."""
    limits = ["--max-tokens", str(bounds.tokens), "--max-calls", str(bounds.calls), "--timeout", f"{bounds.seconds}s"]
    return [
        *(sys.executable, "-m", "glidepath", "gate", "run", *limits),
        *("--upstream", url, "--report", str(report), "--"),
    ]


async def run_cell(name: str, specimen: str, mode: str, folder: Path) -> Cell:
    """Run it in its own folder, which keeps the logs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cell = Cell(name, specimen, mode, describe_key(name, specimen), time.strftime("%Y-%m-%d", time.gmtime()))
    cell.load = round(os.getloadavg()[0], 1)
    script = find_script(specimen)
    async with ScriptedUpstream(script, seed=SEED, log=folder / "upstream.jsonl", keep=0) as up:
        command, env, stage = prepare(name, specimen, mode, folder.absolute(), up.url)
        write_commands(folder, script, command, env, stage, up.url)
        mark = secrets.token_hex(8)
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once, and is polled
                command,
                env={**env, MARK: mark},
                cwd=stage.folder / "work",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                await follow(cell, process, up)
                await look_after(cell, mark, up)
            finally:
                await end_all(mark)
                await asyncio.to_thread(process.wait)
        with contextlib.suppress(TimeoutError):  # what was on the wire when it was killed counts
            await asyncio.wait_for(up.wait_idle(), 5)
        usage = up.usage
        cell.calls, cell.tokens, cell.faults = usage.calls, usage.tokens, usage.faults
    judge(cell, folder)
    tidy(folder)
    (folder / "cell.json").write_text(json.dumps(asdict(cell), indent=1) + "\n", encoding="utf-8")
    return cell


async def follow(cell: Cell, process: subprocess.Popen[bytes], up: ScriptedUpstream) -> None:
    """Wait for its end, or for the time when it is ended from outside."""
    began, first = time.monotonic(), None
    while process.poll() is None:
        now = time.monotonic()
        if first is None and count_requests(up):
            first = now
        if now > (began + STARTING if first is None else first + CAP):
            break
        await asyncio.sleep(0.02)
    now = time.monotonic()
    cell.code = process.poll()
    cell.ended = cell.code is not None
    cell.whole = round(now - began, 1)
    cell.seconds = round(now - (first or now), 1)


async def look_after(cell: Cell, mark: str, up: ScriptedUpstream) -> None:
    """See what still works after the end."""
    if not cell.ended:
        return
    before = count_requests(up)
    await asyncio.sleep(WATCHED)
    cell.late = count_requests(up) - before
    cell.left = len(list(find_marked(mark)))


def count_requests(up: ScriptedUpstream) -> int:
    """Requests so far, whatever they got."""
    return up.usage.calls + up.usage.faults + up.usage.refused + sum(up.looks.values())


def find_marked(mark: str) -> Iterator[int]:
    """The processes of a cell, whichever session they are in: its mark is in their environment."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes():
                    yield int(entry.name)


async def end_all(mark: str) -> None:
    """End the processes of a cell, and wait until they are gone."""
    for _ in range(200):
        left = list(find_marked(mark))
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.05)


def judge(cell: Cell, folder: Path) -> None:
    """The verdict, by rules that are printed on the page."""
    said = (folder / "stdout").read_text(encoding="utf-8", errors="replace")
    wrong = (folder / "stderr").read_text(encoding="utf-8", errors="replace")
    cell.last_words = (said.strip() or wrong.strip())[-200:]
    cell.answer = "model" if re.search(MODEL, said) else "own words" if re.search(OWN, said) else ""
    bounds = find_bounds(cell.agent, cell.specimen)
    in_time = cell.seconds <= bounds.seconds + GRACE
    cell.within = cell.tokens <= bounds.tokens and cell.calls <= bounds.calls and in_time
    can_answer = cell.specimen == CONTROL.name or SPECIMENS[cell.specimen].can_answer
    is_refusal = cell.specimen == "refusal" and re.search(REFUSED, said + wrong) is not None
    if not cell.ended:
        cell.verdict = "did not end"
    elif not cell.within:
        cell.verdict = "over the limit"
    elif cell.late or cell.left:
        cell.verdict = "worked on"
    elif cell.code == 0 and cell.answer:
        cell.verdict = "answer" if cell.answer == "model" else "own words"
    elif not can_answer and (cell.code or is_refusal):
        cell.verdict = "error"
    else:
        cell.verdict = "no answer"


def tidy(folder: Path) -> None:
    """Keep the logs: the agent's home may have hundreds of files."""
    for name in ("home", "work"):
        shutil.rmtree(folder / name, ignore_errors=True)


def write_commands(folder: Path, script: str, command: list[str], env: dict[str, str], stage: Stage, url: str) -> None:
    """The two commands that do the same by hand."""
    port = url.rpartition(":")[2]
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(env.items()) if name != "PATH"]
    lines = [
        f"python -m glidepath.testing.upstream --behavior {shlex.quote(script)} --port {port} --log calls.jsonl &",
        f'mkdir -p {stage.folder}/home; env -i PATH="$PATH" {" ".join(variables)} {shlex.join(command)}',
    ]
    (folder / "commands.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
