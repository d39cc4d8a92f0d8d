"""What a request asks of the scripted upstream, whichever dialect it came in."""

from __future__ import annotations

import re
from typing import Any

from glidepath._wire import Record, Value, encode, field

CHILD = re.compile(r"scripted child (\d+(?:\.\d+)*)")
"""How a sub-agent's prompt names it: `scripted child 2` is the second, `scripted child 2.1` its own first one."""
TOLD_CALL = re.compile(r"'name': '([^']+)', 'arguments'")
"""A tool call in an assistant's text, where an agent tells its history in words instead of `tool_calls`."""
SUBMIT_LINE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The shell line by which some agents submit their work; their prompt names it."""


class IllegalRequestError(Exception):
    """A request that the vendor would refuse, with the vendor's own status and words."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "", param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param, self.code = status, kind, param, code


class OfferedTool(Value):
    """A tool that the request offers; `kind` is `function` or `custom` (free text instead of JSON)."""

    name: str
    parameters: dict[str, Any]
    kind: str = "function"
    namespace: str | None = None


class InputBlock(Value):
    """A part of the input in the order the vendor reads it; `is_marked` asks to cache everything up to here."""

    data: bytes
    is_marked: bool = False
    salt: bytes = b""
    """What else decides whether a cached prefix fits from here on; it costs nothing."""


class PastCall(Value):
    """A tool call in the history that the client sent."""

    name: str
    call_id: str = ""
    arguments: str = ""
    result: str = ""


class AskedCall(Record):
    """One request, read.

    `choice` is `auto`, `none`, `any`, or `=` and the name of the tool that is forced.
    """

    dialect: str
    model: str
    stream: bool = False
    tools: tuple[OfferedTool, ...] = ()
    choice: str = "auto"
    max_output: int | None = None
    schema: dict[str, Any] | None = None
    """What the text of the reply must fit."""
    blocks: list[InputBlock] = field(default_factory=list)
    past: list[PastCall] = field(default_factory=list)
    user_texts: list[str] = field(default_factory=list)
    has_submit_line: bool = False
    thinks: bool = False
    shows_thinking: bool = True
    wants_usage: bool = True
    wants_encrypted: bool = False
    is_parallel: bool = True
    copies: int = 1
    is_stored: bool = False
    as_array: bool = False
    items: list[Any] = field(default_factory=list)
    echo: dict[str, Any] = field(default_factory=dict)
    """Fields of the request that the vendor repeats in its reply."""

    @property
    def child(self) -> str | None:
        """The number of the scripted child that sends this, from its prompt; None in the first agent."""
        for text in self.user_texts:
            found = CHILD.search(text)
            if found:
                return found[1]
        return None

    def add_block(self, value: object, *, is_marked: bool = False, salt: bytes = b"") -> None:
        """Append a part of the input."""
        self.blocks.append(InputBlock(data=encode(value), is_marked=is_marked, salt=salt))

    def find_tool(self, name: str) -> OfferedTool | None:
        """The offered tool of that name."""
        return next((tool for tool in self.tools if tool.name == name), None)


def read_field(body: dict[str, Any], name: str, kind: type | tuple[type, ...], *, message: str = "") -> Any:
    """A field of a body, None when it is missing or null; refused when it has another type."""
    value = body.get(name)
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    raise IllegalRequestError(message or f"{name}: Input should be a valid {_describe(kind)}", param=name)


def _describe(kind: type | tuple[type, ...]) -> str:
    words = {dict: "dictionary", list: "list", str: "string", int: "integer", bool: "boolean"}
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(words.get(one, one.__name__) for one in kinds)


def join_texts(content: object, *kinds: str) -> str:
    """The text of a content field: a string, or the `text` of its parts of these types."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part for part in content if isinstance(part, dict) and part.get("type") in kinds]
    return "\n".join(str(part.get("text") or "") for part in parts)
