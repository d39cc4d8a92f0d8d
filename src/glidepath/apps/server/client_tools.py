"""Tools that a page or a program brings with its request: the run waits for each of their calls, and it answers.

A call of such a tool is judged by hooks, limits and rules as any other. Where it would run, the run pauses instead,
and the next request with its result continues the same run. What such a tool returns is untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath._wire import Value
from glidepath.apps.server.refusals import HttpError
from glidepath.run import Decision, answer
from glidepath.tools import NeedsInput, Tool, ToolContext, ToolResult
from glidepath.values import ConfigurationError, PendingCall

__all__ = ["MOST_DEPTH", "ClientAnswer", "ClientTool", "is_client_call", "is_too_deep", "make_client_tools"]

MOST_TOOLS = 128
MOST_DEPTH = 100
_MARK = "glidepath: a tool of the client"
"""The state of a pending call that its client answers, and that no person is asked about."""
_WAITS = "it runs in the page or program that started the run, which has not answered yet"
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "content": {"type": "string", "description": "what the tool returned"},
        "is_error": {"type": "boolean", "description": "true when it failed"},
    },
    "required": ["content"],
    "additionalProperties": False,
}


class ClientTool(Value, frozen=True, kw_only=True):
    """One tool as a request defines it; `place` is where, such as `tools[0]`."""

    place: str
    name: Any
    description: Any = None
    parameters: Any = None


class ClientAnswer(Value, frozen=True, kw_only=True):
    """What a client says that its tool has returned."""

    content: str
    is_error: bool = False

    @property
    def decision(self) -> Decision:
        """As the run takes it."""
        return answer({"content": self.content, "is_error": self.is_error})


def is_client_call(pending: PendingCall) -> bool:
    """True for a call that the client answers; False for one that a person must decide about."""
    return pending.state == _MARK


def make_client_tools(given: Sequence[ClientTool]) -> tuple[Tool, ...]:
    """The tools of a request; raises `HttpError`."""
    if len(given) > MOST_TOOLS:
        raise HttpError(400, "tools", f"at most {MOST_TOOLS} tools, not {len(given)}", param="tools")
    found: dict[str, Tool] = {}
    for one in given:
        try:
            tool = _make_tool(one)
        except ConfigurationError as error:
            raise HttpError(400, "tools", f"{one.place}: {error}", param=one.place) from None
        if tool.name in found:
            raise HttpError(400, "tools", f"{one.place}: there are two tools named {tool.name!r}", param=one.place)
        found[tool.name] = tool
    return tuple(found.values())


def is_too_deep(schema: object) -> bool:
    """True for JSON that is nested deeper than the checks of a schema, which call themselves, can follow."""
    level: list[Any] = [schema]
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, Mapping | list | tuple)
            for inner in (one.values() if isinstance(one, Mapping) else one)
        ]
        if not level:
            return False
    return True


def _make_tool(given: ClientTool) -> Tool:
    if not isinstance(given.name, str):
        raise ConfigurationError("name must be text")
    parameters = given.parameters or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise ConfigurationError("parameters must be a JSON Schema")
    if is_too_deep(parameters):
        raise ConfigurationError(f"parameters must be nested {MOST_DEPTH} deep at most")
    tool = Tool(
        name=given.name,
        description=given.description if isinstance(given.description, str) else "",
        parameters=parameters,
        fn=_never_called,
        idempotent=True,  # asking once more changes nothing
        untrusted=True,
    )
    return tool.answering(_ask_client).asking_back()


async def _ask_client(_: Mapping[str, Any], context: ToolContext | None) -> ToolResult:
    """Wait for the client's answer, or return it."""
    continued = None if context is None else context.continuation
    if continued is None:
        raise NeedsInput(_WAITS, form=_FORM, state=_MARK)
    return ToolResult(str(continued.answer["content"]), is_error=continued.answer.get("is_error") is True)


async def _never_called(**_: object) -> None:
    """Never called: the tool's body is its client."""
