"""A command that the person types: it runs as they would run it, without a sandbox and without asking."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from glidepath.plurals import how_many

_SECONDS, _MOST, _SHOWN = 120.0, 30_000, 20


async def run_as_person(command: str, folder: Path) -> tuple[int, str]:
    """The exit code and the output of a command in this folder; it is stopped after two minutes, or with its task."""
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        data, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
    except TimeoutError:
        return 124, f"(stopped after {_SECONDS:g} seconds)"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    text = "".join(
        sign for sign in data.decode("utf-8", "replace").replace("\r\n", "\n") if sign.isprintable() or sign in "\n\t"
    ).rstrip("\n")
    cut = f"... ({len(text) - _MOST:,} characters before)\n" if len(text) > _MOST else ""
    return process.returncode or 0, cut + text[-_MOST:]


def last_lines(code: int, output: str, clip: Callable[[str], str]) -> str:
    """The end of what a command printed, and its exit code if it failed."""
    lines = output.splitlines()
    shown = [clip(line) for line in lines[-_SHOWN:]]
    if len(lines) > _SHOWN:
        shown.insert(0, f"... {how_many(len(lines) - _SHOWN, 'line')} before")
    tail = "" if code == 0 else f"\n(exit code {code})"
    return "\n".join(shown) + tail or "(no output)"
