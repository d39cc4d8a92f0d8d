"""Every path with the right it takes: a route without a row here cannot be served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from glidepath.apps.server.locks import RIGHTS, Visitor

__all__ = ["DOORS", "OPEN_TO_ALL", "lock_routes", "visitor_of"]

OPEN_TO_ALL: tuple[str, ...] = ()
"""What a path takes that shows nothing of anybody: no right at all."""
_RUN = "/api/runs/{id:path}"
DOORS: dict[tuple[str, str], tuple[str, ...]] = {
    # the API and its streams, which are all that the flight deck uses
    ("GET", "/api/info"): ("look",),
    ("GET", "/api/runs"): ("look",),
    ("POST", "/api/runs"): ("start",),
    ("GET", _RUN): ("look",),
    ("GET", f"{_RUN}/messages"): ("look",),
    ("GET", f"{_RUN}/journal"): ("look",),
    ("GET", f"{_RUN}/at"): ("look",),
    ("GET", f"{_RUN}/timeline"): ("look",),
    ("GET", f"{_RUN}/burn"): ("look",),
    ("GET", f"{_RUN}/request"): ("look",),
    ("GET", f"{_RUN}/events"): ("look",),
    ("GET", "/api/feed"): ("look",),
    ("GET", "/api/approvals"): ("look",),
    ("GET", "/api/evals"): ("look",),
    ("GET", "/api/evals/{id:path}"): ("look",),
    ("POST", f"{_RUN}/land"): ("stop",),
    ("POST", f"{_RUN}/stop"): ("stop",),
    ("POST", f"{_RUN}/decide"): ("decide",),
    ("POST", f"{_RUN}/steer"): ("steer",),
    ("POST", f"{_RUN}/resume"): ("steer",),
    ("POST", f"{_RUN}/fork"): ("steer",),
    ("POST", f"{_RUN}/limits"): ("steer",),
    ("POST", f"{_RUN}/settle"): ("steer",),
    ("POST", "/api/batch/land"): ("stop",),
    ("POST", "/api/batch/stop"): ("stop",),
    ("POST", "/api/batch/resume"): ("steer",),
    ("GET", "/api/budgets"): ("watch",),
    ("GET", "/api/fleet"): ("watch",),
    ("GET", "/api/webhooks"): ("watch",),
    ("GET", "/metrics"): ("watch",),
    ("POST", "/api/kill"): ("kill",),
    ("GET", "/openapi.json"): ("look",),
    # OpenAI clients
    ("GET", "/v1/models"): ("look",),
    ("GET", "/v1/models/{id:path}"): ("look",),
    ("POST", "/v1/conversations"): ("start",),
    ("POST", "/v1/responses"): ("start",),
    ("GET", "/v1/responses/{id}"): ("look",),
    ("POST", "/v1/responses/{id}/cancel"): ("stop",),
    ("POST", "/v1/chat/completions"): ("start",),
    # AG-UI front ends: a run is started, or the calls that it waits for are decided
    ("POST", "/agui"): ("start", "decide"),
    ("POST", "/agui/{agent}"): ("start", "decide"),
    # MCP clients
    ("GET", "/mcp"): ("start",),
    ("POST", "/mcp"): ("start",),
    ("DELETE", "/mcp"): ("start",),
    # no secret is needed, or the request brings a one-time code
    ("GET", "/healthz"): OPEN_TO_ALL,
    ("GET", "/readyz"): OPEN_TO_ALL,
    ("POST", "/api/unlock"): OPEN_TO_ALL,
    ("GET", "/"): OPEN_TO_ALL,
    ("GET", "/{path:path}"): OPEN_TO_ALL,
}
"""Which of these rights a caller needs for a path: one of them is enough to enter."""


def visitor_of(request: Request) -> Visitor:
    """Who asks; somebody without any right where nobody was admitted."""
    found: Any = getattr(request.state, "visitor", None)
    return found if isinstance(found, Visitor) else Visitor("nobody", "nobody")


def lock_routes(routes: Sequence[Route]) -> list[Route]:
    """The same routes, each behind its row of the table; raises KeyError for one that has none."""
    return [_lock_route(route) for route in routes]


def _lock_route(route: Route) -> Route:
    methods = sorted((route.methods or set()) - {"HEAD"})
    needed = {DOORS[method, route.path] for method in methods}
    if needed == {OPEN_TO_ALL}:
        return route
    if len(needed) != 1:
        raise KeyError(f"{route.path}: one route takes one right for all its methods; split it")
    return Route(route.path, _check_rights(route.endpoint, needed.pop()), methods=methods)


def _check_rights(handler: Callable[[Request], Awaitable[Any]], rights: tuple[str, ...]) -> Callable[[Request], Any]:
    roles = frozenset(role for right in rights for role in RIGHTS[right].roles)

    async def check_then_handle(request: Request) -> Any:
        visitor = visitor_of(request)
        if visitor.tenant is not None or visitor.role not in roles:  # the quick answer; the table gives the full one
            visitor.must(*rights)
        return await handler(request)

    return check_then_handle
