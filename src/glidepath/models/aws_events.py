"""Amazon's binary event stream: bytes in, the events of a Claude reply out.

A message is its length (4 bytes), the length of its headers (4), a checksum of both (4), the headers, the payload, and
a checksum of all of it (4). A payload of kind `chunk` is JSON that holds the event of the Messages endpoint in base64.
"""

from __future__ import annotations

import base64
from binascii import Error as BadBase64, crc32

from glidepath import _wire
from glidepath.values import TransientError

KIND = "application/vnd.amazon.eventstream"
LARGEST = 24 * 1024 * 1024  # bytes of one message, as Amazon allows
_PRELUDE = 12
_TRAILER = 4
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""How long the value of a header is, by its type; types 6 and 7 (bytes and text) say it themselves."""
_COUNTED = (6, 7)


class AwsEvents:
    """Splits a byte stream into events. `feed` returns the (name, data) pairs that are complete."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> list[tuple[str, str]]:
        """The events that are complete with this chunk; raises `TransientError` for a message that is damaged."""
        self._pending += chunk
        events = []
        while len(self._pending) >= _PRELUDE:
            total = int.from_bytes(self._pending[:4], "big")
            headers = int.from_bytes(self._pending[4:8], "big")
            sound = crc32(self._pending[:8]) == int.from_bytes(self._pending[8:12], "big")
            if not sound or total > LARGEST or total < _PRELUDE + headers + _TRAILER:
                raise TransientError("the provider sent a malformed event (a damaged message)")
            if len(self._pending) < total:
                break
            message = bytes(self._pending[:total])
            del self._pending[:total]
            if crc32(message[:-_TRAILER]) != int.from_bytes(message[-_TRAILER:], "big"):
                raise TransientError("the provider sent a malformed event (its checksum is wrong)")
            event = _event(_headers(message[_PRELUDE : _PRELUDE + headers]), message[_PRELUDE + headers : -_TRAILER])
            if event is not None:
                events.append(event)
        return events

    def finish(self) -> list[tuple[str, str]]:
        """Nothing: an incomplete message is not an event."""
        return []


def _headers(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        size = data[at]
        name = data[at + 1 : at + 1 + size].decode("utf-8", "replace")
        at += 1 + size
        kind = data[at] if at < len(data) else -1
        at += 1
        if kind in _COUNTED:
            length = int.from_bytes(data[at : at + 2], "big")
            found[name] = data[at + 2 : at + 2 + length].decode("utf-8", "replace")
            at += 2 + length
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise TransientError("the provider sent a malformed event (a header of an unknown type)")
    return found


def _event(headers: dict[str, str], payload: bytes) -> tuple[str, str] | None:
    kind = headers.get(":message-type", "event")
    if kind in ("exception", "error"):
        code = headers.get(":exception-type") or headers.get(":error-code") or "error"
        said = headers.get(":error-message") or _message(payload)
        return "error", _wire.encode({"type": "error", "error": {"type": code, "message": said}}).decode()
    if headers.get(":event-type") != "chunk":
        return None
    try:
        held = _wire.loads(payload)["bytes"]
        return "", base64.b64decode(held, validate=True).decode()
    except (_wire.WireError, BadBase64, KeyError, TypeError, ValueError):
        raise TransientError("the provider sent a malformed event (a chunk without its bytes)") from None


def _message(payload: bytes) -> str:
    try:
        held = _wire.loads(payload)
    except _wire.WireError:
        return payload.decode("utf-8", "replace")
    said = held.get("message") or held.get("Message") if isinstance(held, dict) else None
    return said if isinstance(said, str) else payload.decode("utf-8", "replace")
