"""A process that has run out of file descriptors can import nothing: what ends or rescues a run does without."""

import json
import subprocess
import sys

import pytest

RUN = """
import asyncio, json, os, resource, sys
from glidepath import Agent, Limits, tool
from glidepath.errors import ModelError, TransientError
from glidepath.testing import ScriptedModel, call, calls, fail, say, truncated

leaks, every, hoard = sys.argv[1] == "leaks", json.loads(sys.argv[2]), []

@tool
async def leak(path: str = "") -> str:
    '''Open files and never close them.'''
    try:
        while leaks:
            hoard.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    return "done"

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    ends = {}
    for name, (turns, iterations) in every.items():
        model = ScriptedModel([call("leak"), *eval(turns)])
        agent = Agent(model=model, tools=[leak], limits=Limits(max_iterations=iterations), max_retries=1)
        result = await agent.run("Go.")
        ends[name] = [result.outcome.name, result.text, result.cause and result.cause.reason]
    while hoard:
        os.close(hoard.pop())
    return ends

print(json.dumps(asyncio.run(main())))
"""

TURNS = {
    "lands at a limit": ('[say("as far as I got")]', 1),
    "fails with its model": ('[fail(ModelError("it is down"))]', 9),
    "tries again": ('[fail(TransientError("busy", retry_after=0.01)), say("done")]', 9),
    "calls a tool that nobody knows": ('[call("leek"), say("done")]', 9),
    "calls two at once": ('[calls(call("leak", path="a"), call("leak", path="b")), say("done")]', 9),
    "passes what does not fit": ('[call("leak", paths=1), say("done")]', 9),
    "repeats itself at length": ('[call("leak", path="x" * 900)] * 9 + [say("done")] * 9', 20),
    "is cut off": ('[truncated("and so on")] * 4', 20),
}


@pytest.fixture(scope="module")
def ends():
    """How the same runs end where files are left open, and where they are not."""
    found = {}
    for way in ("leaks", "closes"):
        command = [sys.executable, "-c", RUN, way, json.dumps(TURNS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[way] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("turns", TURNS)
def test_a_run_ends_as_ever_in_a_process_without_a_free_descriptor(ends, turns):
    outcome, text, reason = ends["leaks"][turns]
    assert [outcome, text] == ends["closes"][turns][:2]
    assert "Errno" not in f"{text} {reason}"
