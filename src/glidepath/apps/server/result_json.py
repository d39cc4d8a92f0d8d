"""What every door tells about how a run ended, in the extension field of its protocol."""

from __future__ import annotations

from typing import Any

from glidepath.run import question_rows
from glidepath.values import RunResult


def ending_of(result: RunResult[Any]) -> dict[str, Any]:
    """Outcome, cause, tokens and money of a run, as JSON values."""
    usage, cause = result.usage, result.cause
    return {
        "run_id": result.run_id,
        "session_id": result.session_id,
        "outcome": result.outcome.value,
        "state": result.state.value,
        "cause": None if cause is None else {"source": cause.source, "reason": cause.reason},
        "usage": {"input": usage.input, "output": usage.output, "total": usage.total},
        "cost": None if result.cost is None else str(result.cost),
        "pending": [
            {
                "id": one.call.id,
                "tool": one.call.name,
                "arguments": dict(one.call.arguments),
                "reason": one.reason,
                "shown": question_rows(one),
                "digest": one.digest,
            }
            for one in result.pending
        ],
    }
