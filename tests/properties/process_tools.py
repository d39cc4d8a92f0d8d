"""Tools for the process tests: each runs in an interpreter of its own, so imports are few."""

import os
import signal
import sys
import time
from pathlib import Path

from glidepath.errors import FatalToolError, ToolError
from glidepath.tools import tool


def leave_pid(path):
    Path(f"{path}.part").write_text(str(os.getpid()))
    Path(f"{path}.part").rename(path)


@tool(isolation="process")
def returns(pid_file: str) -> str:
    leave_pid(pid_file)
    return "value"


@tool(isolation="process")
def raises(pid_file: str) -> str:
    leave_pid(pid_file)
    raise ValueError("no luck")


@tool(isolation="process")
def tells(pid_file: str) -> str:
    leave_pid(pid_file)
    raise ToolError("told so")


@tool(isolation="process")
def is_fatal(pid_file: str) -> str:
    leave_pid(pid_file)
    raise FatalToolError("the end")


@tool(isolation="process")
def exits(pid_file: str) -> str:
    leave_pid(pid_file)
    sys.exit(3)


@tool(isolation="process")
def dies(pid_file: str) -> str:
    leave_pid(pid_file)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool(isolation="process")
def hangs(pid_file: str) -> str:
    leave_pid(pid_file)
    time.sleep(60)
    return "never"


@tool(isolation="process")
def ignores_sigterm(pid_file: str) -> str:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    leave_pid(pid_file)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(1)
    return "never"


@tool(isolation="process")
def huge(pid_file: str) -> str:
    leave_pid(pid_file)
    return "x" * 5_000_000


TOOLS = [returns, raises, tells, is_fatal, exits, dies, hangs, ignores_sigterm, huge]
