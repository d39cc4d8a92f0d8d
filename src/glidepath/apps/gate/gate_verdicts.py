"""Why the gate brings an agent down, as the verdicts that our own runs end by: a state, a source, and words.

The journal, the report and the deck have them as data. The words are for people, and nobody reads them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath.apps.gate.gate_words import describe_family, describe_limit
from glidepath.kernel import make_refusal_verdict
from glidepath.values import AgentState, StopCause, Verdict

if TYPE_CHECKING:
    from glidepath.apps.gate.tree import GateLimits
    from glidepath.run import Meter, Refusal

_OWN = {"tokens": "tokens", "money": "money", "turns": "calls"}
"""Which limit of a run a resource of the ledger is."""


def judge_refusal(meter: Meter, limits: GateLimits, refusal: Refusal) -> Verdict:
    """A budget has nothing left: of the run itself, with its figure, or of what is above it, as the ledger says."""
    if refusal.resource == "time":
        return judge_time(limits)
    if refusal.resource == "queue":
        return _judge(AgentState.BUDGET_EXCEEDED, "queue", "the budget is used up, or reserved by other calls")
    verdict = make_refusal_verdict(meter, refusal)
    own = getattr(limits, _OWN.get(refusal.resource, ""), None)
    if own != refusal.limit:
        return verdict
    cause = verdict.cause
    reason = describe_limit(limits, refusal.resource)
    cause = StopCause(source=cause.source, action=cause.action, reason=reason, metrics=cause.metrics)
    return Verdict(state=verdict.state, cause=cause)


def judge_time(limits: GateLimits) -> Verdict:
    """The time of a run is up, or nearly."""
    return _judge(AgentState.TIMED_OUT, "TimeoutConstraint", describe_limit(limits, "time"))


def judge_family(refusal: Refusal) -> Verdict:
    """A sub-agent too many, or one too deep."""
    source = f"max_{refusal.resource}"
    return _judge(AgentState.MAX_STEPS, source, describe_family(refusal.resource, refusal.limit))


def judge_loop(reason: str) -> Verdict:
    """The guard saw an agent go in circles."""
    return _judge(AgentState.ERROR, "repetition", reason, action="land")


def judge_order(reason: str) -> Verdict:
    """A person wants it to finish."""
    return _judge(AgentState.CANCELLED, "person", reason, action="wind_down")


def judge_stop(reason: str) -> Verdict:
    """A person has stopped it, or everything."""
    return _judge(AgentState.CANCELLED, "KillSwitchConstraint", reason, action="cancel")


def judge_void_key(reason: str) -> Verdict:
    """The key that let it in was revoked or has expired."""
    return _judge(AgentState.CANCELLED, "key", reason, action="cancel")


def judge_store(reason: str) -> Verdict:
    """What it may cost cannot be kept."""
    return _judge(AgentState.ERROR, "store", reason, action="fail")


def report_verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    """A verdict in a report: plain data."""
    if verdict is None:
        return None
    cause = verdict.cause
    return {
        "state": verdict.state.value,
        "source": cause.source,
        "action": cause.action,
        "reason": cause.reason,
        "metrics": dict(cause.metrics),
    }


def read_reported(cause: dict[str, Any]) -> Verdict:
    """The verdict in a report."""
    return Verdict(
        state=AgentState(cause["state"]),
        cause=StopCause(
            source=cause["source"], action=cause["action"], reason=cause["reason"], metrics=cause["metrics"]
        ),
    )


def _judge(state: AgentState, source: str, reason: str, *, action: str = "graceful_exit") -> Verdict:
    return Verdict(state=state, cause=StopCause(source=source, action=action, reason=reason))
