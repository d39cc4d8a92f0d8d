"""What a command can touch: arguments, environment, streams, folder and clock. Tests replace it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

_USUAL_SIZE = (80, 24)
UNREAD = 0.7
"""Seconds after a question is drawn within which nobody can have read it: what is typed by then does not count."""


class ScreenClosed(Exception):  # noqa: N818 - what happened
    """Standard output cannot be written, for example because the disk is full."""


class CliContext:
    """The process around a command. `now` is the clock of everything that is shown."""

    def __init__(
        self,
        *,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        folder: Path | None = None,
        now: Callable[[], float] = time.monotonic,
        unread: float = UNREAD,
    ) -> None:
        self.arguments = tuple(arguments)
        self.environ: Mapping[str, str] = {} if environ is None else environ
        self.stdin = sys.stdin if stdin is None else stdin
        self.stdout = sys.stdout if stdout is None else stdout
        self.stderr = sys.stderr if stderr is None else stderr
        self.folder = folder or Path.cwd()
        self.now = now
        self.unread = unread
        self._noted: set[str] = set()
        self.notes: list[str] | None = None
        """While this is a list, notes are collected in it, for a program that has the whole screen to show."""

    @classmethod
    def real(cls) -> CliContext:
        """The real process."""
        try:
            folder = Path.cwd()
        except FileNotFoundError:
            folder = Path("/")
        if sys.stdin is None or sys.stdout is None or sys.stderr is None:  # closed by the parent process
            nowhere = Path(os.devnull).open("r+", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
            sys.stdin, sys.stdout, sys.stderr = sys.stdin or nowhere, sys.stdout or nowhere, sys.stderr or nowhere
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # characters the terminal cannot show are replaced
        return cls(arguments=sys.argv[1:], environ=os.environ, folder=folder)

    def write(self, text: str) -> None:
        """Print on standard output and flush; raises BrokenPipeError if nobody reads it, else `ScreenClosed`."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ScreenClosed(f"the output cannot be written: {error.strerror or error}") from None

    def write_id(self, name: str) -> None:
        """Print an id on its own line: as it is for a program, and so that it cannot steer a terminal."""
        from glidepath.run import mask_controls

        self.write(f"{mask_controls(name) if self.is_terminal(self.stdout) else name}\n")

    def write_json(self, value: object) -> None:
        """Print a value as JSON on one line, for programs."""
        from glidepath import _wire

        self.write(_wire.encode(value).decode() + "\n")

    def complain(self, text: str) -> None:
        """Print an error on the error stream."""
        from glidepath.apps.cli.display_text import escape_invisible

        with contextlib.suppress(OSError, ValueError):
            self.stderr.write(f"glidepath: error: {escape_invisible(text, keep=chr(10) + chr(9))}\n")
            self.stderr.flush()

    def note(self, text: str, *, styled: bool = False) -> None:
        """Print a note on the error stream, out of the way of pipes.

        Whatever it quotes cannot steer the terminal, unless it is `styled` by us.
        """
        from glidepath.run import mask_controls

        text = text if styled else mask_controls(text)
        if self.notes is not None:
            self.notes.append(text)
            return
        with contextlib.suppress(OSError, ValueError):
            self.stderr.write(f"{text}\n")
            self.stderr.flush()

    def note_once(self, text: str) -> None:
        """Print a note on the error stream, but the same one only once."""
        if text not in self._noted:
            self._noted.add(text)
            self.note(text)

    def is_terminal(self, stream: TextIO) -> bool:
        """True when this stream is a terminal."""
        try:
            return bool(stream.isatty())
        except (AttributeError, ValueError):
            return False

    def discard_input(self) -> None:
        """Drop what was typed before a question: it cannot be the answer."""
        try:
            import termios
        except ImportError:
            return  # not on this platform
        with contextlib.suppress(OSError, ValueError, AttributeError, termios.error):
            termios.tcflush(self.stdin.fileno(), termios.TCIFLUSH)

    def wait_for_reader(self) -> None:
        """Wait until a person can have read the question that was just drawn, then drop what was typed meanwhile."""
        try:
            self.stdin.fileno()
        except (OSError, ValueError, AttributeError):
            return  # a program's stream: its lines are not typed
        time.sleep(self.unread)
        self.discard_input()

    def close_quietly(self) -> None:
        """Nobody reads our output any more: discard the buffer, so that flushing it at exit does not fail again."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stdout.fileno())
            os.close(nowhere)


def screen_size(stream: TextIO) -> tuple[int, int]:
    """The columns and lines of the terminal behind a stream; 80 and 24 if it is not a terminal."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return _USUAL_SIZE
    return columns or _USUAL_SIZE[0], lines or _USUAL_SIZE[1]
