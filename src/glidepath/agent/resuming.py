"""Which run to continue, and what a person decided about it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from glidepath import _wire
from glidepath.run import Decision, snapshot_of
from glidepath.sessions import Session
from glidepath.tools import ArgumentsError, SchemaBinder
from glidepath.values import (
    AssistantMessage,
    ConfigurationError,
    LoopOutcome,
    PendingCall,
    RunResult,
    Snapshot,
    ToolResultMessage,
)

Target = RunResult | Session | str


def find(target: object) -> RunResult | tuple[Snapshot, Session]:
    """The state to continue from and the session to continue in; or the result itself, when the run is done.

    A result continues in a copy of its session: it carries all it needs. A `Session` continues itself.
    """
    if isinstance(target, str):
        raise ConfigurationError(
            f"resume({target!r:.80}): finding a run by its session id needs a store, and this agent has none; "
            "pass the RunResult (or the Session) of the run"
        )
    if isinstance(target, Session):
        return _read_session_state(target)
    if not isinstance(target, RunResult):
        raise ConfigurationError(f"resume takes a RunResult, a Session or a session id, not {type(target).__name__}")
    if target.outcome is LoopOutcome.DONE:
        return target
    snapshot = snapshot_of(target)
    _check_open_calls(target)
    guards = _wire.loads(_wire.encode(snapshot.guards))
    return snapshot, Session(target.session_id, messages=target.messages, metadata={"guardrails": guards})


def _read_session_state(session: Session) -> RunResult | tuple[Snapshot, Session]:
    last = session.last
    if session.in_flight:
        raise ConfigurationError(f"session {session.id!r} has a run in flight; wait for it")
    if last is None:
        raise ConfigurationError(f"session {session.id!r} has no run to resume; start one with run()")
    if last.outcome is LoopOutcome.DONE:
        return last
    if len(session.messages) != len(last.messages):
        raise ConfigurationError(
            f"the messages of session {session.id!r} were changed since its run ended; resume the RunResult, or start "
            "a new run"
        )
    snapshot = snapshot_of(last)
    _check_open_calls(last)
    return snapshot, session


def _check_open_calls(result: RunResult) -> None:
    """Check that the calls waiting for a decision are exactly those without a result in a whole transcript."""
    snapshot: Any = result.snapshot
    if not all(0 <= place < len(result.messages) for place in snapshot.pinned):
        raise ConfigurationError("this result cannot be resumed: messages of its run are missing")
    pending = {waiting.inside or waiting.call.id for waiting in result.pending}
    missing: set[str] = set()
    for message in reversed(result.messages):
        if type(message) is AssistantMessage:
            missing |= {call.id for call in message.tool_calls}
            break
    missing -= {message.call_id for message in result.messages if type(message) is ToolResultMessage}
    if pending != missing:
        raise ConfigurationError(
            f"this result cannot be resumed: calls {sorted(missing)} have no result, and {sorted(pending)} are pending"
        )


def run_of(target: object) -> str | None:
    """The run to continue; None when only its session was named."""
    result = target.last if isinstance(target, Session) else target
    return result.run_id if isinstance(result, RunResult) else None


def reject_useless_decisions(decisions: object, obeyed: Mapping[str, Decision] | None = None) -> None:
    """Reject decisions about a finished run unless they were obeyed: the person who made them expects an effect."""
    check_decisions(decisions, None, obeyed)


def check_decisions(
    decisions: object,
    snapshot: Snapshot | None,
    obeyed: Mapping[str, Decision] | None = None,
    begun: Container[str] = (),
    redacted: Container[str] = (),
) -> Mapping[str, Decision]:
    """The decisions, each about a pending call; raises `ConfigurationError` otherwise. No `snapshot`: the run is done.

    `obeyed` are those in the journal and `begun` the calls that no longer wait: a decision that is passed again after
    a death, or by a handler that is retried, is fine, and nothing comes of it. `redacted` calls cannot run any more,
    so that nobody can say whether they are what was shown.
    """
    if decisions is None:
        return {}
    if not isinstance(decisions, Mapping):
        raise ConfigurationError(
            "decisions must be a mapping of call ids to approve(), deny(reason) or answer(text), not "
            f"{decisions!r:.100}"
        )
    waiting = () if snapshot is None else snapshot.pending
    pending = {one.call.id: one for one in waiting if one.call.id not in begun}
    found: dict[str, Decision] = {}
    for call_id, decision in decisions.items():
        if call_id in pending:
            found[call_id] = _check_decision(call_id, decision)
            if call_id not in redacted and not is_about(decision, pending[call_id]):
                raise ConfigurationError(
                    f"decisions[{call_id!r:.100}]: this decision is about other arguments than those that wait; show "
                    "the call again, and decide again"
                )
            _check_answer(call_id, decision, pending[call_id])
        elif not _was_obeyed(call_id, decision, obeyed or {}):
            done = "the run is done and " if snapshot is None else ""
            waits = f"pending are {', '.join(pending)}" if pending else f"{done}nothing is pending"
            raise ConfigurationError(f"decisions: there is no pending call {call_id!r:.100}; {waits}")
    return found


def is_about(decision: Decision, waiting: PendingCall) -> bool:
    """False for a decision that carries the digest of another call than this one."""
    return not decision.digest or decision.digest == waiting.digest


def _was_obeyed(call_id: str, decision: object, obeyed: Mapping[str, Decision]) -> bool:
    """Whether the journal has this very decision; raises `ConfigurationError` when it has another one."""
    then = obeyed.get(call_id)
    if then is None:
        return False
    if _check_decision(call_id, decision).verdict != then.verdict:
        raise ConfigurationError(
            f"decisions[{call_id!r:.100}]: this call was decided before ({then.kind}), and that was carried out; "
            "leave it out"
        )
    return True


def _check_decision(call_id: object, decision: object) -> Decision:
    if not isinstance(decision, Decision) or decision.kind not in ("approve", "deny", "answer"):
        raise ConfigurationError(
            f"decisions[{call_id!r}] must be approve(), deny(reason) or answer(text), not {decision!r:.100}"
        )
    return decision


def _check_answer(call_id: str, decision: Decision, waiting: PendingCall) -> None:
    """An answer to a form has the form's fields; text or a plain yes is only for calls without a form."""
    form = waiting.form
    if form is None:
        if decision.kind == "answer" and decision.arguments is not None:
            raise ConfigurationError(f"decisions[{call_id!r}]: this call has no form; pass answer(text)")
        return
    if decision.kind == "deny":
        return
    if decision.kind == "answer" and decision.arguments is None:
        raise ConfigurationError(f"decisions[{call_id!r}]: this call needs a form; pass answer({{...}})")
    try:
        SchemaBinder("the form", {"type": "object", **form}).bind(decision.arguments or {})
    except ArgumentsError as error:
        raise ConfigurationError(f"decisions[{call_id!r}]: {'; '.join(error.problems)}") from None
