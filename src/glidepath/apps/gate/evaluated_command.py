"""A foreign command as the agent under test: behind its own gate for each case, on the budget of the evaluation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.agent import Limits
from glidepath.apps.gate.foreign_endings import name_limit
from glidepath.apps.gate.governor import make_governor
from glidepath.apps.gate.launchers import find_launcher, prepare
from glidepath.apps.gate.local_gate import Gate
from glidepath.apps.gate.run_plan import make_aims
from glidepath.apps.gate.upstreams import Upstream
from glidepath.values import AgentState, ConfigurationError, LoopOutcome, RunResult, StopCause, Usage

if TYPE_CHECKING:
    from glidepath.apps.evals import Case, Errand

PROMPT = "{prompt}"
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL
_POLL = 0.05
_SHOWN = 300
_MOST = 1_000_000  # characters of an answer


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
                made = prepare(self._fill(case.prompt), self._environ, aims, Path(overlay))
                code, text, errors = await self._run(made.command, made.environ, errand)
                report = gate.report()
        return _conclude(report, code, text, errors, asyncio.get_running_loop().time() - began)

    def _fill(self, prompt: str) -> list[str]:
        if any(PROMPT in word for word in self.words):
            return [word.replace(PROMPT, prompt) for word in self.words]
        return [*self.words, prompt]

    async def _run(self, command: Sequence[str], environ: Mapping[str, str], errand: Errand) -> tuple[int, str, str]:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environ,
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigurationError(f"{command[0]} cannot be started: {error.strerror}") from None
        talk = asyncio.ensure_future(process.communicate())
        try:
            while not talk.done():
                await asyncio.wait([talk], timeout=_POLL)
                if errand.cancel is not None and errand.cancel.cancelled:
                    break
        finally:
            if not talk.done():
                await _end(process, talk)
        out, err = (b"", b"") if talk.cancelled() else talk.result()
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        return code, out.decode(errors="replace")[:_MOST].strip(), err.decode(errors="replace")[-_SHOWN:].strip()


async def _end(process: asyncio.subprocess.Process, talk: asyncio.Future[Any]) -> None:
    """Stop the command and all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        await asyncio.wait([talk], timeout=_GRACE)
        if talk.done():
            return
    talk.cancel()


def _conclude(report: dict[str, Any], code: int, text: str, errors: str, seconds: float) -> RunResult[Any]:
    """How it ended, in the words that our own runs use."""
    reason = report.get("reason")
    state, outcome, cause = AgentState.COMPLETED, LoopOutcome.DONE, None
    if code < 0:
        state, outcome = AgentState.CANCELLED, LoopOutcome.CANCELLED
        cause = StopCause(source="command", action="cancel", reason=f"it was ended by signal {-code}")
    elif report.get("landed") and reason:
        state, source = name_limit(reason)
        outcome = LoopOutcome.WRAPPED_UP if code == 0 else LoopOutcome.CUT_OFF
        cause = StopCause(source=source, action="graceful_exit", reason=reason)
    elif code:
        state, outcome = AgentState.ERROR, LoopOutcome.FAILED
        cause = StopCause(source="command", action="fail", reason=f"exit code {code}: {errors or 'it said nothing'}")
    cost = report.get("cost")
    return RunResult(
        run_id=str(report.get("run", "")),
        session_id="",
        state=state,
        outcome=outcome,
        cause=cause,
        text=text,
        usage=Usage(input=int(report.get("tokens", 0))),
        cost=None if cost is None else Decimal(str(cost)),
        iterations=int(report.get("calls", 0)),
        elapsed=round(seconds, 6),
    )
