"""The routes: a request is parsed into a typed value, the hub or the reader answers, the answer is JSON."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glidepath import _wire
from glidepath._version import VERSION
from glidepath._wire import Settings, WireError, asdict
from glidepath.agent import Agent
from glidepath.apps.server.event_log import log_for
from glidepath.apps.server.event_streams import run_stream, stream_cards
from glidepath.apps.server.fleet_view import FleetView
from glidepath.apps.server.gate_door import GateDoor, MountedGate
from glidepath.apps.server.gatekeeper import BODY_SECONDS, MAX_BODY, OPEN, UNLOCK, Gatekeeper, is_private
from glidepath.apps.server.hub import Hub, refusal_of
from glidepath.apps.server.kill_actions import KillActions
from glidepath.apps.server.locks import (
    OPERATOR,
    RIGHTS,
    Doorkeeper,
    KeyRing,
    OneTimeCodes,
    Visitor,
    check_origins,
    check_tokens,
    keys_for,
    parse_hosts,
)
from glidepath.apps.server.locks.key_watch import KeyWatch
from glidepath.apps.server.openapi import openapi_page
from glidepath.apps.server.prometheus import render_page
from glidepath.apps.server.protocol_agui import AguiDoor
from glidepath.apps.server.protocol_mcp import McpDoor
from glidepath.apps.server.protocol_openai import OpenAIDoor
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.route_rights import lock_routes, visitor_of
from glidepath.apps.server.run_actions import RunActions, check_reason
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.shapes import (
    AgentInfo,
    DecideBody,
    ForkBody,
    KillBody,
    LimitsBody,
    ReasonBody,
    SettleBody,
    StartBody,
    SteerBody,
    UnlockBody,
)
from glidepath.apps.server.static_files import static_file
from glidepath.apps.server.store_reader import StoreReader
from glidepath.values import ConfigurationError, StoreError

__all__ = ["ServeOptions", "make_application"]

Handler: TypeAlias = Callable[[Request], Awaitable[Any]]
MAX_PROMPT = 500_000
MOST = 1_000_000_000
_DISCONNECTS = ("land", "continue")


class ServeOptions(Settings, frozen=True, kw_only=True):
    """How a server behaves.

    `max_runs` run at once, more are refused with 429. `on_disconnect` is what happens to a run without a store when
    its last reader has gone for `disconnect_grace` seconds: `land` or `continue`. `allowed_hosts` are host names beside
    localhost that requests may use, `allow_origins` the origins whose pages may call. `prefix` is the path under which
    a proxy shows the server. A body has at most `max_body` bytes, and `body_seconds` to arrive. `resume_lost` resumes,
    at the start, the runs that a dead server has left behind. Events of runs that wrote none for `keep_events` days are
    forgotten at the start; the journals stay. Without `metrics` runs are not measured for /metrics. `mcp_name` is what
    MCP clients call the server.
    """

    max_runs: int = 100
    on_disconnect: str = "land"
    disconnect_grace: float = 3.0
    allowed_hosts: Sequence[str] = ()
    allow_origins: Sequence[str] = ()
    prefix: str = ""
    max_body: int = MAX_BODY
    body_seconds: float = BODY_SECONDS
    resume_lost: bool = False
    keep_events: float = 30.0
    metrics: bool = True
    demo: bool = False
    mcp_name: str = "glidepath"

    def __post_init__(self) -> None:
        if self.on_disconnect not in _DISCONNECTS:
            raise ConfigurationError(f"on_disconnect must be 'land' or 'continue', not {self.on_disconnect!r:.80}")
        for name in ("max_runs", "max_body"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{name} must be a whole number from 1, not {value!r:.80}")
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ConfigurationError(
                f"prefix must begin with / and not end with it, such as /deck: {self.prefix!r:.80}"
            )

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for an unknown option."""
        return ConfigurationError(f"serve has no option {name!r}; there are {', '.join(cls.__struct_fields__)}")


def index_agents(agents: Any) -> dict[str, Agent[Any]]:
    """The agents by name; raises `ConfigurationError` for what is not an agent, or a name that is used twice."""
    if isinstance(agents, Agent):
        agents = [agents]
    if isinstance(agents, Mapping):
        pairs = list(agents.items())
    elif isinstance(agents, Sequence) and not isinstance(agents, str):
        pairs = [(getattr(getattr(one, "config", None), "agent_name", ""), one) for one in agents]
    else:
        raise ConfigurationError(f"agents must be agents, in a list or by name, not {agents!r:.80}")
    found: dict[str, Agent[Any]] = {}
    for name, agent in pairs:
        if not isinstance(agent, Agent):
            raise ConfigurationError(f"agents: expected an Agent, not {agent!r:.80}")
        if not isinstance(name, str) or not name or name in found:
            raise ConfigurationError(f"agents: the name {name!r:.80} is used twice, or empty; set agent_name")
        found[name] = agent
    return found


def make_application(
    agents: Any,
    *,
    store: Any = None,
    token: Any = None,
    keys: KeyRing | None = None,
    gate: MountedGate | Callable[[str], MountedGate] | None = None,
    **options: Any,
) -> Starlette:
    """The ASGI application; raises `ConfigurationError`. A `gate` is served below `/gate/`, its runs are shown.

    It may be a function of the server's token. Without agents of ours, calls reach it without `/gate`, too.
    """
    chosen = ServeOptions(**options)
    named = index_agents(agents)
    if store is None:
        store = next((one.config.store for one in named.values() if one.config.store is not None), None)
    tokens = check_tokens(token or secrets.token_urlsafe(32))
    ring = keys_for(store) if keys is None else keys
    hub = Hub(
        named,
        store,
        log_for(store),
        max_runs=chosen.max_runs,
        on_disconnect=chosen.on_disconnect,
        disconnect_grace=chosen.disconnect_grace,
        measured=chosen.metrics,
        keys=ring,
    )
    best = next((one for one, visitor in tokens.items() if visitor.role == "control"), next(iter(tokens)))
    codes = OneTimeCodes(best)
    server = DeckServer(hub, chosen, codes)
    middleware = [_make_locks(chosen, tokens, ring)]
    mounted = gate(best) if callable(gate) else gate
    if mounted is not None:
        door = Middleware(GateDoor, gate=mounted.application, prefix=chosen.prefix, is_only=not named)
        middleware, hub.foreign = [door, *middleware], mounted.join(hub)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await server.open()
        try:
            yield
        finally:
            if mounted is not None:
                await mounted.close()
            await server.mcp.close()
            await hub.close()
            await hub.switches.close()

    application = Starlette(
        routes=server.routes(), middleware=middleware, exception_handlers=_HANDLERS, lifespan=lifespan
    )
    application.state.token = best
    application.state.codes = codes
    application.state.hub = hub
    application.state.gate = mounted
    application.state.server = server
    return application


def _make_locks(options: ServeOptions, tokens: Mapping[str, Visitor], ring: KeyRing) -> Middleware:
    """Who is let in, and how much they may send."""
    admission = Doorkeeper(
        tokens=tokens,
        keys=ring,
        hosts=parse_hosts(options.allowed_hosts),
        origins=check_origins(options.allow_origins),
        is_private=is_private,
        open_paths=OPEN,
        unlock=frozenset({UNLOCK}),
    )
    return Middleware(
        Gatekeeper,
        admission=admission,
        max_body=options.max_body,
        body_seconds=options.body_seconds,
        prefix=options.prefix,
        watch=KeyWatch(ring),
    )


class DeckServer:
    """One handler for each path."""

    def __init__(self, hub: Hub, options: ServeOptions, codes: OneTimeCodes) -> None:
        self.hub = hub
        self.options = options
        self.reader = StoreReader(hub)
        self.view = FleetView(hub, self.reader)
        self.actions = RunActions(hub, self.reader)
        self.kills = KillActions(self.actions)
        self.mcp = McpDoor(hub, options.mcp_name)
        self._codes = codes

    async def open(self) -> None:
        """Get ready; resume lost runs if asked to."""
        await self.hub.open()
        self.hub.run_beside(self.hub.log.prune(self.options.keep_events * 86_400))
        if self.options.resume_lost and self.hub.store is not None:
            await self.resume_lost_runs()
        if self.options.demo:
            from glidepath.apps.server.demo import DemoFleet

            self.hub.run_beside(DemoFleet(self.hub).run_fleet())

    async def resume_lost_runs(self) -> list[str]:
        """Resume every run that lost its process, as far as there is room and its agent is here."""
        resumed = []
        cards, _ = await self.reader.cards(OPERATOR, state="lost", limit=500)
        for card in cards:
            if card.agent in self.hub.agents and self.hub.room > 0 and not card.foreign:
                try:
                    await self.hub.resume(card.agent, card.session_id, run_id=card.run_id)
                    resumed.append(card.run_id)
                except HttpError:
                    continue  # it is listed as lost; resuming it reports why that fails
        return resumed

    def routes(self) -> list[Route]:
        """Every path."""
        reads: dict[str, Handler] = {
            "/api/info": self.info,
            "/api/runs": self.runs,
            "/api/runs/{id:path}/messages": self.messages,
            "/api/runs/{id:path}/journal": self.journal,
            "/api/runs/{id:path}/at": self.at,
            "/api/approvals": self.approvals,
            "/api/budgets": self.budgets,
            "/api/fleet": self.fleet,
            "/openapi.json": self.openapi,
            "/healthz": self.health,
            "/readyz": self.ready,
        }
        acts: dict[str, tuple[Any, Any]] = {
            "land": (ReasonBody, self.actions.land),
            "stop": (ReasonBody, self.actions.stop),
            "steer": (SteerBody, self.actions.steer),
            "decide": (DecideBody, self.actions.decide),
            "resume": (ReasonBody, self.actions.resume),
            "fork": (ForkBody, self.actions.fork),
            "limits": (LimitsBody, self.actions.limits),
            "settle": (SettleBody, self.actions.settle),
        }
        routes = [
            Route("/api/runs", _handle_post(StartBody, self.start, 201), methods=["POST"]),
            Route("/api/kill", _handle_post(KillBody, self.kill), methods=["POST"]),
        ]
        routes += [
            Route(f"/api/runs/{{id:path}}/{verb}", _handle_post(kind, _on_run(act)), methods=["POST"])
            for verb, (kind, act) in acts.items()
        ]
        routes += [Route(path, _answer_as_json(handler), methods=["GET"]) for path, handler in reads.items()]
        routes += [
            Route("/api/runs/{id:path}/events", self.events, methods=["GET"]),
            Route("/api/runs/{id:path}", _answer_as_json(self.run), methods=["GET"]),  # last: a child's id has slashes
            Route("/api/feed", self.feed, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route(UNLOCK, _handle_post(UnlockBody, self.unlock), methods=["POST"]),
            *OpenAIDoor(self.hub, self.reader, self.actions).routes(),
            *AguiDoor(self.hub, self.reader, self.actions).routes(),
            *self.mcp.routes(),
            Route("/", static_file, methods=["GET"]),
        ]
        nothing = Route("/api/{path:path}", _raise_not_found, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
        return [*lock_routes(routes), nothing, *lock_routes([Route("/{path:path}", static_file, methods=["GET"])])]

    # --- reading ----------------------------------------------------------------------------------------------

    async def info(self, request: Request) -> dict[str, Any]:
        """What this server is."""
        who = visitor_of(request)
        agents = [(name, agent) for name, agent in self.hub.agents.items() if self.hub.allowance.has_agent(who, name)]
        return {
            "version": VERSION,
            "role": who.role,
            "name": who.name,
            "tenant": who.tenant,
            "rights": [right for right in RIGHTS if who.may(right)],
            "agents": [_agent_info(name, agent) for name, agent in agents],
            "store": store_kind(self.hub.store),
            "demo": self.options.demo,
            "now": time.time(),
            "max_runs": self.options.max_runs,
        }

    async def runs(self, request: Request) -> dict[str, Any]:
        """A page of cards."""
        query = request.query_params
        cards, cursor = await self.reader.cards(
            visitor_of(request),
            state=query.get("state") or None,
            tag=query.get("tag") or None,
            text=query.get("q", ""),
            agent=query.get("agent") or None,
            cursor=query.get("cursor") or None,
            limit=_number(request, "limit", 50, 1, 500),
        )
        return {"runs": cards, "cursor": cursor}

    async def run(self, request: Request) -> Any:
        """All about one run."""
        return await self.reader.detail(request.path_params["id"], visitor_of(request))

    async def messages(self, request: Request) -> dict[str, Any]:
        """A page of its transcript."""
        after, limit = _number(request, "after", 0, 0, MOST), _number(request, "limit", 200, 1, 1000)
        return await self.reader.messages(request.path_params["id"], visitor_of(request), after, limit)

    async def journal(self, request: Request) -> dict[str, Any]:
        """A page of its journal."""
        after, limit = _number(request, "after", 0, 0, MOST), _number(request, "limit", 200, 1, 1000)
        return await self.reader.records(request.path_params["id"], visitor_of(request), after, limit)

    async def at(self, request: Request) -> dict[str, Any]:
        """Its state after a turn."""
        turn = _number(request, "turn", 0, 0, MOST)
        return await self.reader.read_state_at(request.path_params["id"], visitor_of(request), turn)

    async def approvals(self, request: Request) -> dict[str, Any]:
        """Calls that are waiting for a person."""
        return {"approvals": await self.reader.approvals(visitor_of(request))}

    async def budgets(self, _: Request) -> dict[str, Any]:
        """Every tree of budgets."""
        return {"roots": await self.view.budgets()}

    async def fleet(self, _: Request) -> dict[str, Any]:
        """Workers, queues, breakers, rates, the kill switch."""
        return await self.view.fleet()

    async def events(self, request: Request) -> Any:
        """The events of a run: a stream, or a page."""
        return await _translate_errors(self._events, request)

    async def _events(self, request: Request) -> Any:
        who = visitor_of(request)
        feed = self.hub.feeds.get(request.path_params["id"])
        if feed is None or not feed.live or who.scope is not None:  # others are known without reading the store
            feed = (await self.reader.find(request.path_params["id"], who)).feed
        if feed is None:
            raise HttpError(404, "no_events", "this run has not started: it has no events yet")
        after = _number(request, "after", 0, 0, MOST)
        if not _wants_stream(request):
            before = _number(request, "before", -1, 0, MOST)
            limit = _number(request, "limit", 200, 1, 5000)
            kind = request.query_params.get("kind") or None
            return _json(await feed.page(after, None if before < 0 else before, limit, kind))
        last = request.headers.get("last-event-id")
        if last is not None:
            if not last.isascii() or not last.isdigit() or len(last) > 12:  # noqa: PLR2004 - more than there can be
                raise HttpError(400, "bad_event_id", f"Last-Event-ID must be the number of an event, not {last!r:.40}")
            after = int(last)
        if not feed.live and not feed.finished and not feed.readers:  # it may be running in another process
            self.hub.run_beside(self._follow_run(feed))
        return run_stream(self.hub, feed, min(after, feed.last), lambda: self.reader.detail(feed.run_id, who))

    async def _follow_run(self, feed: RunFeed) -> None:
        await asyncio.sleep(0)  # until its reader is there
        await self.reader.keep_telling(feed)

    async def feed(self, request: Request) -> Any:
        """The cards that change."""
        return stream_cards(self.hub, self.reader, visitor_of(request))

    # --- acting -----------------------------------------------------------------------------------------------

    async def start(self, _: Request, body: StartBody, who: Visitor) -> dict[str, Any]:
        """Start a run."""
        if not body.prompt.strip() or "\0" in body.prompt:
            raise HttpError(400, "bad_prompt", "prompt must be a non-empty str and has no NUL character")
        if len(body.prompt) > MAX_PROMPT:
            raise HttpError(413, "long_prompt", f"prompt has {len(body.prompt)} characters; {MAX_PROMPT} is the most")
        feed = await self.hub.start(
            body.agent, body.prompt, session=body.session, limits=body.limits, tags=body.tags, who=who
        )
        return {"run_id": feed.run_id, "session_id": feed.head.session_id}

    async def unlock(self, _: Request, body: UnlockBody, _who: Visitor) -> dict[str, str]:
        """The token, for a one-time code that was not used yet."""
        token = self._codes.redeem(body.code)
        if token is None:
            raise HttpError(
                401, "bad_code", "this code was used before, or is wrong: open the page again from its file"
            )
        return {"token": token}

    async def kill(self, _: Request, body: KillBody, who: Visitor) -> Any:
        """Throw a switch."""
        return await self.kills.kill(body, who)

    # --- looking after the process ----------------------------------------------------------------------------

    async def openapi(self, _: Request) -> dict[str, Any]:
        """The OpenAPI page."""
        return openapi_page(self.options.prefix)

    async def metrics(self, _: Request) -> Response:
        """Figures for Prometheus."""
        if self.hub.measures is not None:
            await self.hub.measures.settle()
        hub = self.hub
        figures = {
            "glidepath_serve_runs_in_flight": ("gauge", "Runs in this process", len(hub.flights)),
            "glidepath_serve_foreign_runs_in_flight": (
                "gauge",
                "Runs of other programs behind the gate in this process",
                0 if hub.foreign is None else len(hub.foreign.roots()),
            ),
            "glidepath_serve_runs_most": ("gauge", "Runs allowed at once", hub.max_runs),
            "glidepath_serve_readers": ("gauge", "Readers of event streams", hub.readers),
            "glidepath_serve_events_total": ("counter", "Events that were logged", hub.recorded),
        }
        page = render_page(figures, hub.meters if hub.measures is not None else None)
        return Response(page, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def health(self, _: Request) -> dict[str, Any]:
        """It lives."""
        return {"status": "ok"}

    async def ready(self, _: Request) -> dict[str, Any]:
        """Ready to work: the store answers."""
        if self.hub.store is not None:
            try:
                await self.reader.cards(OPERATOR, limit=1)
            except HttpError as refused:
                raise HttpError(503, "store_unavailable", str(refused), 1) from None
        return {"status": "ready"}


def store_kind(store: Any) -> str:
    """The kind of a store in one word."""
    name = type(store).__name__.removesuffix("Store").lower()
    return {"nonetype": "memory", "redacting": "redacting"}.get(name, name)


def _agent_info(name: str, agent: Agent[Any]) -> AgentInfo:
    config, limits = agent.config, asdict(agent.config.limits)
    model: Any = config.model
    return AgentInfo(
        name=name,
        model=model if isinstance(model, str) else str(getattr(model, "name", type(model).__name__)),
        tools=tuple(str(getattr(one, "name", one)) for one in config.tools),
        limits={key: value for key, value in limits.items() if value is not None},
    )


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    if not text.isascii() or not text.removeprefix("-").isdigit() or not least <= int(text[:20]) <= most:
        raise HttpError(400, f"bad_{name}", f"{name} must be a whole number from {least} to {most}, not {text!r:.40}")
    return int(text)


def _wants_stream(request: Request) -> bool:
    """A stream, unless JSON is asked for, by the header or by saying which page."""
    accept = request.headers.get("accept", "")
    if "text/event-stream" in accept:
        return True
    return "application/json" not in accept and not {"before", "limit", "kind"} & set(request.query_params)


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_wire.encode(value), status, media_type="application/json", headers=dict(headers or {}))


async def _translate_errors(handler: Handler, request: Request) -> Any:
    try:
        return await handler(request)
    except (ConfigurationError, StoreError) as error:
        raise refusal_of(error) from None


def _answer_as_json(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        return _json(await _translate_errors(handler, request))

    return answer


def _on_run(act: Callable[[str, Any, Visitor], Awaitable[Any]]) -> Callable[[Request, Any, Visitor], Awaitable[Any]]:
    async def on_run(request: Request, body: Any, who: Visitor) -> Any:
        return await act(request.path_params["id"], body, who)

    return on_run


def _handle_post(kind: Any, handler: Callable[[Request, Any, Visitor], Awaitable[Any]], status: int = 200) -> Handler:
    read = _wire.decoder(kind)

    async def handle(request: Request) -> Response:
        try:
            body = read(await request.body() or b"{}")
        except (WireError, ValueError, RecursionError) as error:
            raise HttpError(400, "bad_body", f"malformed body for this path: {error}"[:300]) from None
        check_reason(getattr(body, "reason", ""))

        async def act(request: Request) -> Any:
            return await handler(request, body, visitor_of(request))

        return _json(await _translate_errors(act, request), status)

    return handle


async def _raise_not_found(_: Request) -> Response:
    raise HTTPException(404)


async def _make_refusal_response(_: Request, error: Exception) -> Response:
    refused: Any = error
    headers = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
    return _json(refused.body, refused.status, headers)


async def _make_http_error_response(_: Request, error: Exception) -> Response:
    known: Any = error
    code = {404: "not_found", 405: "method_not_allowed"}.get(known.status_code, "refused")
    message = "there is no such path: GET /openapi.json lists them" if code == "not_found" else str(known.detail)
    return _json({"error": {"code": code, "message": message}}, known.status_code, known.headers or {})


async def _make_unavailable_response(request: Request, error: Exception) -> Response:
    known: Any = error
    return await _make_refusal_response(request, refusal_of(known))


_HANDLERS: dict[Any, Any] = {
    HttpError: _make_refusal_response,
    HTTPException: _make_http_error_response,
    ConfigurationError: _make_unavailable_response,
    StoreError: _make_unavailable_response,
}
