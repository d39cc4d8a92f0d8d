"""A tool that needs a person's answer in the middle of its call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath._wire import Value
from glidepath.errors import ToolError

__all__ = ["Continuation", "NeedsInput"]


class NeedsInput(ToolError):  # noqa: N818 - not an error: what the call waits for
    """Raised by a tool that is `asking_back()`: the run pauses, and the call is made again with the person's answer.

    `form` is the JSON Schema of the answer. `state` is what the tool needs to go on, plain text; it is in the journal,
    so that the answer can be given in another process.
    """

    def __init__(self, reason: str, *, form: Mapping[str, Any] | None = None, state: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.form = dict(form or {})
        self.state = state


class Continuation(Value, frozen=True):
    """What a call that had asked goes on with: its own `state` and the person's `answer`."""

    state: str
    answer: Mapping[str, Any]
