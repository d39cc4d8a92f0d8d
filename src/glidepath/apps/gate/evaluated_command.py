"""A foreign command as the agent under test: behind its own gate for each case, on the budget of the evaluation."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import signal
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record
from glidepath.agent import Limits
from glidepath.apps.gate.gate_verdicts import read_reported
from glidepath.apps.gate.governor import make_governor
from glidepath.apps.gate.launchers import find_launcher, prepare
from glidepath.apps.gate.local_gate import Gate
from glidepath.apps.gate.run_plan import list_own_vendors, make_aims
from glidepath.apps.gate.upstreams import Upstream
from glidepath.values import AgentState, ConfigurationError, LoopOutcome, RunResult, StopCause, Usage

if TYPE_CHECKING:
    from glidepath.apps.evals import Case, Errand

PROMPT = "{prompt}"
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL
_LAST_WORDS = 1.0  # seconds until the output of a process that has ended must end
_POLL = 0.05
_SHOWN = 300
_MOST = 1_000_000  # characters of an answer
_WIDEST = 4  # bytes of a character


class EvaluatedCommand:
    """Answers cases with a command: `{prompt}` in its words is the case's prompt, else it becomes the last word.

    What the command prints is the answer. Each case has its own process, its own folder and its own gate, with
    `limits` for this run, below the budget of the evaluation. A process cannot continue: a case that was interrupted
    begins again.
    """

    def __init__(
        self,
        words: Sequence[str],
        upstreams: Sequence[Upstream],
        *,
        limits: Limits | None = None,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        if not words:
            raise ConfigurationError("the command under test is empty: name a program, such as 'claude -p {prompt}'")
        self.words, self.upstreams, self.limits = tuple(words), tuple(upstreams), limits or Limits()
        self.name = Path(words[0]).name
        self.fingerprint = " ".join(words)
        self._environ = dict(os.environ if environ is None else environ)
        self._folder = folder

    def limit_of(self, _: Case) -> Limits:
        """The limits that a run of this case has of its own."""
        return self.limits

    async def answer(self, case: Case, errand: Errand) -> RunResult[Any]:
        """Run the command for this case; raises `ConfigurationError` when it cannot be started."""
        found = find_launcher(self.words)
        governor = make_governor(
            limits=self.limits,
            upstreams=self.upstreams,
            program="" if found is None else found[0].agent,
            budget=errand.budget,
        )
        line = f"case-{secrets.token_hex(4)}"
        began = asyncio.get_running_loop().time()
        with tempfile.TemporaryDirectory(prefix="glidepath-eval-") as overlay:
            async with Gate(upstream=self.upstreams, governor=governor, line=line, environ=self._environ) as gate:
                aims = make_aims(gate.upstreams, gate.url, gate.secret_url, gate.key)
                own = list_own_vendors(gate.upstreams)
                made = prepare(self._fill(case.prompt), self._environ, aims, Path(overlay), own)
                ending = await self._run(made.command, made.environ, errand)
                report = gate.report()
        return _conclude(report, ending, asyncio.get_running_loop().time() - began)

    def _fill(self, prompt: str) -> list[str]:
        if any(PROMPT in word for word in self.words):
            return [word.replace(PROMPT, prompt) for word in self.words]
        return [*self.words, prompt]

    async def _run(self, command: Sequence[str], environ: Mapping[str, str], errand: Errand) -> _Ending:
        printed, said = _Output(_MOST * _WIDEST), _Output(_SHOWN * _WIDEST, last=True)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environ,
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=await printed.open(),
                stderr=await said.open(),
                start_new_session=True,
            )
            printed.leave_to_process()
            said.leave_to_process()
            try:
                reason = await _wait_for_end(process, self._find_deadline(errand), errand)
            finally:
                await _stop(process, (printed, said))
        except OSError as error:
            raise ConfigurationError(f"{command[0]} cannot be started: {error.strerror}") from None
        finally:
            printed.close()
            said.close()
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        return _Ending(code, reason, printed.text[:_MOST].strip(), said.text[-_SHOWN:].strip())

    def _find_deadline(self, errand: Errand) -> tuple[float, str]:
        """When its time is up, on the clock of the loop, and whose time that is."""
        now = asyncio.get_running_loop().time()
        own = math.inf if self.limits.timeout is None else now + self.limits.timeout
        shared = math.inf if errand.budget is None else errand.budget.deadline(now)
        return (shared, "budget") if shared < own else (own, "timeout")


class _Ending(Record):
    """How a process ended: with which code, and what had stopped it (empty: itself)."""

    code: int
    stopped: str
    text: str
    errors: str


class _Output(asyncio.Protocol):
    """The first bytes of what a process prints, or the `last` ones; the others are read and dropped."""

    def __init__(self, most: int, *, last: bool = False) -> None:
        self._kept = bytearray()
        self._most, self._last = most, last
        self._end: int | None = None
        self._transport: asyncio.ReadTransport | None = None
        self.is_over = False
        """True once nobody can print any more."""

    async def open(self) -> int:
        """The end of the pipe for the process."""
        ours, self._end = os.pipe()
        pipe = os.fdopen(ours, "rb", 0)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)
        return self._end

    def leave_to_process(self) -> None:
        """Close our copy of the end that the process has."""
        if self._end is not None:
            os.close(self._end)
            self._end = None

    def close(self) -> None:
        """Read no more: a process with its own session may hold the pipe for as long as it likes."""
        self.leave_to_process()
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Keep what is wanted."""
        if self._last:
            self._kept += data
            del self._kept[: -self._most]
        elif len(self._kept) < self._most:
            self._kept += data[: self._most - len(self._kept)]

    def connection_lost(self, _: Exception | None) -> None:
        """Nobody holds the other end."""
        self.is_over = True

    @property
    def text(self) -> str:
        """What was kept."""
        return self._kept.decode(errors="replace")


async def _wait_for_end(process: asyncio.subprocess.Process, deadline: tuple[float, str], errand: Errand) -> str:
    """Wait until the process has ended by itself, or must be stopped: returns by what."""
    loop = asyncio.get_running_loop()
    until, whose = deadline
    while process.returncode is None:
        if errand.cancel is not None and errand.cancel.cancelled:
            return "cancel"
        if loop.time() >= until:
            return whose
        await asyncio.sleep(_POLL)
    return ""


async def _stop(process: asyncio.subprocess.Process, outputs: Sequence[_Output]) -> None:
    """Stop the command and all that it has started, also what has outlived it and still holds its output."""
    if process.returncode is not None:
        await _wait_until_gone(process, outputs, _LAST_WORDS)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if _is_gone(process, outputs):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        await _wait_until_gone(process, outputs, _GRACE)


def _is_gone(process: asyncio.subprocess.Process, outputs: Sequence[_Output]) -> bool:
    return process.returncode is not None and all(one.is_over for one in outputs)


async def _wait_until_gone(process: asyncio.subprocess.Process, outputs: Sequence[_Output], seconds: float) -> None:
    for _ in range(round(seconds / _POLL)):
        if _is_gone(process, outputs):
            return
        await asyncio.sleep(_POLL)


def _conclude(report: dict[str, Any], ending: _Ending, seconds: float) -> RunResult[Any]:
    """How it ended, in the words that our own runs use."""
    landed, code = report.get("cause"), ending.code
    state, outcome, cause = AgentState.COMPLETED, LoopOutcome.DONE, None
    if ending.stopped in ("timeout", "budget"):
        state, outcome = AgentState.TIMED_OUT, LoopOutcome.CUT_OFF
        cause = StopCause(source=ending.stopped, action="stop", reason="its time was up, and it was ended")
    elif code < 0:
        state, outcome = AgentState.CANCELLED, LoopOutcome.CANCELLED
        cause = StopCause(source="command", action="cancel", reason=f"it was ended by signal {-code}")
    elif landed is not None:
        verdict = read_reported(landed)
        state, cause = verdict.state, verdict.cause
        outcome = LoopOutcome.WRAPPED_UP if code == 0 else LoopOutcome.CUT_OFF
    elif code:
        state, outcome = AgentState.ERROR, LoopOutcome.FAILED
        why = f"exit code {code}: {ending.errors or 'it said nothing'}"
        cause = StopCause(source="command", action="fail", reason=why)
    cost = report.get("cost")
    return RunResult(
        run_id=str(report.get("run", "")),
        session_id="",
        state=state,
        outcome=outcome,
        cause=cause,
        text=ending.text,
        usage=Usage(input=int(report.get("tokens", 0))),
        cost=None if cost is None else Decimal(str(cost)),
        iterations=int(report.get("calls", 0)),
        elapsed=round(seconds, 6),
    )
