"""The protocol policy: the seam through which an application brings its own tool vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath.values import UNPROVEN, ToolCall, experimental


@experimental(reason=UNPROVEN)
class ProtocolPolicy:
    """How a conversation is conducted. The default names no tool.

    Contract: methods are synchronous, pure and quick; what they are given is a copy. One that raises or answers
    nonsense is reported as `HookFailed`. If it fails to provide a text, the default text is used. If it fails to repair
    calls, none of them runs and the model is told, because it is unclear which tools were meant.
    """

    terminal_tool_names: frozenset[str] = frozenset()
    """More tools that deliver, as `terminal=True` does: never withdrawn, and a success ends the run."""

    def plain_text_recovery_prompt(self, text: str, tool_name: str) -> str:  # noqa: ARG002 - part of the port
        """What to tell a model that answered in plain text where a tool was expected."""
        return f"Your reply was plain text. Deliver it by calling the tool {tool_name!r}."

    def normalize_tool_calls(self, calls: Sequence[ToolCall], tool_names: frozenset[str]) -> Sequence[ToolCall]:  # noqa: ARG002
        """Repair aliased names; return the calls to run, one for one."""
        return calls

    def hidden_tool_error(self, name: str, available: Sequence[str]) -> str | None:  # noqa: ARG002
        """What to tell a model that called a tool it may not use now; None for the default text."""
        return None
