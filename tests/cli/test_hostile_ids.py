"""An id that came with somebody else's journal never steers the terminal of whoever imports it."""

import asyncio
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from glidepath import Agent, Limits
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, say

from .shell_user import environment, glidepath

EVIL = "s\x1b]0;PWN\x07\x1b]52;c;cm0gLXJmIH4=\x07\u202eabc"
STEERING = (b"\x1b]52;c;", b"\x1b]0;PWN", "\u202e".encode())
pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path):
    async def main():
        store = SqliteStore(str(tmp_path / "evil.db"))
        agent = Agent(model=ScriptedModel([say("x")]), store=store, limits=Limits(max_iterations=5), agent_name="n")
        await agent.run("hi", session=EVIL)
        await store.close()

    asyncio.run(main())
    (tmp_path / "m.py").write_text(
        "from glidepath.testing import ScriptedModel, say\ndef model(): return ScriptedModel([say('fine')] * 9)\n"
    )
    done = glidepath("runs", "export", EVIL, "--store", "evil.db", "--out", "bug.jsonl", folder=tmp_path)
    assert done.code == 0, done
    assert (tmp_path / "bug.jsonl").stat().st_mode & 0o777 == 0o600
    return tmp_path


def on_terminal(folder, *argv):
    master, slave = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "glidepath", *argv], cwd=folder, stdin=slave, stdout=slave, stderr=slave,
        env=environment(HOME=str(folder), TERM="xterm-256color"), start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    seen, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            try:
                data = os.read(master, 65_536)
            except OSError:
                break
            if not data:
                break
            seen += data
    running.wait(20)
    os.close(master)
    return seen


def test_no_command_prints_it_as_it_is(folder):
    commands = [
        ("runs", "import", "bug.jsonl", "--store", "mine.db"),
        ("runs", "list", "--store", "mine.db"),
        ("resume", "--last", "--store", "mine.db", "--model", "python:m:model"),
        ("fork", EVIL, "--store", "mine.db"),
        ("send", EVIL, "hi", "--store", "mine.db"),
        ("runs", "show", EVIL, "--store", "mine.db"),
        ("runs", "stop", EVIL, "--store", "mine.db"),
        ("sessions", "list", "--store", "mine.db"),
        ("sessions", "tag", EVIL, "new", "--store", "mine.db"),
    ]
    for argv in commands:
        seen = on_terminal(folder, *argv)
        assert seen, argv
        assert not [mark for mark in STEERING if mark in seen], (argv, seen)


def test_a_pipe_gets_the_exact_id(folder):
    glidepath("runs", "import", "bug.jsonl", "--store", "mine.db", folder=folder)
    made = glidepath("fork", EVIL, "--store", "mine.db", folder=folder)
    assert made.code == 0, made
    assert made.out.startswith(EVIL), "a program needs it as it is"
