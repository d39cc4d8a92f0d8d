"""The door for MCP clients: each agent is one tool, and its runs are the server's own.

They are in the store and in the deck, count against `max_runs`, obey the kill switch, and are started in the name of
the caller's key. An agent without limits is not offered.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from glidepath.agent import Limits
from glidepath.apps.server.hub import Hub
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.route_rights import visitor_of
from glidepath.values import RunEnded, RunResult

__all__ = ["McpDoor"]


class McpDoor:
    """Streamable HTTP at `/mcp`. An MCP session can be used only with the secret that opened it."""

    def __init__(self, hub: Hub, name: str = "glidepath") -> None:
        self.hub = hub
        self._name = name
        self._serving: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Any]
        self._ending: asyncio.Event

    def routes(self) -> list[Route]:
        """The one path."""
        return [Route("/mcp", self.handle, methods=["GET", "POST", "DELETE"])]

    async def close(self) -> None:
        """End every session of the protocol."""
        task, self._serving = self._serving, None
        if task is not None:
            self._ending.set()
            await asyncio.wait([task])

    async def _serve_protocol(self, ready: asyncio.Future[Any]) -> None:
        """Serve the protocol until the end, in one task: what the SDK enters it leaves where it entered it."""
        try:
            from glidepath.mcp import agent_server

            offered = {name: agent for name, agent in self.hub.agents.items() if agent.config.limits.bounded}
            server = agent_server(offered, name=self._name, fly=self._run_agent, offers=self._is_offered)
            server.streamable_http_app()  # makes the manager; the paths of the application are ours
            async with server.session_manager.run():
                ready.set_result(server.session_manager)
                await self._ending.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def handle(self, request: Request) -> Any:
        """Hand a request to the SDK, with the name of its caller: sessions are bound to it."""
        if find_spec("mcp") is None:
            raise HttpError(501, "not_installed", "the server lacks mcp, a part of the extra mcp")
        if self._serving is None:  # by the first who comes: the SDK takes its time to load
            self._ending, self._ready = asyncio.Event(), asyncio.get_running_loop().create_future()
            self._serving = asyncio.get_running_loop().create_task(
                self._serve_protocol(self._ready), name="glidepath-mcp"
            )
        manager = await asyncio.shield(self._ready)
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        who = visitor_of(request)
        request.scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=f"{who.role}:{who.name}", scopes=[]))
        return manager.handle_request

    def _is_offered(self, label: str, request: object) -> bool:
        """True when the key of a caller has this agent."""
        return isinstance(request, Request) and self.hub.allowance.has_agent(visitor_of(request), label)

    async def _run_agent(self, label: str, task: str, limits: Limits, ctx: Any) -> RunResult[Any]:
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
                said = watch.describe_progress(event)
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
            self.hub.on_reader_left(feed)
        if result is None:
            raise HttpError(503, "lost", "the run was lost before it ended; GET /api/runs/{id} shows it")
        return result
