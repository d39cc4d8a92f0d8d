"""Who approves a call that needs it: a rule has, a model may, and else a person must."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from glidepath.run import ASKED, CallScope, Touchdown, await_interruptibly_within, check_survivable, recall, report
from glidepath.spi import INSIDE
from glidepath.values import (
    CallRuled,
    LoopOutcome,
    ResultKind,
    RunResult,
    ToolResultMessage,
    origins_of,
)

if TYPE_CHECKING:
    from glidepath.kernel.tool_calls.job import Job
    from glidepath.run import Run

SECONDS = 60.0
"""For one review; a slower reviewer has not said yes."""
MOST_REFUSED = 3
_NAMED = "reviewer "
_USUAL = "this tool needs a person's approval"


def record_ruling(run: Run, job: Job, verdict: str, rule: str) -> None:
    """A rule or a reviewer has said something about this call: its result and the events name it."""
    job.rule, job.allowed = rule, verdict == "allow"
    run.emit(CallRuled, job.call.id, job.call.name, verdict, rule)


async def ask_approval(run: Run, job: Job, batch: list[Job]) -> None:
    """The tool's own `requires_approval`: answered by a rule or a reviewer, else the call waits for a person."""
    tool: Any = job.tool
    if job.allowed and not tool.approval_is_firm:
        return
    if run.plan.reviewer is not None and job.rule is None and _may_review(run, job, batch):
        await _review(run, job)
        if job.allowed or job.result is not None:
            return
    job.waits_for = tool.approval_reason or _USUAL


def _may_review(run: Run, job: Job, batch: list[Job]) -> bool:
    """Whether a model may say yes: not to what changes the world, not after untrusted text, not after many refusals."""
    tool: Any = job.tool
    if tool.approval_is_firm or tool.consequential or _count_refusals(run, batch) >= MOST_REFUSED:
        return False
    return bool(tool.read_only) or not (run.work.heard or origins_of(run.transcript.messages))


def _count_refusals(run: Run, batch: list[Job]) -> int:
    messages = run.transcript.messages[run.transcript.first_new :]
    told = [one.rule for one in messages if type(one) is ToolResultMessage and one.kind == ResultKind.BLOCKED.value]
    told += [one.rule for one in batch if one.result is not None and one.kind == ResultKind.BLOCKED.value]
    return sum(rule is not None and rule.startswith(_NAMED) for rule in told)


async def _review(run: Run, job: Job) -> None:
    """Ask the reviewer, as a child of this run: charged, journaled, stopped with it. Only a clear yes is one."""
    key = f"review {job.call.id}"
    place = CallScope(run, key, ASKED)
    before = INSIDE.get()
    INSIDE.set(place)
    try:
        reviewer: Any = run.plan.reviewer
        result = await await_interruptibly_within(reviewer.ask(_question(job)), run.watch, SECONDS)
        said = _read_reply(result)
    except Touchdown:
        raise
    except BaseException as error:
        check_survivable(run, error)
        report(run, "review", "approvals", error, "a person is asked")
        return
    finally:
        place.close()
        INSIDE.set(before)
        if run.work.spawned and not run.watch.gone:
            await recall(run, key)
    if said is None:
        return
    allowed, why = said
    record_ruling(run, job, "allow" if allowed else "refuse", f"{_NAMED}{reviewer.name}")
    if not allowed:
        reason = f"the reviewer refused it: {why}" if why else "the reviewer refused it"
        job.refuse(ResultKind.BLOCKED, run.plan.config.texts.fill("blocked", reason=reason))


def _question(job: Job) -> str:
    tool, bound = job.tool, job.bound
    call = {
        "tool": job.call.name,
        "description": tool.description,  # type: ignore[union-attr]
        "arguments": bound.arguments,  # type: ignore[union-attr]
        "why a person would be asked": tool.approval_reason or _USUAL,  # type: ignore[union-attr]
    }
    return json.dumps(call, ensure_ascii=True, indent=1, default=str)


def _read_reply(result: RunResult) -> tuple[bool, str] | None:
    """The verdict and its reason; None when the reply is unclear."""
    if result.outcome is not LoopOutcome.DONE:
        return None
    head, _, rest = result.text.strip().partition("\n")
    word, _, reason = head.partition(":")
    if head.strip() == "ALLOW" and not rest.strip():
        return True, ""
    return (False, " ".join(f"{reason} {rest}".split())[:500]) if word.strip() == "REFUSE" else None
