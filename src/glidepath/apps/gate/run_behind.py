"""`glidepath gate run`: a gate on loopback, a command behind it, and a report at its end."""

from __future__ import annotations

import contextlib
import logging
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record
from glidepath.apps.gate.child import CannotStart, ForegroundChild
from glidepath.apps.gate.launchers import Prepared, find_launcher, prepare
from glidepath.apps.gate.local_gate import Gate
from glidepath.apps.gate.report_words import describe_report
from glidepath.apps.gate.run_plan import make_aims
from glidepath.apps.gate.threaded import GateThread
from glidepath.apps.gate.upstreams import Upstream
from glidepath.values import pluralize

if TYPE_CHECKING:
    from glidepath.agent import Limits
    from glidepath.spi import SessionStore

_MOST_ERRORS = 100
DRAIN = 1.0  # seconds for calls that the command has left behind


class GateFlight(Record, kw_only=True):
    """A command that ran behind a gate: its exit code, and what the gate saw."""

    code: int
    report: dict[str, Any]
    words: str


def run_command(
    command: Sequence[str],
    *,
    limits: Limits | None,
    upstreams: Sequence[Upstream],
    environ: Mapping[str, str],
    say: Callable[[str], None],
    observe: bool = False,
    store: SessionStore | None = None,
    **options: Any,
) -> GateFlight:
    """Run a command behind its own gate; raises `CannotStart` and `ConfigurationError` before anything runs."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glidepath-gate-")))
        line = f"run-{secrets.token_hex(4)}"
        found = find_launcher(command)
        program = "" if found is None else found[0].agent
        gate = Gate(
            limits, upstreams, observe=observe, line=line, environ=environ, program=program, store=store, **options
        )
        stack.callback(gate.socket.close)
        aims = make_aims(gate.upstreams, gate.url, gate.secret_url, gate.key)
        made = prepare(command, environ, aims, folder)
        _tell(made, say)
        errors = stack.enter_context(keeping_errors())
        child = ForegroundChild(made.command, made.environ)
        child.start()  # before there are threads, because it may take the terminal; its first calls wait in the socket
        thread = GateThread(gate, closing=None if store is None else store.close)
        try:
            thread.start()
        except BaseException:
            child.kill()
            child.wait()
            raise
        try:
            code = child.wait()
        finally:
            thread.close(DRAIN)
        report = gate.report()
        words = describe_report(report, made.name)
        if errors:
            words += f"\nglidepath gate: {pluralize(len(errors), 'error')} in the gate itself; the first:\n{errors[0]}"
        return GateFlight(code=code, report=report, words=words)


@contextlib.contextmanager
def keeping_errors() -> Iterator[list[str]]:
    """Keep what the gate logs off the terminal, which belongs to the command; what was an error is listed."""
    kept = _Keeping()
    loggers = [logging.getLogger(name) for name in ("glidepath", "asyncio", "aiohttp", "uvicorn")]
    before = [one.propagate for one in loggers]
    for one in loggers:
        one.addHandler(kept)
        one.propagate = False
    try:
        yield kept.errors
    finally:
        for one, propagates in zip(loggers, before, strict=True):
            one.removeHandler(kept)
            one.propagate = propagates


class _Keeping(logging.Handler):
    """Keeps the first errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append(self.format(record))


def _tell(made: Prepared, say: Callable[[str], None]) -> None:
    if made.removed:
        say(f"glidepath gate: taken out of the command's environment: {', '.join(made.removed)}")
    if made.stays:
        say(
            f"glidepath gate: calls with {', '.join(made.stays)} do not pass the gate: no limit holds for them; unset "
            "these variables if the command must not use them"
        )


__all__ = ["CannotStart", "GateFlight", "run_command"]
