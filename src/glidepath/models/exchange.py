"""One streamed answer over HTTP: opened by the SDK, read here, closed however it ends.

The SDKs parse every event into typed objects, which loses fields that must be sent back unchanged and costs more
than everything the runtime does with a delta. So they open the stream, with their own keys, addresses and headers, and
the events are read here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from glidepath import _wire
from glidepath.models.aws_events import KIND as AWS_KIND, AwsEvents
from glidepath.models.content import VendorReply
from glidepath.models.faults import Faults
from glidepath.models.sse import Events
from glidepath.values import Delta, ModelError, RejectedError, TransientError

_MOST_PAGE = 1 << 20
_REQUEST_IDS = ("request-id", "x-request-id", "x-amzn-requestid", "apim-request-id")
_SSE_FIELDS = (b"data", b"event", b":", b"id", b"retry")


class Reader(VendorReply):
    """Turns the events of one reply into deltas."""

    def read(self, name: str, data: str) -> Iterable[Delta]:
        """The deltas of one event."""
        raise NotImplementedError

    def finish(self) -> Iterable[Delta]:
        """What remains when the stream has ended: nothing, where a reply without its last event is incomplete."""
        return ()


async def answer(open_stream: Callable[[], Any], reader: Reader) -> AsyncGenerator[Delta, None]:
    """The deltas of one reply; raises only `ModelError` kinds."""
    async with aclosing(_events(open_stream, reader)) as events:
        async for name, data in events:
            for delta in _read_guarded(reader.read, reader.faults, name, data):
                yield delta
    for delta in _read_guarded(reader.finish, reader.faults):
        yield delta


def _read_guarded(read: Callable[..., Iterable[Delta]], faults: Faults, *given: str) -> list[Delta]:
    """The reader's deltas; an event that it cannot read counts as a broken connection and is retried."""
    try:
        return list(read(*given))
    except ModelError:
        raise
    except (_wire.WireError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {faults.clean(error, 200)}"
    raise TransientError(f"the provider sent a malformed event ({what})")


async def _events(open_stream: Callable[[], Any], reply: VendorReply) -> AsyncGenerator[tuple[str, str], None]:
    """The events of one response. The error is raised outside its handler: an SDK's error holds the key."""
    failure: ModelError | None = None
    response = chunks = None
    events: Events | AwsEvents = Events()
    try:
        response = await (await open_stream()).__aenter__()
        chunks = response.iter_bytes()
        for header in _REQUEST_IDS:
            reply.add_reply_info(request_id=reply.info.get("request_id") or response.headers.get(header))
        begun = False
        if str(response.headers.get("content-type", "")).startswith(AWS_KIND):
            events, begun = AwsEvents(), True
        async for chunk in chunks:
            if not begun:
                await _check_kind(chunk, chunks, response.headers, reply.faults)
                begun = bool(chunk.strip())
            for event in events.feed(chunk):
                yield event
        for event in events.finish():
            yield event
    except Exception as error:
        failure = reply.faults.explain(error) if response is not None else reply.faults.make_unsent_error(error)
    finally:
        if response is not None:
            await run_out(response.close, chunks)
    if failure is not None:
        raise failure


async def _check_kind(chunk: bytes, rest: AsyncIterator[bytes], headers: Mapping[str, str], faults: Faults) -> None:
    """Reject anything that is not an event stream, such as a login page. The content type may be wrong."""
    head = chunk.lstrip()
    if not head or head.startswith(_SSE_FIELDS):
        return
    kind = str(headers.get("content-type", "nothing"))
    if kind.startswith("text/event-stream"):
        return  # garbage between events is skipped, as the format says
    if kind.startswith("application/json"):
        async for more in rest:
            chunk += more
            if len(chunk) > _MOST_PAGE:
                break
        try:
            body = _wire.loads(chunk)
        except (_wire.WireError, ValueError):
            body = None
            if len(chunk) <= _MOST_PAGE:  # complete, and still not JSON: the connection broke, so try again
                raise TransientError("the server answered with JSON that cannot be read") from None
        if isinstance(body, dict) and body.get("error"):
            raise faults.refusal(None, body)
    begins = faults.clean(head[:200].decode("utf-8", "replace"), 80)
    raise RejectedError(
        f"the server answered with {faults.clean(kind, 80)} instead of an event stream: "
        f"is the address (base_url) right, and does the server stream? It begins: {begins}"
    )


async def run_out(close: Callable[[], Any], chunks: AsyncIterator[object] | None) -> None:
    """Close a response, then let its reader finish.

    The event loop would close a reader that is only dropped later, in a task that outlives the run.
    """
    with suppress(Exception):  # it is going away: its errors no longer matter
        await close()
    if chunks is None:
        return
    with suppress(Exception):  # reading from a closed response fails, which is what ends the reader
        async for _ in chunks:
            pass
