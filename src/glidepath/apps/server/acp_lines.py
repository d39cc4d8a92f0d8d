"""What an editor sends, line by line: a line that is not a message of JSON-RPC is refused, and not passed on.

The SDK ends the whole connection for a line such as `null`, and says nothing about one that is not JSON.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

__all__ = ["MessageLines"]

_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
_NO_MESSAGE = "a message is an object with a method, or with the id of a request and its result or error"


class MessageLines(asyncio.StreamReader):
    """The lines of `source` that are messages; the others are refused at once, in `writer`."""

    def __init__(self, source: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._source = source
        self._writer = writer

    async def readuntil(self, separator: Any = b"\n") -> bytes:
        """The next message; raises `IncompleteReadError` at the end."""
        while line := await self._read_line(separator):
            refused = _check_message(line) if line.strip() else None
            if refused is not None:
                self._writer.write(json.dumps({"jsonrpc": "2.0", "id": None, "error": refused}).encode() + b"\n")
                await self._writer.drain()
            elif line.strip():
                return line
        raise asyncio.IncompleteReadError(b"", None)

    async def _read_line(self, separator: bytes) -> bytes:
        """A line of any length; the last one may have no end, and nothing follows it."""
        parts = []
        while True:
            try:
                parts.append(await self._source.readuntil(separator))
                return b"".join(parts)
            except asyncio.LimitOverrunError as over:
                parts.append(await self._source.readexactly(over.consumed))
            except asyncio.IncompleteReadError as end:
                return b"".join([*parts, end.partial])


def _check_message(line: bytes) -> dict[str, Any] | None:
    """The error to answer a line with; None for a message."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"code": _PARSE_ERROR, "message": "Parse error", "data": {"details": str(error)[:200]}}
    return (
        None
        if _is_message(found)
        else {
            "code": _INVALID_REQUEST,
            "message": "Invalid request",
            "data": {"details": _NO_MESSAGE},
        }
    )


def _is_message(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    known = found.get("id")
    if isinstance(known, bool) or not isinstance(known, str | int | float | None):
        return False
    if "method" in found:
        return isinstance(found["method"], str)
    return "id" in found and isinstance(found.get("error", {}), dict)
