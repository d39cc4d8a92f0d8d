"""The door for MCP clients: each agent is one tool, and its runs are the server's own.

They are in the store and in the deck, count against `max_runs`, obey the kill switch, and are started in the name of
the caller's key. An agent without limits is not offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from glidepath.agent import Limits
from glidepath.events import RunEnded
from glidepath.outcome import RunResult
from glidepath.serve.doors import visitor_of
from glidepath.serve.hub import Hub
from glidepath.serve.refusals import Refused

__all__ = ["McpDoor"]


class McpDoor:
    """Streamable HTTP at `/mcp`. An MCP session can be used only with the secret that opened it."""

    def __init__(self, hub: Hub, name: str = "glidepath") -> None:
        self.hub = hub
        self._name = name
        self._manager: Any = None

    def routes(self) -> list[Route]:
        """The one path."""
        return [Route("/mcp", self.handle, methods=["GET", "POST", "DELETE"])]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Take calls; without the SDK they are refused."""
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        except ImportError:
            yield
            return
        from glidepath.mcp.serve_agents import agent_server

        offered = {name: agent for name, agent in self.hub.agents.items() if agent.config.limits.bounded}
        server = agent_server(offered, name=self._name, fly=self._fly)
        server.streamable_http_app()  # makes the manager; the paths of the application are ours
        manager: StreamableHTTPSessionManager = server.session_manager
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def handle(self, request: Request) -> Any:
        """Hand a request to the SDK, with the name of its caller: sessions are bound to it."""
        if self._manager is None:
            if find_spec("mcp") is None:
                raise Refused(501, "not_installed", "the server lacks mcp, a part of the extra mcp")
            raise Refused(409, "not_started", "this door opens with the application: run it with its lifespan")
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        who = visitor_of(request)
        request.scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=f"{who.role}:{who.name}", scopes=[]))
        return self._manager.handle_request

    async def _fly(self, label: str, task: str, limits: Limits, ctx: Any) -> RunResult[Any]:
        """Run an agent as any door does, and tell the caller how far it is."""
        from glidepath.mcp.serve_agents import CallProgress

        now = self.hub.agent(label).config.limits
        lower = {
            name: getattr(limits, name)
            for name in Limits.__struct_fields__
            if getattr(limits, name) != getattr(now, name)
        }
        request: Any = ctx.request_context.request
        feed = await self.hub.start(label, task, who=visitor_of(request), limits=lower or None)
        watch, result = CallProgress(limits), None
        feed.readers += 1
        try:
            async for event in feed.follow():
                said = watch.hear(event)
                if said is not None:
                    await ctx.report_progress(watch.turn, limits.max_iterations, said)
                if isinstance(event, RunEnded):
                    result = event.result
        except asyncio.CancelledError:
            flight = self.hub.flights.get(feed.run_id)
            if flight is not None:
                flight.token.cancel("the caller cancelled the call")
            raise
        finally:
            feed.readers -= 1
            self.hub.reader_left(feed)
        if result is None:
            raise Refused(503, "lost", "the run was lost before it ended; GET /api/runs/{id} shows it")
        return result
