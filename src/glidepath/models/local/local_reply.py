"""Reads the server's reply while it streams.

A constrained reply is taken apart: an answer becomes text, a call becomes tool-call fragments.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from typing import Any

from glidepath import _wire
from glidepath.errors import ContextOverflowError, ModelError, RejectedError, TransientError
from glidepath.messages import Delta, ReplyInfo, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from glidepath.models.content import VendorReply
from glidepath.spi import ModelRequest
from glidepath.tools.text import clean

_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*(?=\S)')
_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=\S)')
_WHOLE = re.compile(r'(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*', re.DOTALL)
"""Characters of a string, every escape complete."""
_HALF = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
"""The first half of a surrogate pair, at the end."""
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
        """It is complete."""

    def feed(self, text: str) -> list[Delta]:
        """What a further piece adds."""
        deltas: list[Delta] = []
        self._rest += text
        while self._rest and self._read(deltas):
            pass
        return deltas

    # Each state takes what it can from the rest, and returns True if the next one can continue at once.

    def _head(self, deltas: list[Delta]) -> bool:
        if call := _CALL.match(self._rest):
            name = call[1]  # the grammar allows only names of tools
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
        whole = _WHOLE.match(self._rest)
        end = whole.end() if whole is not None else 0
        ready, self._rest = self._rest[:end], self._rest[end:]
        if self._rest[:1] == '"':
            self._finish()
        elif half := _HALF.search(ready):  # of a surrogate pair, whose other half is still to come
            self._rest = ready[half.start(1) :] + self._rest
            ready = ready[: half.start(1)]
        if ready:
            deltas.append(TextDelta(clean(json.loads(f'"{ready}"', strict=False))))
        return False

    def _value(self, deltas: list[Delta]) -> bool:
        text, end = self._rest, len(self._rest)
        at = 0
        while at < end:
            char = text[at]
            if self._quoted:
                at += char == "\\"  # an escaped quote does not end the string
                self._quoted = char != '"'
            elif not self._depth and char in "},":  # only this tells that a number or a word has ended
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
        except (_wire.WireError, LookupError, TypeError, ValueError, AttributeError) as error:
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
            raise TransientError("the model server ended its reply without a finish_reason")
        cut = self._reason == "length" and not (reply is not None and reply.complete)
        calling = reply is not None and reply.called
        weights = self._told.weights
        info = ReplyInfo(logprobs=weights) if weights else None
        end = StreamEnd("max_tokens" if cut else "tool_use" if calling else "end_turn", self._usage, info)
        # A reply that was cut before any text is not an empty one, which would be retried.
        return [TextDelta(""), end] if self._silent and cut else [end]


def fault(status: int, content: object) -> ModelError:
    """The error for a failed reply of the server."""
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
