"""Reads the server's reply while it streams.

A constrained reply is taken apart: an answer becomes text, a call becomes tool-call fragments.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from glidepath.models.faults import Faults
from glidepath.models.openai_chat import ChatReader
from glidepath.spi import ModelRequest
from glidepath.tools import clean
from glidepath.values import Delta, TextDelta, ToolCallDelta

_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*(?=\S)')
_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=\S)')
_WHOLE = re.compile(r'(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*', re.DOTALL)
"""Characters of a string, every escape complete."""
_HALF = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
"""The first half of a surrogate pair, at the end."""


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


class LocalReader(ChatReader):
    """Reads one chat completion of llama.cpp. `wrapped`: the reply is a constrained one."""

    def __init__(self, request: ModelRequest, faults: Faults, *, wrapped: bool) -> None:
        super().__init__(request, faults, set(), echo=False)
        self._constrained = ConstrainedReply() if wrapped else None

    def _delta(self, delta: Mapping[str, Any]) -> Iterable[Delta]:
        if self._constrained is None:
            yield from super()._delta(delta)
            return
        yield from super()._delta({**delta, "content": None})
        for made in self._constrained.feed(delta.get("content") or ""):
            self.silent = False
            yield made
        self.calls = int(self._constrained.called)

    def _end(self) -> Iterable[Delta]:
        if self._constrained is not None and self._constrained.complete:
            self._reason = "stop"  # whatever was cut came after it
        self.info.clear()  # it calls itself by the path of its file
        return super()._end()
