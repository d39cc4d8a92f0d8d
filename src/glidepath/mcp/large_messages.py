"""Messages with very many parts, made smaller before the SDK sees them: it builds an object for every part.

Sixty thousand small parts fit into a message of 2.5 MB and would hold the loop for most of a second.
"""

from __future__ import annotations

from typing import Any

from glidepath import _wire

OFF_THE_LOOP = 256 << 10  # bytes of a message that are read on a thread
SMALL = 8 << 10
MOST_BRACES = 1_000
MOST_PARTS = 199  # of one result; with the note that some were left out, as many as a result may have
MOST_ENTRIES = 2_001  # of one list: one more than we take, so that it is noticed
_LISTS = ("tools", "resources", "resourceTemplates", "prompts", "contents", "messages")


def is_large(line: bytes | bytearray) -> bool:
    """True for a message that is read on a thread, and made smaller there."""
    return len(line) > OFF_THE_LOOP or (len(line) > SMALL and line.count(b"{") > MOST_BRACES)


def slim_message(line: bytes) -> Any:
    """The message with no more parts than are ever read; raises `ValueError` for what is not JSON."""
    data = _wire.loads(line)
    result = data.get("result") if isinstance(data, dict) else None
    if isinstance(result, dict):
        content = result.get("content")
        if isinstance(content, list) and len(content) > MOST_PARTS:
            left_out = len(content) - MOST_PARTS
            note = {"type": "text", "text": f"[{left_out} more parts of this result were left out]"}
            result["content"] = [*content[:MOST_PARTS], note]
        for name in _LISTS:
            listed = result.get(name)
            if isinstance(listed, list) and len(listed) > MOST_ENTRIES:
                result[name] = listed[:MOST_ENTRIES]
    return data


def slim_bytes(line: bytes) -> bytes:
    """The same as JSON; anything else is not changed."""
    try:
        return _wire.encode(slim_message(line))
    except Exception:
        return line
