"""One run of an agent: its own HOME and folder, no standard input, a time limit, what it said and how it ended."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from install import HERE, find_cache
from table import AGENTS, PINS, Agent

TIMED_OUT = 124
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE")
QUIET = {"NO_COLOR": "1", "TERM": "dumb", "DO_NOT_TRACK": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Flight:
    """How a run ended. `answer` tells whether the model's final words reached standard output."""

    agent: str
    code: int
    seconds: float
    answer: bool
    logs: str
    last_words: str


def vendor_variables(url: str, key: str) -> dict[str, str]:
    """The variables that vendors' SDKs and agents read, and the gate's own."""
    return {
        "GLIDEPATH_GATE_URL": url,
        "GLIDEPATH_GATE_KEY": key,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": key,
    }


class Stage:
    """The folders of one run, and everything that is filled in."""

    def __init__(self, agent: Agent, folder: Path, task: str, url: str, key: str, *, newest: bool = False) -> None:
        self.agent, self.folder = agent, folder.absolute()
        home = find_cache() / (f"{agent.program}@newest" if newest else agent.program)
        if agent.program in PINS:
            where = home / ("node_modules/.bin" if PINS[agent.program][0] == "npm" else "venv/bin")
        else:
            where = Path(sys.executable).parent  # a program of this package
        self._words = {
            "@TASK@": task,
            "@URL@": url,
            "@KEY@": key,
            "@BIN@": str(where),
            "@AGENT@": str(home),
            "@PROGRAMS@": str(HERE / "programs"),
            "@HOME@": str(self.folder / "home"),
        }

    def fill(self, text: str) -> str:
        """A text with what stands for a place or a task put in."""
        for word, value in self._words.items():
            text = text.replace(word, value)
        return text

    def prepare(self, *, bare: bool) -> tuple[list[str], dict[str, str]]:
        """Make the folders; the command and its environment. `bare`: it is pointed at the models by us."""
        agent = self.agent
        for name in ("home", "work"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name, text in {**agent.files, **(agent.bare_files if bare else {})}.items():
            path = self.folder / "home" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.fill(text), encoding="utf-8")
        env = {name: os.environ[name] for name in KEPT if name in os.environ} | QUIET
        env["HOME"] = self._words["@HOME@"]
        env |= {name: self.fill(value) for name, value in agent.env.items()}
        if bare:
            env |= vendor_variables(self._words["@URL@"], self._words["@KEY@"])
            env |= {name: self.fill(value) for name, value in agent.bare_env.items()}
        command = [*agent.command, *(agent.bare_args if bare else ())]
        return [self.fill(word) for word in command], env


def run_command(command: list[str], env: dict[str, str], folder: Path, seconds: float) -> tuple[int, float]:
    """Run it in its own process group with a time limit; standard output and error go to files in `folder`."""
    began = time.monotonic()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            command,
            env=env,
            cwd=folder / "work",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = TIMED_OUT
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, time.monotonic() - began


def fly(
    name: str, folder: Path, *, task: str, url: str, key: str, seconds: float, marker: str, newest: bool = False
) -> Flight:
    """Run an agent without a gate against the models at `url`."""
    stage = Stage(AGENTS[name], folder, task, url, key, newest=newest)
    command, env = stage.prepare(bare=True)
    code, spent = run_command(command, env, stage.folder, seconds)
    return describe(name, stage.folder, code, spent, marker)


def describe(name: str, folder: Path, code: int, seconds: float, marker: str) -> Flight:
    """What came of a run, from its logs."""
    said = (folder / "stdout").read_text(encoding="utf-8", errors="replace")
    wrong = (folder / "stderr").read_text(encoding="utf-8", errors="replace")
    words = (said.strip() or wrong.strip())[-300:]
    flight = Flight(name, code, round(seconds, 1), re.search(marker, said) is not None, str(folder), words)
    (folder / "flight.json").write_text(json.dumps(asdict(flight), indent=1), encoding="utf-8")
    return flight
