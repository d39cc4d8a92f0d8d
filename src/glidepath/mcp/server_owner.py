"""One task per server owns its client, from the connection to the end; calls reach it as messages with futures.

The SDK's client lives in anyio scopes, which must be left by the task that entered them. A run may move the coroutine
of a tool call to another task; so no such coroutine ever holds a scope: it waits for a plain future, and the work is
done by tasks that belong to the owner.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath.mcp.mcp_server import ServerLink
from glidepath.mcp.reconnect_backoff import ReconnectBackoff
from glidepath.mcp.thread_calls import run_in_thread
from glidepath.tools import SourceError
from glidepath.values import describe_error, install_line, message_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CreateMessageRequestParams, ElicitRequestParams, Tool as Definition

__all__ = ["Idle", "Interruptible", "Listing", "Request", "ServerAsked", "ServerLost", "ServerOwner", "ServerRefused"]

_log = logging.getLogger("glidepath")
T = TypeVar("T")
Request = asyncio.Task[tuple[T | None, BaseException | None]]
MOST_PAGES = 50
MOST_TOOLS = 2_000
RELIST_PAUSE = 1.0  # seconds between two looks at a list that keeps changing
FAREWELL = 0.1  # seconds that cancelled calls have to tell the server
SETTLED = 5.0  # seconds a connection must hold before a failure counts as a new one


class ServerLost(SourceError):  # noqa: N818 - what happened
    """The server went away during a call, whose outcome is unknown."""


class Listing:
    """What a server offers on one connection: tools, in its order, and which other features it has."""

    __slots__ = ("instructions", "prompts", "resources", "tools", "version")

    def __init__(self, tools: Sequence[Definition], client: Client) -> None:
        capabilities = client.server_capabilities
        self.tools = tuple(tools)
        self.resources = capabilities.resources is not None
        self.prompts = capabilities.prompts is not None
        self.version = client.protocol_version
        self.instructions = client.instructions or ""

    @property
    def modern(self) -> bool:
        """True for the protocol without handshake and session."""
        return self.version >= "2026"


class ServerAsked:
    """Answers what a server asks for during a call; both methods return an `ErrorData` to refuse."""

    async def sample(self, params: CreateMessageRequestParams) -> Any:  # noqa: ARG002 - part of the port
        """A `sampling/createMessage` request."""
        from mcp.types import ErrorData

        return ErrorData(code=-32603, message="sampling is not allowed")

    async def elicit(self, params: ElicitRequestParams) -> Any:  # noqa: ARG002 - part of the port
        """An `elicitation/create` request."""
        from mcp.types import ErrorData

        return ErrorData(code=-32603, message="elicitation is not allowed")

    def distrust(self, why: str) -> None:
        """The server says that its tools have changed, and what they are now cannot be read."""


class ServerOwner:
    """The connection to one server in one event loop: made on first use, made again after a failure, closed once."""

    def __init__(self, link: ServerLink, asked: ServerAsked, changed: Callable[[Listing], None]) -> None:
        self.link = link
        self.listing: Listing | None = None
        self.retreat = ReconnectBackoff()
        self._asked = asked
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._up: asyncio.Future[None] | None = None  # of callers waiting for the connection being made
        self._bell: asyncio.Future[None] = self._loop.create_future()
        self._lost: str | None = None
        self._stale = False
        self._closing = False
        self._flying: set[asyncio.Task[Any]] = set()
        self._transport: Any = None

    # --- for callers ------------------------------------------------------------------------------------------

    async def await_listing(self) -> Listing:
        """The server's listing, once there is a connection; raises `SourceError` when it fails."""
        while True:
            if self._closing:
                raise SourceError(f"MCP server {self.link.name!r} is being closed")
            wait = self.retreat.wait(self._loop.time())
            if wait > 0:
                if self.retreat.open:
                    raise SourceError(self._explain_unavailable(f"the next try is in {wait:.0f} s"))
                await asyncio.sleep(wait)
                continue
            if self._client is not None and self._lost is None and self.listing is not None:
                return self.listing
            if self._task is None:
                self._up = self._loop.create_future()
                # An empty context: the connection outlives the run that asked for it first, and must not belong to it.
                self._task = self._loop.create_task(
                    self._run_connection(), name=f"glidepath-mcp-{self.link.name}", context=contextvars.Context()
                )
            if self._up is not None and not self._up.done():
                await _make_following_future(self._up, self._loop)
            else:  # between two connections: the old one is being closed
                await _make_following_future(self._task, self._loop)

    async def request(self, send: Callable[[Client], Awaitable[T]], idle: Idle | None = None) -> T:
        """What `send` gets from the connected server, done by a task of the owner's.

        When the await is cancelled, so is the request, and the server is told. Raises `SourceError`, or `ServerLost`
        when the connection broke meanwhile.
        """
        return await self.finish(await self.begin(send), idle)

    async def begin(self, send: Callable[[Client], Awaitable[T]]) -> Request[T]:
        """Have a task of the owner's send this; raises `SourceError` when there is no connection: nothing is sent."""
        await self.await_listing()
        # Looked at again: it may have gone away while this call waited.
        client = self._client
        if client is None:
            raise SourceError(self._explain_unavailable("it went away"))
        task = self._loop.create_task(_send_contained(send, client), name=f"glidepath-mcp-call-{self.link.name}")
        self._flying.add(task)
        task.add_done_callback(self._flying.discard)
        return task

    async def finish(self, task: Request[T], idle: Idle | None = None, call: Interruptible | None = None) -> T:
        """Wait for the answer to a request, as `request` does; `call` may end the wait and leave the request alone."""
        done = _make_following_future(task, self._loop)
        if idle is not None:
            idle.start(done, self._loop)
        if call is not None:
            call.done = done
        try:
            await done
        except BaseException as error:
            # A call may end its own wait to ask a person while its request continues; any other end cancels it.
            if call is None or error is not call.interrupted_by:
                task.cancel()
            raise
        finally:
            if idle is not None:
                idle.stop()
        value, failed = task.result()
        if failed is None:
            self.retreat.record_success()
            return value  # type: ignore[return-value]
        raise self._as_error(failed)

    def _as_error(self, error: BaseException) -> BaseException:
        """What a request raised, as one of ours."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        name = self.link.name
        if isinstance(error, MCPError):
            return self._translate_error(error, closed=error.code == CONNECTION_CLOSED)
        if isinstance(error, asyncio.CancelledError):
            return ServerLost(self._explain_unavailable(self._lost or "the connection was closed"))
        if type(error).__name__ == "ValidationError":
            wrong = f"sent an answer that protocol {self._version()} does not allow: {_first_line(error)}"
            return SourceError(f"MCP server {name!r} {wrong}")
        return SourceError(f"MCP server {name!r}: {describe_error(error)}")

    def _translate_error(self, error: Any, *, closed: bool) -> SourceError:
        """What an error of the protocol means: the end of connection, session or HTTP, or a plain refusal."""
        name = self.link.name
        if closed:
            self.mark_lost(self._lost or "the connection was closed")
            return ServerLost(self._explain_unavailable(self._lost or "the connection was closed"))
        if error.message == "Session terminated":
            self.mark_lost("the server ended the session")
            return ServerLost(f"MCP server {name!r} ended the session; the next call starts a new one")
        if error.code == _http_failed_code():
            self.retreat.record_failure(error.message, self._loop.time())
            return SourceError(f"MCP server {name!r}: {error.message}")
        return ServerRefused(f"MCP server {name!r} answered with an error: {error.message}", error.code, error.data)

    def _version(self) -> str:
        return "?" if self.listing is None else self.listing.version

    def _explain_unavailable(self, now: str) -> str:
        why = self.retreat.why or self._lost or ""
        parts = [part for part in (why, now if now != why else "") if part]
        return f"MCP server {self.link.name!r} is not available ({self.link.where}): {'; '.join(parts)}"

    def mark_lost(self, why: str) -> None:
        """The connection broke."""
        if self._lost is None:
            self._lost = why
        self.wake_owner()

    def relist(self) -> None:
        """The server says that its tools have changed."""
        self._stale = True
        self.wake_owner()

    def wake_owner(self) -> None:
        """Something happened that the owner has to look at."""
        if not self._bell.done():
            self._bell.set_result(None)

    async def close(self) -> None:
        """End the connection and everything around it."""
        self._closing = True
        self.wake_owner()
        task = self._task
        if task is None:
            return
        if self._client is None:
            task.cancel()  # it is still trying to connect
        try:
            await _make_following_future(task, self._loop)
        except asyncio.CancelledError:
            task.cancel()
            raise

    # --- the owner --------------------------------------------------------------------------------------------

    async def _run_connection(self) -> None:
        """One connection, from its beginning to its end."""
        began = self._loop.time()
        self._lost, self._stale = None, False
        up = self._up
        try:
            client = await run_in_thread(self._make)
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.link.connect_timeout):
                    await stack.enter_async_context(client)
                self._client = client
                # The tools first: callers waiting for the connection want to call one of them.
                self.listing = await self._fetch_listing(client)
                self._changed(self.listing)
                if up is not None and not up.done():
                    up.set_result(None)
                await self._hold_connection(client)
                await self._cancel_calls()
        except Exception as error:  # also a group of them, from the SDK's task groups
            self._note_failure(error)
        finally:
            self._end(up, began)

    def _make(self) -> Client:
        """The client; importing the SDK takes a second, which is why this is done on a thread."""
        try:
            from glidepath.mcp.client_maker import make_client
        except ImportError as error:
            raise SourceError(
                f"MCP server {self.link.name!r} needs the extra mcp ({error}): {install_line('mcp')}"
            ) from None
        client, self._transport = make_client(self.link, self, self._asked)
        return client

    async def _hold_connection(self, client: Client) -> None:
        """Hold the connection until it breaks or is closed; look at the tools again when they have changed."""
        listening = self._listen(client)
        listed_at = self._loop.time() - RELIST_PAUSE
        try:
            while not self._closing and self._lost is None:
                if self._stale and self._loop.time() >= listed_at + RELIST_PAUSE:
                    self._stale, listed_at = False, self._loop.time()
                    await self._refresh_tools(client)
                    continue
                # Not awaited itself: cancelling such an await would cancel the bell with it.
                await asyncio.wait([self._bell])
                if self._bell.done():
                    self._bell = self._loop.create_future()
                    if self._stale:
                        await self._pause_after(listed_at)
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])

    async def _refresh_tools(self, client: Client) -> None:
        """The tools as they are now; when they cannot be read, none may be called."""
        try:
            self.listing = await self._fetch_listing(client)
            self._changed(self.listing)
        except Exception as error:
            self._asked.distrust(_explain_no_connection(error, self.link))

    async def _pause_after(self, listed_at: float) -> None:
        """A list that keeps changing is looked at once a second; the end of the connection is heard at once."""
        until = listed_at + RELIST_PAUSE
        while not self._closing and self._lost is None and (left := until - self._loop.time()) > 0:
            await asyncio.wait([self._bell], timeout=left)
            if self._bell.done():
                self._bell = self._loop.create_future()

    def _listen(self, client: Client) -> asyncio.Task[None] | None:
        """With the newer protocol, changes of the list have their own stream."""
        tools = client.server_capabilities.tools
        if self.listing is None or not self.listing.modern or tools is None or not tools.list_changed:
            return None
        return self._loop.create_task(self._listen_for_changes(client), name=f"glidepath-mcp-listen-{self.link.name}")

    async def _listen_for_changes(self, client: Client) -> None:
        with suppress(Exception):  # a server that cannot is asked again with the next connection
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.relist()

    async def _fetch_listing(self, client: Client) -> Listing:
        """All pages of the server's tools, within bounds."""
        if client.server_capabilities.tools is None and self.link.mode in ("auto", "legacy"):
            return Listing((), client)  # with a version given by hand, nobody has asked for its capabilities
        tools: list[Definition] = []
        cursor: str | None = None
        async with asyncio.timeout(self.link.connect_timeout):
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                tools += page.tools
                cursor = page.next_cursor
                if not cursor or len(tools) > MOST_TOOLS:
                    break
        if len(tools) > MOST_TOOLS or cursor:
            _log.warning("MCP server %r lists more than %d tools; the rest is left out", self.link.name, MOST_TOOLS)
        return Listing(tools[:MOST_TOOLS], client)

    async def _cancel_calls(self) -> None:
        """Cancel the running calls, and tell the server."""
        for task in self._flying:
            task.cancel()
        if self._flying:
            await asyncio.wait(self._flying, timeout=FAREWELL)

    def _note_failure(self, error: BaseException) -> None:
        if self._lost is None:
            self._lost = _explain_no_connection(error, self.link)

    def _end(self, up: asyncio.Future[None] | None, began: float) -> None:
        """The connection is gone: waiters are told, and the next use makes another."""
        self._client, self._task, self._up = None, None, None
        self._bell = self._loop.create_future()
        if self._closing:
            why: str | None = None
        else:
            why = self._lost or "the connection ended"
            noise = getattr(getattr(self._transport, "noise", None), "describe", str)()
            if noise and self.listing is None:
                why = f"{why}; {noise}"
            held = self._loop.time() - began > SETTLED and up is not None and up.done()
            self.retreat.record_failure(why, self._loop.time(), fresh=held)
            waited = up is not None and not up.done()  # the caller that waits for it reports it
            _log.log(
                logging.INFO if waited else logging.WARNING,
                "MCP server %r (%s): %s",
                self.link.name,
                self.link.where,
                why,
            )
        if up is not None and not up.done():
            if why is None:
                up.set_exception(SourceError(f"MCP server {self.link.name!r} is being closed"))
            else:
                up.set_exception(SourceError(f"MCP server {self.link.name!r} ({self.link.where}): {why}"))
            up.exception()  # nobody may be waiting any more


class Interruptible:
    """A wait for an answer that other code may end by raising in it; the request continues."""

    done: asyncio.Future[None] | None = None
    interrupted_by: BaseException | None = None

    def interrupt(self, error: BaseException) -> None:
        """End the wait."""
        if self.done is not None and not self.done.done():
            self.interrupted_by = error
            self.done.set_exception(error)


class ServerRefused(SourceError):  # noqa: N818 - what happened
    """The server answered a request with a protocol error."""

    def __init__(self, message: str, code: int, data: object) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Idle:
    """How long a call may be silent. Progress begins the time again."""

    def __init__(self, seconds: float | None, name: str) -> None:
        self._seconds = seconds
        self._name = name
        self._until = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] | None = None

    def start(self, done: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> None:
        """The call begins."""
        if self._seconds is not None:
            self._done = done
            self._loop = loop
            self.renew()
            self._handle = loop.call_at(self._until, self._check_idle)

    def renew(self) -> None:
        """The server showed progress."""
        if self._seconds is not None and self._done is not None:
            self._until = self._loop.time() + self._seconds

    def stop(self) -> None:
        """The call has ended."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _check_idle(self) -> None:
        if self._done is None or self._done.done():
            return
        if self._loop.time() < self._until:
            self._handle = self._loop.call_at(self._until, self._check_idle)
            return
        self._done.set_exception(
            SourceError(
                f"MCP server {self._name!r} has not answered and reported no progress for {self._seconds:g} s; the "
                "call was cancelled (idle_timeout)"
            )
        )


async def _send_contained(
    send: Callable[[Client], Awaitable[T]], client: Client
) -> tuple[T | None, BaseException | None]:
    """The answer, or what was raised: nothing a task of the owner raises is lost or printed."""
    try:
        return await send(client), None
    except asyncio.CancelledError as error:
        return None, error
    except Exception as error:
        return None, error


def _make_following_future(what: asyncio.Future[Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """Its own future that ends with another one; cancelling it leaves the other alone."""
    done: asyncio.Future[None] = loop.create_future()

    def end(ended: asyncio.Future[Any]) -> None:
        if done.done():
            return
        if not ended.cancelled() and (error := ended.exception()) is not None:
            done.set_exception(error)
            done.exception()  # a waiter that was cancelled meanwhile does not look
        else:
            done.set_result(None)

    if what.done():
        end(what)
    else:
        what.add_done_callback(end)
    return done


def _http_failed_code() -> int:
    from glidepath.mcp.http_transport import HTTP_FAILED

    return HTTP_FAILED


def _explain_no_connection(error: BaseException, link: ServerLink) -> str:
    """Why there is no connection, in words that name the fix where we know one."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, SourceError):
        return message_of(error).removeprefix(f"MCP server {link.name!r}: ")
    if isinstance(error, TimeoutError):
        hint = "; if it speaks only the older protocol, try mode='legacy'" if link.mode == "auto" else ""
        return f"it did not answer within {link.connect_timeout:g} s (connect_timeout){hint}"
    if type(error).__name__ == "MCPError" and message_of(error) == "Connection closed":
        return "it ended before it had answered; run the command in a shell to see what it needs"
    if isinstance(error, OSError):
        return message_of(error)
    if type(error).__name__ == "ValidationError":
        return f"it sent an answer that the protocol does not allow: {_first_line(error)}"
    return describe_error(error)


def _first_line(error: BaseException) -> str:
    """The first thing pydantic complains about, and where."""
    try:
        first = error.errors(include_url=False)[0]  # type: ignore[attr-defined]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]
    except Exception:
        return " ".join(message_of(error).split("\n")[:3])[:300]
