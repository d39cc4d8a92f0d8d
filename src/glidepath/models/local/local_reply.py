"""What the server says, read while it streams.

A constrained reply is taken apart: an answer becomes text, a call becomes tool-call fragments.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

from glidepath import _wire
from glidepath.errors import ContextOverflowError, ModelError, RejectedError, TransientError
from glidepath.messages import Delta, ReplyInfo, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from glidepath.models.content import VendorReply
from glidepath.spi import ModelRequest

__all__ = ["ConstrainedReply", "Reading", "fault"]

_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*(?=\S)')
_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=\S)')
_SPECIAL = re.compile(r'["\\]')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HEX = 6  # characters of \uXXXX
_HIGH, _LOW, _AFTER = 0xD800, 0xDC00, 0xE000  # where the two halves of a surrogate pair begin, and what follows them
_LOST = "\ufffd"
_BAD_REQUEST, _UNAUTHORIZED, _SERVER_ERROR = 400, 401, 500


class ConstrainedReply:
    """Reads {"answer": ...} or {"tool": name, "arguments": {...}} in whatever pieces it comes.

    An answer that is a string is unescaped; any other value is passed on as the JSON it is.
    """

    def __init__(self) -> None:
        self._read: Callable[[list[Delta]], bool] = self._head
        self._rest = ""
        self._depth = 0
        self._quoted = False
        self.called = False
        """It is a tool call."""
        self.complete = False
        """It has come to its end."""

    def feed(self, text: str) -> list[Delta]:
        """What a further piece adds."""
        deltas: list[Delta] = []
        self._rest += text
        while self._rest and self._read(deltas):
            pass
        return deltas

    # Each state takes what it can from the rest, and says whether to continue at once with the next one.

    def _head(self, deltas: list[Delta]) -> bool:
        if call := _CALL.match(self._rest):
            name = call[1]  # the constraint lets only names of tools through
            deltas.append(ToolCallDelta(0, f"call_{secrets.token_hex(4)}", name))
            self.called, self._read, self._rest = True, self._value, self._rest[call.end() :]
            return True
        if answer := _ANSWER.match(self._rest):
            self._rest = self._rest[answer.end() :]
            quoted = self._rest[0] == '"'
            self._read = self._string if quoted else self._value
            self._rest = self._rest[quoted:]
            return True
        return False

    def _string(self, deltas: list[Delta]) -> bool:
        text, ready = self._rest, []
        at = 0
        while special := _SPECIAL.search(text, at):
            ready.append(text[at : special.start()])
            at = special.start()
            if special[0] == '"':
                self._finish()
                break
            taken, size = _unescaped(text, at)
            if not size:  # the rest of the escape is still to come
                break
            ready.append(taken)
            at += size
        else:
            ready.append(text[at:])
            at = len(text)
        if not self.complete:
            self._rest = text[at:]
        if said := "".join(ready):
            deltas.append(TextDelta(said))
        return False

    def _value(self, deltas: list[Delta]) -> bool:
        text, end = self._rest, len(self._rest)
        at = 0
        while at < end:
            char = text[at]
            if self._quoted:
                at += char == "\\"  # whatever it escapes is no end
                self._quoted = char != '"'
            elif not self._depth and char in "},":  # the end of a number or a word, which only what follows can tell
                return self._pass_on(text[:at], deltas, over=True)
            else:
                self._quoted = char == '"'
                self._depth += (char in "{[") - (char in "}]")
                if not self._depth and char in "}]":
                    return self._pass_on(text[: at + 1], deltas, over=True)
            at += 1
        if at > end:  # cut inside an escape: take it with the next piece
            self._rest = text[end - 1 :]
            text = text[: end - 1]
        else:
            self._rest = ""
        return self._pass_on(text, deltas, over=False)

    def _pass_on(self, text: str, deltas: list[Delta], *, over: bool) -> bool:
        if over:
            self._finish()
        if text:
            deltas.append(ToolCallDelta(0, arguments=text) if self.called else TextDelta(text))
        return False

    def _finish(self) -> None:
        self.complete, self._rest, self._read = True, "", self._tail

    def _tail(self, _deltas: list[Delta]) -> bool:
        self._rest = ""
        return False


def _unescaped(text: str, at: int) -> tuple[str, int]:
    """The character that the escape at `at` stands for, and how long the escape is; 0 when it is not all there."""
    kind = text[at + 1 : at + 2]
    if kind and kind != "u":
        return _ESCAPES.get(kind, kind), 2
    code = _unit(text, at)
    if code is None:
        return "", 0
    if not _HIGH <= code < _AFTER:
        return chr(code), _HEX
    return _paired(text, at, code)


def _paired(text: str, at: int, high: int) -> tuple[str, int]:
    """The character of a surrogate pair; a lone half is not a character."""
    follows = text[at + _HEX : at + _HEX + 2]
    if high >= _LOW or not "\\u".startswith(follows):
        return _LOST, _HEX
    low = _unit(text, at + _HEX)
    if low is None:
        return "", 0
    if not _LOW <= low < _AFTER:
        return _LOST, _HEX
    return chr(0x10000 + ((high - _HIGH) << 10) + (low - _LOW)), 2 * _HEX


def _unit(text: str, at: int) -> int | None:
    digits = text[at + 2 : at + _HEX]
    return int(digits, 16) if len(digits) == _HEX - 2 else None


class Reading:
    """Turns the events of one chat completion into deltas. `wrapped`: the reply is a constrained one."""

    def __init__(self, *, wrapped: bool, request: ModelRequest | None = None) -> None:
        self._reply = ConstrainedReply() if wrapped else None
        self._told = VendorReply(set(), request)
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._silent = True

    def read(self, data: str) -> list[Delta]:
        """The deltas of one event."""
        if data == "[DONE]":
            return []
        try:
            event = _wire.loads(data)
            deltas = self._choices(event["choices"])
        except (_wire.WireError, LookupError, TypeError, AttributeError) as error:
            raise fault(_SERVER_ERROR, data[:1000]) from error
        if given := event.get("usage"):
            cached = (given.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(given["prompt_tokens"], given["completion_tokens"], cached)
        self._silent = self._silent and not deltas
        return deltas

    def _choices(self, choices: list[dict[str, Any]]) -> list[Delta]:
        deltas: list[Delta] = []
        for choice in choices:
            self._reason = choice.get("finish_reason") or self._reason
            delta = choice["delta"]
            if choice.get("logprobs"):
                self._told.weighed(choice["logprobs"].get("content"))
            if thought := delta.get("reasoning_content"):
                deltas.append(ThinkingDelta(thought))
            if text := delta.get("content"):
                deltas += [TextDelta(text)] if self._reply is None else self._reply.feed(text)
        return deltas

    def finish(self) -> list[Delta]:
        """How it ended."""
        reply = self._reply
        if self._reason is None:
            raise TransientError("the model server ended its reply without a reason")
        cut = self._reason == "length" and not (reply is not None and reply.complete)
        calling = reply is not None and reply.called
        weights = self._told.weights
        info = ReplyInfo(logprobs=weights) if weights else None
        end = StreamEnd("max_tokens" if cut else "tool_use" if calling else "end_turn", self._usage, info)
        # Cut before anything could be shown is not the same as silence, which would be tried again.
        return [TextDelta(""), end] if self._silent and cut else [end]


def fault(status: int, content: object) -> ModelError:
    """Which of our errors a reply of the server is."""
    error = content.get("error", content) if isinstance(content, dict) else content
    message = str(error.get("message", error) if isinstance(error, dict) else error)[:1000]
    if isinstance(error, dict):
        if error.get("type") == "exceed_context_size_error":
            return ContextOverflowError(f"llama.cpp: {message}")
        code = error.get("code")
        status = code if isinstance(code, int) else status
    if _BAD_REQUEST <= status < _SERVER_ERROR and status != _UNAUTHORIZED:
        return RejectedError(f"llama.cpp: {message}")
    return TransientError(f"llama.cpp: {status}: {message}")
