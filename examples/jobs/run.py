"""Run a job without a key, with whatever framework this Python has, and print what it prints.

    python examples/jobs/run.py structured_output       # ours
    python examples/jobs/run.py pydantic_ai/handoff     # in an environment that has pydantic-ai

The model is a script on this machine (`provider.py`, `scripts.py`). With a key and without this, each program is what
you would write.
"""

import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from provider import provider
from scripts import reply

HERE = Path(__file__).resolve().parent

ENVIRONMENT = {
    "OPENAI_BASE_URL": "http://api.openai.com/v1",  # asked of the proxy, which is the provider: nothing leaves
    "OPENAI_API_KEY": "none",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}


def start(program: Path, *arguments: str) -> dict[str, Any]:
    """The program, as a shell would start it."""
    sys.argv = [str(program), *arguments]
    return runpy.run_path(str(program), run_name="__main__")


def visit(program: Path) -> Any:
    """A client of its web application."""
    from fastapi.testclient import TestClient

    return TestClient(start(program)["app"])


def introduce(program: Path) -> None:
    start(program, "I am Eve.")


def ask_back(program: Path) -> None:
    start(program, "Who am I?")


def ask_for_a_refund(program: Path) -> None:
    waiting = visit(program).post("/ask/s1", params={"text": "Refund order 7."}).json()
    print(*waiting.values())
    Path("waiting").write_text(next(iter(waiting)), encoding="utf-8")


def decide_the_next_day(program: Path) -> None:
    call = Path("waiting").read_text(encoding="utf-8")
    print(visit(program).post(f"/decide/s1/{call}", params={"yes": True}).json())


def listen(program: Path) -> None:
    lines = visit(program).get("/ask", params={"question": "Tell me something."}).text.splitlines()
    print("".join(json.loads(line.removeprefix("data: ")) for line in lines if line))


STEPS: dict[str, list[Callable[[Path], Any]]] = {  # each as another process
    "memory": [introduce, ask_back],
    "approval": [ask_for_a_refund, decide_the_next_day],
    "server_sent_events": [listen],
}


def run_job(name: str, *, apart: bool = False) -> None:
    """`name` is the program's, without `.py`; where it is started twice, `apart` makes that two processes."""
    program = HERE / f"{name}.py"
    steps = STEPS.get(program.stem, [start])
    before = Path.cwd()
    with provider(reply) as address, tempfile.TemporaryDirectory() as folder:
        os.environ |= {**ENVIRONMENT, "HTTP_PROXY": address, "http_proxy": address}
        os.chdir(folder)
        try:
            for step in steps:
                if not apart or len(steps) == 1:
                    step(program)
                    continue
                process = get_context("spawn").Process(target=step, args=(program,))
                process.start()
                process.join()
                if process.exitcode:
                    sys.exit(process.exitcode)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    jobs = sorted({program.stem for program in HERE.glob("*/*.py")})
    named = " ".join(sys.argv[1:])
    if Path(named).name not in jobs or not (HERE / f"{named}.py").exists():
        sys.exit(f"name one job: {', '.join(jobs)}; or pydantic_ai/JOB, openai_agents/JOB")
    run_job(named, apart=True)
