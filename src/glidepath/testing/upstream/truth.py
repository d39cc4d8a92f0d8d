"""What the upstream really served: the figures a test compares a gate's own with."""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from pathlib import Path
from typing import Any, TextIO

from glidepath._wire import Record, asdict, encode, field

SECRETS = ("authorization", "x-api-key", "x-goog-api-key", "api-key", "proxy-authorization", "cookie")


class UpstreamUsage(Record):
    """Totals. Tokens count what was put on the wire, whatever the reply reported."""

    calls: int = 0
    """Requests for a reply that got one, broken replies included."""
    input: int = 0
    """Input tokens, those from the cache included."""
    cached: int = 0
    written: int = 0
    output: int = 0
    """Output tokens, hidden ones included."""
    hidden: int = 0
    refused: int = 0
    """Requests that were illegal."""
    faults: int = 0
    """Requests answered with an error on purpose."""
    aborted: int = 0
    """Streams that the client left."""
    counted: int = 0
    """Requests to count tokens; they cost nothing."""
    open: int = 0
    """Calls that are being answered now."""
    most_open: int = 0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input + self.output


class UpstreamCall(Record):
    """One request and how it was answered."""

    number: int
    run: str
    dialect: str
    method: str
    path: str
    headers: dict[str, str]
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    model: str = ""
    stream: bool = False
    tools: tuple[str, ...] = ()
    choice: str = ""
    max_output: int | None = None
    child: str | None = None
    past: int = 0
    status: int = 0
    fault: str = ""
    error: str = ""
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    hidden: int = 0
    stop: str = ""
    said: tuple[str, ...] = ()
    """Names of the tools that the reply calls."""
    is_aborted: bool = False
    began: float = 0.0
    seconds: float = 0.0


class Ledger:
    """Adds up calls, in all and for each run; keeps the latest of them and writes each to a log."""

    def __init__(self, log: Path | None, *, keep: int, bodies: bool) -> None:
        self.usage = UpstreamUsage()
        self.runs: dict[str, UpstreamUsage] = {}
        self.calls: deque[UpstreamCall] = deque(maxlen=keep)
        self.bodies = bodies
        self.idle = asyncio.Event()
        self.idle.set()
        self._keep = keep
        self._file: TextIO | None = log.open("a", encoding="utf-8") if log else None

    def begin(self, call: UpstreamCall) -> None:
        """A call arrived."""
        self.idle.clear()
        for usage in self._lines(call):
            usage.open += 1
            usage.most_open = max(usage.most_open, usage.open)
        if self._keep:
            self.calls.append(call)

    def bill_input(self, call: UpstreamCall) -> None:
        """The call is accepted: its input costs, whatever happens to the reply."""
        for usage in self._lines(call):
            usage.calls += 1
            usage.input += call.input
            usage.cached += call.cached
            usage.written += call.written

    def end(self, call: UpstreamCall) -> None:
        """The call is answered, or its client has left."""
        for usage in self._lines(call):
            usage.open -= 1
            usage.output += call.output
            usage.hidden += min(call.hidden, call.output)
            usage.aborted += call.is_aborted
            usage.refused += bool(call.error) and not call.fault
            usage.faults += bool(call.fault) and call.status != HTTPStatus.OK
        if not self.usage.open:
            self.idle.set()
        if self._file is not None:
            self._file.write(encode(describe_call(call, bodies=self.bodies)).decode() + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lines(self, call: UpstreamCall) -> tuple[UpstreamUsage, UpstreamUsage]:
        if call.run not in self.runs:
            self.runs[call.run] = UpstreamUsage()
        return self.usage, self.runs[call.run]


def describe_call(call: UpstreamCall, *, bodies: bool) -> dict[str, Any]:
    """A line of the log: of keys and cookies only that they were there, the body only when asked for."""
    line = asdict(call)
    line["headers"] = {name: "***" if name in SECRETS else value for name, value in call.headers.items()}
    if "key" in call.query:
        line["query"] = {**call.query, "key": "***"}
    if not bodies:
        del line["body"]
    return line
