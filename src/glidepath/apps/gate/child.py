"""Runs a command as a shell would: with the terminal, its own process group, and its signals.

Three situations. At a terminal, with nothing redirected, the command becomes the foreground group of the terminal:
Ctrl-C and Ctrl-Z reach it and not us, and when it stops, we stop, so that the shell notices. At a terminal with
something redirected we are part of a pipeline, and the command stays in its group: another member may want the
terminal. Without a terminal it gets its own group, and every signal that we get is sent to that group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from glidepath.values import GlidepathError

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")


class CannotStart(GlidepathError):  # noqa: N818 - what happened
    """A command that cannot be started; `code` is what a shell exits with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ForegroundChild:
    """One command. `start` it before there are threads; `wait` returns its exit code as a shell tells it."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        cwd: str | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._command = list(command)
        self._cwd, self._pass_fds = cwd, tuple(pass_fds)
        self._environ = dict(environ)
        self._terminal = _own_terminal()
        self._has_group = self._terminal is not None or not _is_in_pipeline()
        self._process: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}
        self._modes: list[Any] | None = None

    def start(self) -> None:
        """Start it; raises `CannotStart`."""
        terminal = self._terminal
        self._modes = _modes(terminal)

        def take_terminal() -> None:
            with contextlib.suppress(OSError), _without_ttou():
                os.tcsetpgrp(terminal, os.getpgrp())  # type: ignore[arg-type]

        try:
            self._process = subprocess.Popen(  # noqa: S603 - what the user asked for
                self._command,
                env=self._environ,
                cwd=self._cwd,
                pass_fds=self._pass_fds,
                process_group=0 if self._has_group else None,
                preexec_fn=None if terminal is None else take_terminal,  # noqa: PLW1509 - there are no threads yet
            )
        except FileNotFoundError:
            raise CannotStart(f"{self._command[0]}: there is no such command", NOT_FOUND) from None
        except OSError as error:
            raise CannotStart(f"{self._command[0]} cannot be started: {error.strerror}", NOT_EXECUTABLE) from None
        self._catch_signals()

    def wait(self) -> int:
        """Wait for its end, through all stops; 128 + the signal if one ended it."""
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        try:
            while True:
                _, status = os.waitpid(process.pid, os.WUNTRACED)
                if not os.WIFSTOPPED(status):
                    break
                self._follow_stop(os.WSTOPSIG(status))
        finally:
            self._release_signals()
            self._take_back()
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code  # nobody else may wait for it
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        """End it now: it was started, but the gate was not."""
        if self._process is not None:
            self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        assert self._process is not None  # noqa: S101
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._has_group:
                os.killpg(self._process.pid, number)
            else:
                os.kill(self._process.pid, number)

    def _catch_signals(self) -> None:
        for name in _FORWARDED:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) == signal.SIG_IGN:  # as with nohup: it is ignored there, too
                continue
            self._before[number] = signal.signal(number, self._forward)
        if self._terminal is not None:
            self._before[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._continue)

    def _release_signals(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _forward(self, number: int, _: FrameType | None) -> None:
        typed = number in (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
        if typed and not self._has_group:
            return  # the terminal has sent it to the command as well
        self._send(number)

    def _continue(self, _: int, __: FrameType | None) -> None:
        """We were continued, in the foreground or not: continue the command."""
        self._hand_over()
        self._send(signal.SIGCONT)

    def _hand_over(self) -> None:
        terminal, process = self._terminal, self._process
        if terminal is None or process is None:
            return
        with contextlib.suppress(OSError), _without_ttou():
            if os.tcgetpgrp(terminal) == os.getpgrp():
                os.tcsetpgrp(terminal, process.pid)

    def _take_back(self) -> None:
        terminal = self._terminal
        if terminal is None:
            return
        with contextlib.suppress(OSError), _without_ttou():
            if self._process is not None and os.tcgetpgrp(terminal) == self._process.pid:
                os.tcsetpgrp(terminal, os.getpgrp())
                _set_modes(terminal, self._modes)

    def _follow_stop(self, number: int) -> None:
        """It has stopped: at a terminal so do we, and our shell takes over until it continues us."""
        terminal, process = self._terminal, self._process
        if terminal is None or process is None:
            return
        if number in (signal.SIGTTIN, signal.SIGTTOU):  # it asked for the terminal before it had it
            with contextlib.suppress(OSError):
                if os.tcgetpgrp(terminal) == os.getpgrp():
                    self._hand_over()
                    self._send(signal.SIGCONT)
                    return
        theirs = _modes(terminal)
        self._take_back()
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(os.getpgrp(), signal.SIGTSTP)  # here we stand still until we are continued
        signal.signal(signal.SIGTSTP, before)
        if os.tcgetpgrp(terminal) == os.getpgrp():
            with _without_ttou():
                _set_modes(terminal, theirs)
        self._hand_over()
        self._send(signal.SIGCONT)


def _own_terminal() -> int | None:
    """The terminal, when it is all ours: every stream is it, and we are in its foreground."""
    try:
        streams = [sys.__stdin__, sys.__stdout__, sys.__stderr__]
        numbers = [stream.fileno() for stream in streams if stream is not None]
        if len(numbers) == len(streams) and all(os.isatty(number) for number in numbers[:2]):
            return numbers[0] if os.tcgetpgrp(numbers[0]) == os.getpgrp() else None
    except (OSError, ValueError):
        pass
    return None


def _is_in_pipeline() -> bool:
    """True when we are in the foreground of a terminal, with something redirected."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@contextlib.contextmanager
def _without_ttou() -> Iterator[None]:
    """Touch the terminal from its background without being stopped for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _modes(terminal: int | None) -> list[Any] | None:
    if terminal is None:
        return None
    import termios

    try:
        return termios.tcgetattr(terminal)
    except (OSError, termios.error):
        return None


def _set_modes(terminal: int, modes: list[Any] | None) -> None:
    import termios

    if modes is not None:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
