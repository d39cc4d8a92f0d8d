"""A model that follows a script, and fails the test when the runtime does not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Self

from glidepath import _wire
from glidepath._wire import Value
from glidepath.spi import HostedTool, ModelRequest
from glidepath.testing.turns import Call, Step, Turn, UsageReport, as_turn, pieces
from glidepath.values import (
    AssistantMessage,
    Delta,
    Message,
    ModelError,
    ReasoningDelta,
    RejectedError,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    pluralize,
)

_CHARS_PER_TOKEN = 4


class ScriptError(RejectedError, AssertionError):
    """The script and the run disagree: an unexpected request, or an unused turn. Never retried."""


class RecordedRequest(Value, frozen=True, kw_only=True):
    """One request as it was when it was made; later changes to the transcript do not show."""

    system_prompt: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    max_output_tokens: int | None
    tool_choice: str
    output_schema: Mapping[str, Any] | None = None
    defined_tools: tuple[str, ...] = ()
    extras: Mapping[str, Any] | None = None
    user: str | None = None
    metadata: Mapping[str, str] | None = None
    hosted_tools: tuple[str, ...] = ()
    reasoning_tokens: int | None = None
    task_budget: tuple[int, int | None] | None = None


class RequestMeasure:
    """How long the requests of a run are, in characters."""

    def __init__(self) -> None:
        self._lengths: dict[int, tuple[Message, int]] = {}

    def count_characters(self, request: ModelRequest) -> int:
        """The characters of a whole request: prompt, tool definitions, messages and the calls in them."""
        tools = request.defined_tools or request.tools
        schemas = sum([len(tool.name) + len(tool.description) + len(_wire.encode(tool.parameters)) for tool in tools])
        measured = self._lengths
        length = len(request.system_prompt) + schemas
        for message in request.messages:  # each is measured once: a long run sends it in every turn
            known = measured.get(id(message))
            if known is None:
                calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
                size = sum([len(call.name) + len(_wire.encode(call.arguments)) for call in calls])
                known = measured[id(message)] = (message, len(message.text) + size)
            length += known[1]
        return length


class ScriptedModel:
    """A model that answers each request with the next turn of its script, and nothing else.

    A request after the last turn raises `ScriptError`. The runtime may turn that into a result, so the model remembers
    it: `check()` raises it again, and raises for unused turns. With `with ScriptedModel([...]) as model:` it checks
    itself at the end of the block.

    Usage is counted from the whole request (four characters per token): pass `usage=` to save that time in a long run,
    and `record=False` to keep no requests. Delays use `asyncio.sleep`, before each piece.
    """

    def __init__(
        self,
        turns: Iterable[Step] = (),
        *,
        name: str = "scripted",
        price: tuple[Any, Any] | None = None,
        max_output_tokens: int | None = None,
        context_window: int | None = None,
        delay: float = 0.0,
        first_chunk_delay: float = 0.0,
        usage: UsageReport = None,
        count_tokens: Callable[[ModelRequest], Any] | None = None,
        record: bool = True,
    ) -> None:
        self.name = name
        self.price = price
        self.max_output_tokens = max_output_tokens
        self.context_window = context_window
        if count_tokens is not None:
            self.count_tokens = count_tokens
        self.requests: list[RecordedRequest] = []
        self.calls = 0
        self.open_streams = 0
        self.closed_early = 0
        self._script: list[Step] = [as_turn(turn) if isinstance(turn, str) else turn for turn in turns]
        self._then: Step | None = None
        self._asked = 0
        self._measure = RequestMeasure()
        self._call_numbers = count(1)
        self._delay = delay
        self._first_chunk_delay = first_chunk_delay
        self._usage = usage
        self._record = record
        self._problems: list[str] = []

    def explain_no_hosted(self, _tool: HostedTool, _others: Sequence[object], /) -> None:
        """A script offers every tool of a provider: its turns say what they have found."""

    def forever(self, turn: Step) -> Self:
        """Answer every request after the script with this turn; returns the model."""
        self._then = turn
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request with the next turn. The turn is taken when the first delta is asked for."""
        self.calls += 1
        if self._record:
            self.requests.append(_snapshot(request))
        step = self._next_step(request)
        self.open_streams += 1
        complete = False
        try:
            turn = await self._resolve(step, request)
            await asyncio.sleep(0)  # as a real stream does: gives others a chance to cancel
            delay = self._delay if turn.delay is None else turn.delay
            wait = delay + (self._first_chunk_delay if turn.first_chunk_delay is None else turn.first_chunk_delay)
            said = 0
            for delta in self._deltas(turn):
                await _pause(wait)
                wait = delay
                said += _length(delta)
                complete = isinstance(delta, StreamEnd)
                yield delta
            if not said:
                await _pause(wait)
            if turn.hangs:
                await asyncio.get_running_loop().create_future()
            complete = True
            if turn.error is not None:
                raise _make_fresh_error(turn.error)
            if turn.stop_reason is not None:
                yield StreamEnd(stop_reason=turn.stop_reason, usage=self._report_usage(turn, request, said))
        except Exception:
            complete = True
            raise
        finally:
            self.open_streams -= 1
            self.closed_early += not complete

    def check(self) -> None:
        """Raise `ScriptError` for every unexpected request and every unused turn."""
        if problems := self._report():
            raise ScriptError(problems)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.check()
        elif problems := self._report():
            error.add_note(problems)

    def _report(self) -> str:
        problems = list(self._problems)
        left = self._script[self._asked :]
        if left:
            problems.append(f"{len(left)} of {pluralize(len(self._script), 'turn')} never asked for:")
            problems.extend(f"  {_describe(step)}" for step in left)
        return "\n".join([f"ScriptedModel {self.name!r}:", *problems]) if problems else ""

    def _next_step(self, request: ModelRequest) -> Step:
        if self._asked < len(self._script):
            self._asked += 1
            return self._script[self._asked - 1]
        if self._then is not None:
            return self._then
        last = request.messages[-1] if request.messages else None
        about = f"{last.role}: {last.text[:120]!r}" if last is not None else "no message"
        turns = pluralize(len(self._script), "turn")
        problem = f"unexpected request {self.calls}, the script has {turns}; last message: {about}"
        self._problems.append(problem)
        raise ScriptError(problem)

    async def _resolve(self, step: Step, request: ModelRequest) -> Turn:
        if isinstance(step, Turn | str):
            return as_turn(step)
        try:
            answer = step(request)
            return as_turn(await answer if inspect.isawaitable(answer) else answer)
        except ModelError:
            raise
        except Exception as error:  # it must fail the test, whatever the runtime does with it
            problem = f"request {self.calls}: {_describe(step)} raised {error!r}"
            self._problems.append(problem)
            if isinstance(error, AssertionError):  # an assertion about the request: a retry would not change it
                raise ScriptError(problem) from error
            raise

    def _deltas(self, turn: Turn) -> Iterator[Delta]:
        if turn.verbatim is not None:
            yield from turn.verbatim
        index = 0
        for part in turn.parts:
            if isinstance(part, Call):
                yield from part.deltas(index, part.id or f"call_{next(self._call_numbers)}")
                index += 1
            elif isinstance(part, ReasoningDelta):
                yield part
            else:
                kind = type(part)
                yield from (kind(piece) for piece in pieces(part.text))

    def _report_usage(self, turn: Turn, request: ModelRequest, said: int) -> Usage | None:
        report = self._usage if turn.usage is None else turn.usage
        if report == "missing":
            return None
        if isinstance(report, Usage):
            return report
        return Usage(input=_tokens(self._measure.count_characters(request)), output=_tokens(said) if said else 0)


def _snapshot(request: ModelRequest) -> RecordedRequest:
    seen = {name: getattr(request, name) for name in RecordedRequest.__struct_fields__}
    seen["messages"] = tuple(request.messages)
    for offered in ("tools", "defined_tools"):
        seen[offered] = tuple(tool.name for tool in seen[offered])
    seen["hosted_tools"] = tuple(tool.NAME for tool in request.hosted_tools)
    return RecordedRequest(**seen)


async def _pause(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


def _make_fresh_error(error: BaseException | type[BaseException]) -> BaseException:
    # The same object may be raised many times: without this its traceback would grow each time.
    return error.with_traceback(None) if isinstance(error, BaseException) else error()


def _describe(step: Step) -> str:
    if isinstance(step, Turn | str):
        return as_turn(step).describe()
    return f"function {getattr(step, '__name__', type(step).__name__)}"


def _tokens(chars: int) -> int:
    return max(1, chars // _CHARS_PER_TOKEN)


def _length(delta: Delta) -> int:
    parts: tuple[object, ...] = ()
    if isinstance(delta, TextDelta | ThinkingDelta | ReasoningDelta):
        parts = (delta.text,)
    elif isinstance(delta, ToolCallDelta):
        parts = (delta.name, delta.arguments)
    return sum([len(part) for part in parts if isinstance(part, str)])  # a raw delta may hold anything
