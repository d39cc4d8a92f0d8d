"""Functions that the process tests run elsewhere. Small imports: every test starts an interpreter."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from glidepath.errors import FatalToolError, ToolError
from glidepath.tools import tool


@dataclass
class Pair:
    left: int
    right: str = "r"


@tool(isolation="process")
def describe(pair: Pair, times: int = 1) -> Pair:
    print("to standard output, which must not disturb the reply")
    return Pair(pair.left * times, f"{os.getpid() != os.getppid()}")


@tool(isolation="process")
async def describe_async(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


@tool(isolation="process")
async def stream(count: int):
    for number in range(count):
        yield number


@tool(isolation="process")
def echo(text: str) -> str:
    return text


@tool(isolation="process")
def fail(how: str):
    if how == "value":
        raise ValueError("bad value")
    if how == "tool":
        raise ToolError("told so")
    if how == "fatal":
        raise FatalToolError("the end")
    if how == "exit":
        sys.exit(3)
    return lambda: "cannot be pickled"


@tool(isolation="process")
def die(how: str):
    if how == "code":
        os._exit(7)
    if how == "slowly":  # the reply can no longer come, some time before the end does
        socket.socket(fileno=int(sys.argv[1])).shutdown(socket.SHUT_WR)
        time.sleep(0.1)
        os._exit(8)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(60)


def leave_pid(path):
    # Renamed into place, so that whoever waits for the file never reads half of it.
    Path(f"{path}.part").write_text(str(os.getpid()))
    Path(f"{path}.part").rename(path)


@tool(isolation="process")
def hang(pid_file: str, *, ignore: bool = False, tidy: str = ""):
    if ignore:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    leave_pid(pid_file)
    try:
        while True:
            time.sleep(60)
    finally:
        if tidy:
            Path(tidy).write_text("tidied")


@tool(isolation="process")
def leave_something_running(pid_file: str) -> str:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(pid_file).write_text(str(child.pid))
    return "left"


@tool(isolation="process")
def die_but_leave_a_fork(pid_file: str):
    if os.fork() == 0:
        leave_pid(pid_file)
        with contextlib.suppress(BaseException):
            time.sleep(60)
    while not Path(pid_file).exists():
        time.sleep(0.001)
    os._exit(9)
