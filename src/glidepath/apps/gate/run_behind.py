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
from glidepath.apps.gate.run_plan import list_own_vendors, make_aims
from glidepath.apps.gate.threaded import GateThread
from glidepath.apps.gate.upstreams import Upstream
from glidepath.values import pluralize

if TYPE_CHECKING:
    from glidepath.agent import Limits
    from glidepath.apps.telemetry import OpenTelemetry
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
    telemetry: Callable[[], OpenTelemetry] | None = None,
    **options: Any,
) -> GateFlight:
    """Run a command behind its own gate; raises `CannotStart` and `ConfigurationError` before anything runs.

    `telemetry` is made when the command has started: it may have threads.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glidepath-gate-")))
        line = f"run-{secrets.token_hex(4)}"
        found = find_launcher(command)
        program = "" if found is None else found[0].agent
        later: Any = None if telemetry is None else _LateTelemetry(telemetry)
        gate = Gate(
            limits,
            upstreams,
            observe=observe,
            line=line,
            environ=environ,
            program=program,
            store=store,
            telemetry=later,
            **options,
        )
        stack.callback(gate.socket.close)
        aims = make_aims(gate.upstreams, gate.url, gate.secret_url, gate.key)
        made = prepare(command, environ, aims, folder, list_own_vendors(gate.upstreams))
        _tell(made, say)
        errors = stack.enter_context(keeping_errors())
        child = ForegroundChild(made.command, made.environ)
        code = run_child(child, gate, store, started=None if later is None else later.begin)
        report = gate.report()
        words = describe_report(report, made.name)
        if gate.tunnel is not None:
            words += f"\n{gate.tunnel.describe()}"
        describe = getattr(gate.tap, "describe", None)
        if describe is not None:
            words += f"\n{describe()}"
        if errors:
            words += f"\nglidepath gate: {pluralize(len(errors), 'error')} in the gate itself; the first:\n{errors[0]}"
        return GateFlight(code=code, report=report, words=words)


class _LateTelemetry:
    """Telemetry that is made later than what it follows."""

    def __init__(self, make: Callable[[], OpenTelemetry]) -> None:
        self._make = make
        self._made: OpenTelemetry | None = None

    def begin(self) -> None:
        self._made = self._make()

    def for_run(self) -> OpenTelemetry:
        assert self._made is not None  # noqa: S101 - the gate serves nothing before
        return self._made.for_run()


def run_child(
    child: ForegroundChild,
    gate: Gate,
    store: SessionStore | None,
    *,
    started: Callable[[], None] | None = None,
) -> int:
    """Start the command and its gate, and wait for the command; its exit code. The store is closed after the gate."""
    child.start()  # before there are threads, because it may take the terminal; its first calls wait in the socket
    thread = GateThread(gate, closing=None if store is None else store.close)
    try:
        if started is not None:
            started()
        thread.start()
    except BaseException:
        child.kill()
        child.wait()
        raise
    try:
        return child.wait()
    finally:
        thread.close(DRAIN)


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
