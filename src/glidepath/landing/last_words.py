"""What a run can say without another call: its best text, read as the type that was asked for, or what it has done."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glidepath.messages import ToolResultMessage
from glidepath.plurals import how_many
from glidepath.tools.output import OutputError

if TYPE_CHECKING:
    from glidepath.run import Run

NO_ANSWER = "No answer was written."
_SHOWN = 300


def fitted(run: Run) -> Any:
    """The answer as the type that was asked for: the result of the tool that ended the run, or the text."""
    output: Any = run.plan.output
    if run.turn.results:
        with suppress(OutputError):
            return output.read(run.turn.results[-1].text)
    return output.read(run.answer.text)


def not_executed(run: Run, reason: str) -> str:
    """What a call is answered that does not run."""
    return run.plan.config.texts.fill("not_executed", reason=reason)


def summary(run: Run) -> str:
    """What ran and what it last returned, told without a model."""
    turns = how_many(run.turn.iterations, "model turn")
    calls = how_many(run.turn.tool_calls, "tool call")
    lines = [f"{NO_ANSWER} The run made {turns} and {calls}."]
    last = [message for message in run.transcript.messages[-8:] if type(message) is ToolResultMessage][-3:]
    for message in last:
        text = " ".join(message.text.split())
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
        lines.append(f"- {message.tool_name} {'failed' if message.is_error else 'returned'}: {shown}")
    return "\n".join(lines)
