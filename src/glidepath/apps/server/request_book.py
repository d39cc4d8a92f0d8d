"""Keeps what every model call was asked: beside the events of its run, in the same log.

A request is mostly the transcript, which the journal has. So a line says how much of it was sent, and names the system
prompt, tools and parameters by a digest: they are written once, when they change. Messages that are not in the
transcript, such as a summary that stands for its beginning, are written with the call.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Record, Value, field
from glidepath.apps.server.event_log import EventLog, LogHead
from glidepath.values import describe_error

if TYPE_CHECKING:
    from glidepath.apps.server.hub import Hub
    from glidepath.run import Run
    from glidepath.spi import ModelRequest
    from glidepath.values import StreamStarted

__all__ = ["CallLine", "HeadLine", "RequestBook", "ToolShape", "book_name", "is_book"]

_log = logging.getLogger("glidepath.serve")
_BOOK = "requests:"
_OPEN = 2_000  # runs of which is known what was written
_LONGEST = 200_000  # bytes of messages that are written with one call
_OWN = ("system_prompt", "messages", "tools", "defined_tools", "max_output_tokens")
_PARAMETERS = (
    "tool_choice",
    "temperature",
    "reasoning",
    "strict_tools",
    "stop_sequences",
    "seed",
    "logprobs",
    "extras",
    "output_schema",
    "user",
    "metadata",
)


class ToolShape(Value, frozen=True, kw_only=True):
    """A tool as a model was told of it."""

    name: str
    description: str = ""
    parameters: Any = None


class HeadLine(Value, frozen=True, kw_only=True):
    """What many calls have in common."""

    head: str
    system: str = ""
    tools: tuple[ToolShape, ...] = ()
    parameters: Mapping[str, Any] = {}


class CallLine(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One call.

    `view` is None where the first `count` messages of the transcript were sent, else what was:
    places in the transcript, and messages that are not in it. `left_out`: these were too long to be kept.
    """

    call: float
    """The time of its `StreamStarted`."""
    of: str
    count: int
    allowed: tuple[str, ...] | None = None
    max_output_tokens: int | None = None
    view: tuple[Any, ...] | None = None
    left_out: bool = False


class _Open(Record, kw_only=True):
    """What is known of a run whose calls are written."""

    heads: dict[Any, str] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    writing: list[bytes] = field(default_factory=list)
    busy: bool = False


def book_name(run_id: str) -> str:
    """Under which name the log has the calls of a run."""
    return f"{_BOOK}{run_id}"


def is_book(name: str) -> bool:
    """True for what `book_name` makes."""
    return name.startswith(_BOOK)


class RequestBook:
    """Writes one line for each model call of the runs in this process."""

    def __init__(self, hub: Hub, log: EventLog) -> None:
        self._hub = hub
        self._log = log
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def note_call(self, head: LogHead, event: StreamStarted, run: Run) -> None:
        """A call of a run of ours goes out. A failure here never reaches the run."""
        request: Any = run.turn.request
        if request is not None:
            try:
                self._note(head, event, request, run.transcript.messages)
            except Exception as error:
                _log.error("a request of run %s was not kept: %s", head.run_id, describe_error(error))

    def _note(self, head: LogHead, event: StreamStarted, request: Any, transcript: Sequence[Any]) -> None:
        known = self._find_open(head.run_id)
        specs = request.defined_tools or request.tools
        key = (request.system_prompt, id(specs), *[_key_of(getattr(request, name)) for name in _PARAMETERS])
        lines = []
        of = known.heads.get(key)
        if of is None:
            line = _describe_head(request, specs)
            of = known.heads[key] = line.head
            lines.append(_wire.encode(line))
        view, left_out = _describe_view(known, request.messages, transcript)
        allowed = None if len(request.tools) == len(specs) else tuple(spec.name for spec in request.tools)
        call = CallLine(
            call=event.time,
            of=of,
            count=len(request.messages),
            allowed=allowed,
            max_output_tokens=request.max_output_tokens,
            view=view,
            left_out=left_out,
        )
        self._write(head, known, [*lines, _wire.encode(call)])

    def note_foreign_call(self, head: LogHead, time: float, body: Mapping[str, Any], count: int) -> None:
        """A call of another program goes out with this body, when its transcript has so many messages."""
        try:
            self._note_foreign(head, time, body, count)
        except Exception as error:
            _log.error("a request of run %s was not kept: %s", head.run_id, describe_error(error))

    def _note_foreign(self, head: LogHead, time: float, body: Mapping[str, Any], count: int) -> None:
        known = self._find_open(head.run_id)
        line = read_foreign_head(body)
        lines = [] if line.head in known.heads else [_wire.encode(line)]
        known.heads[line.head] = line.head
        self._write(head, known, [*lines, _wire.encode(CallLine(call=time, of=line.head, count=count))])

    def close(self, run_id: str) -> None:
        """The run makes no call for a while."""
        if self._open.pop(run_id, None) is not None:
            self._log.release(book_name(run_id))

    def _find_open(self, run_id: str) -> _Open:
        known = self._open.get(run_id)
        if known is None:
            known = self._open[run_id] = _Open()
            if len(self._open) > _OPEN:
                self._log.release(book_name(self._open.popitem(last=False)[0]))
        return known

    def _write(self, head: LogHead, known: _Open, lines: list[bytes]) -> None:
        """Lines of one run are written one batch after the other."""
        if known.busy:
            known.writing += lines
            return
        later = self._log.append(_wire.replace(head, run_id=book_name(head.run_id)), lines)
        if later is not None:
            known.busy = True
            self._hub.run_beside(self._write_rest(later, head, known))

    async def _write_rest(self, later: Awaitable[None] | None, head: LogHead, known: _Open) -> None:
        try:
            while later is not None:
                await later
                lines, known.writing = known.writing, []
                later = self._log.append(_wire.replace(head, run_id=book_name(head.run_id)), lines) if lines else None
        finally:
            known.busy = False


def _key_of(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | tuple) else id(value)


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _describe_head(request: ModelRequest, specs: Sequence[Any]) -> HeadLine:
    tools = tuple(ToolShape(name=one.name, description=one.description, parameters=one.parameters) for one in specs)
    given = {name: getattr(request, name) for name in _PARAMETERS}
    parameters = {name: value for name, value in given.items() if value not in (None, (), False, "auto")}
    return make_head(request.system_prompt, tools, parameters)


def make_head(system: str, tools: Sequence[ToolShape], parameters: Mapping[str, Any]) -> HeadLine:
    """A head with its digest; parameters that are not JSON are shown as Python does."""
    line = HeadLine(head="", system=system, tools=tuple(tools), parameters=parameters)
    try:
        written = _wire.encode(line)
    except Exception:
        line = _wire.replace(line, parameters={name: repr(value)[:500] for name, value in parameters.items()})
        written = _wire.encode(line)
    return _wire.replace(line, head=_digest(written))


def _describe_view(known: _Open, sent: Sequence[Any], transcript: Sequence[Any]) -> tuple[tuple[Any, ...] | None, bool]:
    """What was sent, as places in the transcript; None where it is its beginning."""
    if sent is transcript:
        return None, False
    places = known.places
    for place in range(len(places), len(transcript)):
        places[id(transcript[place])] = place
    found: list[Any] = [places.get(id(message)) for message in sent]
    if all(place == number for number, place in enumerate(found)):
        return None, False
    size, left_out = 0, False
    for number, place in enumerate(found):
        if place is None:
            written = _wire.encode(sent[number])
            size += len(written)
            left_out |= size > _LONGEST
            found[number] = None if left_out else _wire.Raw(written)
    return tuple(found), left_out


# --- the bodies of other programs ---------------------------------------------------------------------------------

_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_SAID = ("messages", "input", "contents")


def read_foreign_head(body: Mapping[str, Any]) -> HeadLine:
    """System prompt, tools and parameters of a request in one of the vendors' formats."""
    system = next((_read_text(body[name]) for name in _SYSTEM if body.get(name)), "")
    if not system:  # chat completions: the first messages
        said = body.get("messages")
        heads = (
            [one for one in said if isinstance(one, Mapping) and one.get("role") in ("system", "developer")]
            if (isinstance(said, list))
            else []
        )
        system = "\n\n".join(_read_text(one.get("content")) for one in heads)
    tools = [shape for one in body.get("tools") or () for shape in _read_tools(one)]
    hidden = {*_SYSTEM, *_SAID, "tools", "model"}
    return make_head(system, tools, {name: value for name, value in body.items() if name not in hidden})


def _read_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return _read_text(content.get("text") or content.get("parts") or "")
    if isinstance(content, list):
        return "\n\n".join(filter(None, map(_read_text, content)))
    return ""


def _read_tools(tool: Any) -> list[ToolShape]:
    if not isinstance(tool, Mapping):
        return []
    declared = tool.get("functionDeclarations") or tool.get("function_declarations")
    if isinstance(declared, list):
        return [shape for one in declared for shape in _read_tools(one)]
    inner = tool.get("function")
    told = inner if isinstance(inner, Mapping) else tool
    name = str(told.get("name") or told.get("type") or "tool")
    schema = told.get("input_schema") or told.get("parameters") or told.get("parametersJsonSchema")
    return [ToolShape(name=name, description=str(told.get("description") or ""), parameters=schema)]
