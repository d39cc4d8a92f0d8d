"""The contract of a `Model`, clause by clause."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from glidepath._wire import replace
from glidepath.spi import Model, ModelRequest, ToolSpec
from glidepath.testing.conformance.contract import Contract, missing
from glidepath.testing.conformance.transcripts import make_transcript_of_every_kind
from glidepath.values import (
    Delta,
    ModelError,
    ReasoningDelta,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

DELTAS = (TextDelta, ThinkingDelta, ReasoningDelta, ToolCallDelta, StreamEnd)
LOOKUP = ToolSpec(
    "lookup",
    "Look something up.",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
PATIENCE = 2.0


class ModelContract(Contract):
    """Subclass this and provide `playing(scene)`: an async context manager with a model for one of four scenes.

    - `text`: it answers every request with the same text of several words, and is done. - `tool`: it answers with one
    call of the tool `lookup`, such as `{"query": "figures"}`. - `failure`: the provider cannot be reached, or answers
    with an error. - `silence`: it says a little, and then nothing.

    For a model that talks to a provider, play them with your own server, or a transport that answers from memory.
    """

    def playing(self, scene: str) -> AbstractAsyncContextManager[Model]:
        """A model that plays this scene for every request."""
        raise NotImplementedError(missing(self, "playing"))

    def open_requests(self, model: Model) -> int:  # noqa: ARG002 - for those who can tell
        """How many requests are still open at the provider; override it if you can tell."""
        return 0

    async def test_model_1_it_has_a_name(self) -> None:
        """MODEL-1: `name` is a non-empty text and does not change."""
        async with self.playing("text") as model:
            before = model.name
            assert isinstance(before, str)
            assert before.strip()
            await _collect_deltas(model)
            assert model.name == before

    async def test_model_2_a_stream_ends_with_its_one_end(self) -> None:
        """MODEL-2: a stream is deltas and, last, exactly one `StreamEnd`."""
        for scene in ("text", "tool"):
            async with self.playing(scene) as model:
                deltas = await _collect_deltas(model)
                strange = [delta for delta in deltas if not isinstance(delta, DELTAS)]
                assert not strange, f"no deltas: {strange!r:.200}"
                ends = [number for number, delta in enumerate(deltas) if isinstance(delta, StreamEnd)]
                assert ends == [len(deltas) - 1], f"{scene}: ends at {ends} of {len(deltas)} deltas"

    async def test_model_3_a_text_is_said(self) -> None:
        """MODEL-3: a text arrives as `TextDelta`, whole, with the stop reason end_turn."""
        async with self.playing("text") as model:
            deltas = await _collect_deltas(model)
            assert len(_text(deltas).split()) > 1, f"it said {_text(deltas)!r}"
            assert not [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
            assert _reasons(deltas) == ["end_turn"]

    async def test_model_4_a_call_joins_from_its_fragments(self) -> None:
        """MODEL-4: the fragments of a call join by index: an id, an offered tool, a JSON object; then tool_use."""
        async with self.playing("tool") as model:
            deltas = await _collect_deltas(model)
            calls: dict[int, list[str]] = {}
            for delta in deltas:
                if isinstance(delta, ToolCallDelta):
                    parts = calls.setdefault(delta.index, ["", "", ""])
                    parts[0] = parts[0] or delta.id
                    parts[1] = parts[1] or delta.name
                    parts[2] += delta.arguments
            ((call_id, name, arguments),) = calls.values()
            assert call_id
            assert name == "lookup"
            assert isinstance(json.loads(arguments), dict), f"arguments {arguments!r}"
            assert _reasons(deltas) == ["tool_use"]

    async def test_model_5_usage_is_none_or_can_be_true(self) -> None:
        """MODEL-5: usage is None, or plausible whole numbers: cached within input, reasoning within output."""
        for scene in ("text", "tool"):
            async with self.playing(scene) as model:
                for end in (delta for delta in await _collect_deltas(model) if isinstance(delta, StreamEnd)):
                    used = end.usage
                    if used is None:
                        continue
                    assert isinstance(used, Usage)
                    figures = (used.input, used.output, used.cache_read, used.cache_write, used.reasoning)
                    assert all(type(figure) is int and figure >= 0 for figure in figures), used
                    assert used.cache_read + used.cache_write <= used.input, used
                    assert used.reasoning <= used.output, used

    async def test_model_6_it_fails_with_a_model_error(self) -> None:
        """MODEL-6: when the provider fails it raises a `ModelError`, nothing else, and sends no `StreamEnd`."""
        async with self.playing("failure") as model:
            deltas: list[Any] = []
            with pytest.raises(ModelError):
                await _collect_deltas(model, into=deltas)
            assert not [delta for delta in deltas if isinstance(delta, StreamEnd)]

    async def test_model_7_calls_do_not_see_each_other(self) -> None:
        """MODEL-7: a call leaves nothing behind: the next request gets a whole answer, even after one was dropped."""
        async with self.playing("text") as model:
            first = _text(await _collect_deltas(model))
            stream = model.stream(_request())
            await asyncio.wait_for(anext(stream), PATIENCE)
            await _close(stream)
            assert _text(await _collect_deltas(model)) == first
            assert _text(await _collect_deltas(model)) == first

    async def test_model_8_many_calls_at_once(self) -> None:
        """MODEL-8: eight calls at once are each answered whole."""
        async with self.playing("text") as model:
            alone = _text(await _collect_deltas(model))
            found = await asyncio.gather(*[_collect_deltas(model) for _ in range(8)])
            assert [_text(deltas) for deltas in found] == [alone] * 8

    async def test_model_9_closing_stops_the_request(self) -> None:
        """MODEL-9: closing the iterator stops the request: at once, even in the middle of a silence."""
        for scene in ("text", "silence"):
            async with self.playing(scene) as model:
                stream = model.stream(_request())
                await asyncio.wait_for(anext(stream), PATIENCE)
                await asyncio.wait_for(_close(stream), PATIENCE)
                await _wait_a_moment(lambda: not self.open_requests(model))
                assert not self.open_requests(model), f"{scene}: the provider still works on it"

    async def test_model_10_a_cancelled_call_stops(self) -> None:
        """MODEL-10: waiting for it can be cancelled: the cancellation comes through at once, and unchanged."""
        async with self.playing("silence") as model:
            task = asyncio.ensure_future(_collect_deltas(model, patience=None))
            await asyncio.sleep(0.3)
            assert not task.done(), "the scene `silence` must not end"
            task.cancel()
            await asyncio.wait({task}, timeout=PATIENCE)
            assert task.done(), "it does not stop"
            assert task.cancelled(), "it must not turn a cancellation into something else"

    async def test_model_11_the_request_stays_as_it_is(self) -> None:
        """MODEL-11: the request and its messages are read, never changed: they are the live transcript."""
        async with self.playing("text") as model:
            messages = make_transcript_of_every_kind()
            before = list(messages)
            request = _request(messages)
            await _collect_deltas(model, request)
            assert messages == before
            assert all(now is then for now, then in zip(messages, before, strict=True))

    async def test_model_12_every_kind_of_message_is_taken(self) -> None:
        """MODEL-12: it accepts every kind of message: pictures, calls and results, internal ones, and custom ones."""
        async with self.playing("text") as model:
            assert _text(await _collect_deltas(model, _request(make_transcript_of_every_kind())))

    async def test_model_13_what_it_says_about_itself_can_be_used(self) -> None:
        """MODEL-13: `price`, `max_output_tokens`, `context_window` and `count_tokens` are absent, None, or usable."""
        async with self.playing("text") as model:
            for name in ("max_output_tokens", "context_window"):
                figure = getattr(model, name, None)
                assert figure is None or (type(figure) is int and figure > 0), f"{name} is {figure!r}"
            price = getattr(model, "price", None)
            if price is not None:
                assert len([Decimal(str(part)) for part in price]) == 2
                assert all(Decimal(str(part)) >= 0 for part in price), price
            count = getattr(model, "count_tokens", None)
            if count is not None:
                counted = count(_request())
                counted = await counted if asyncio.iscoroutine(counted) else counted
                assert type(counted) is int
                assert counted > 0

    async def test_model_14_tools_may_be_defined_and_not_callable(self) -> None:
        """MODEL-14: it answers when tools are defined but none may be called (`tools` is empty), as in a landing."""
        async with self.playing("text") as model:
            request = replace(_request(), tools=(), defined_tools=(LOOKUP,))
            assert _text(await _collect_deltas(model, request))


def _request(messages: Sequence[Any] | None = None) -> ModelRequest:
    return ModelRequest(
        system_prompt="Answer briefly.",
        messages=messages if messages is not None else [UserMessage("Which figures?")],
        tools=(LOOKUP,),
        max_output_tokens=256,
    )


async def _collect_deltas(
    model: Model, request: ModelRequest | None = None, *, into: list[Any] | None = None, patience: float | None = 30.0
) -> list[Delta]:
    found: list[Any] = [] if into is None else into
    async with asyncio.timeout(patience):
        async for delta in model.stream(request or _request()):
            found.append(delta)  # noqa: PERF401 - what came before a failure counts
    return found


def _text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def _reasons(deltas: Sequence[Delta]) -> list[str]:
    return [delta.stop_reason for delta in deltas if isinstance(delta, StreamEnd)]


async def _close(stream: AsyncIterator[Delta]) -> None:
    await stream.aclose()  # type: ignore[attr-defined] # a clause: it has one


async def _wait_a_moment(settled: Callable[[], object]) -> None:
    """Give the other side a moment to notice."""
    for _ in range(100):
        if settled():
            return
        await asyncio.sleep(0.01)
