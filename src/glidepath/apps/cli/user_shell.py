"""A command that the person types: it runs as they would run it, without a sandbox and without asking."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from glidepath.apps.cli.attachments import RAN
from glidepath.apps.cli.readable import replace_control_characters
from glidepath.values import pluralize

_SECONDS, _MOST, _SHOWN = 120.0, 30_000, 20
_DRAINED = 1.0  # seconds for what is left in the pipe
_STOPPED, _LATE = -1_000, -1_001  # no exit code, and no signal
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[^\[\]])")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?=[^\n])")
"""A line that a command has drawn again, such as its progress."""


async def run_user_command(command: str, folder: Path) -> tuple[int, str]:
    """How a command in this folder ended, and the end of what it printed.

    After two minutes it is stopped, and when its task is cancelled; what it has printed by then is not lost.
    """
    begun = asyncio.create_task(
        asyncio.create_subprocess_shell(
            command,
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    )
    printed = bytearray()
    ended = 0
    try:
        await asyncio.wait_for(_listen(begun, printed), _SECONDS)
    except TimeoutError:
        ended = _LATE
    except OSError as error:
        return 1, f"cannot be run: {error.strerror or error}"
    except asyncio.CancelledError:
        ended = _STOPPED
    process = await begun
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_listen(begun, printed), _DRAINED)
        await process.wait()
    text = _ESCAPES.sub("", printed.decode("utf-8", "replace").replace("\r\n", "\n"))
    text = replace_control_characters(_OVERWRITTEN.sub("", text)).rstrip("\n")
    cut = "... (the beginning is left out)\n" if len(text) > _MOST else ""
    return ended or process.returncode or 0, cut + text[-_MOST:]


async def _listen(begun: asyncio.Task[asyncio.subprocess.Process], printed: bytearray) -> None:
    """Keep the end of what a command prints, until it has ended."""
    process = await asyncio.shield(begun)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    while data := await process.stdout.read(65_536):
        printed += data
        del printed[: -8 * _MOST]
    await process.wait()


def describe_result(code: int) -> str:
    """How a command ended."""
    return {_STOPPED: "stopped", _LATE: f"stopped after {_SECONDS:g} seconds"}.get(code, f"exit code {code}")


def tail_output(code: int, output: str, clip: Callable[[str], str]) -> str:
    """The end of what a command printed, and its exit code if it failed."""
    lines = output.splitlines()
    shown = [clip(line) for line in lines[-_SHOWN:]]
    if len(lines) > _SHOWN:
        shown.insert(0, f"... {pluralize(len(lines) - _SHOWN, 'line')} before")
    tail = [] if code == 0 else [f"({describe_result(code)})"]
    return "\n".join([*shown, *tail]) or "(no output)"


def describe_command_output(command: str, code: int, output: str) -> str:
    """What the model reads about a command."""
    fence = "`" * (1 + max(2, *map(len, re.findall("`+", output)), 0))  # one that the output cannot close
    return f"{RAN}{command}` ({describe_result(code)}):\n{fence}text\n{output}\n{fence}"
