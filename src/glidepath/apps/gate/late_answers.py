"""An answer that comes after 200 and signs of life have gone out: framed as the dialect's streams are."""

from __future__ import annotations

_NAMED = ("anthropic", "openai-responses")


def frame_late(dialect: str, body: bytes) -> bytes:
    """A JSON body as the last event of a stream; a client that reads JSON skips the space before it anyway."""
    text = b" ".join(body.split(b"\n")).strip()
    name = b"event: error\n" if dialect in _NAMED else b""
    return name + b"data: " + text + b"\n\n"
