"""The routes: a request is parsed into a typed value, the hub or the reader answers, the answer is JSON."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glidepath import _wire
from glidepath._version import VERSION
from glidepath._wire import WireError, asdict, replace
from glidepath.agent import Agent
from glidepath.apps.server.batch_actions import BatchActions
from glidepath.apps.server.error_answers import ERROR_HANDLERS, raise_not_found
from glidepath.apps.server.eval_pages import EvalPages
from glidepath.apps.server.event_log import log_for
from glidepath.apps.server.event_streams import run_stream, stream_cards
from glidepath.apps.server.fleet_view import FleetView
from glidepath.apps.server.gate_door import GateDoor, MountedGate
from glidepath.apps.server.gatekeeper import OPEN, UNLOCK, Gatekeeper, is_private
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
from glidepath.apps.server.run_query import RunQuery, read_time
from glidepath.apps.server.serve_options import ServeOptions
from glidepath.apps.server.shapes import (
    AgentInfo,
    BatchBody,
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
from glidepath.apps.server.webhooks import Webhooks
from glidepath.values import ConfigurationError, StoreError

__all__ = ["make_application"]

Handler: TypeAlias = Callable[[Request], Awaitable[Any]]
MAX_PROMPT = 500_000
MOST = 1_000_000_000


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
            await server.hooks.close()
            await hub.switches.close()

    application = Starlette(
        routes=server.routes(), middleware=middleware, exception_handlers=ERROR_HANDLERS, lifespan=lifespan
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
        self.batch = BatchActions(self.actions)
        self.evals = EvalPages(hub)
        self.kills = KillActions(self.actions)
        self.mcp = McpDoor(hub, options.mcp_name)
        self._codes = codes
        self.hooks = Webhooks(options.webhooks, hub.watchers)

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
        lost = RunQuery(states=frozenset({"lost"}))
        for card in (await self.reader.list.page(OPERATOR, lost, limit=500)).cards:
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
            "/api/runs/{id:path}/timeline": self.timeline,
            "/api/runs/{id:path}/burn": self.burn,
            "/api/runs/{id:path}/request": self.model_request,
            "/api/approvals": self.approvals,
            "/api/evals": self.evaluations,
            "/api/evals/{id:path}": self.evaluation,
            "/api/budgets": self.budgets,
            "/api/fleet": self.fleet,
            "/api/webhooks": self.hooks.list_deliveries,
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
        batch = {"land": self.batch.land, "stop": self.batch.stop, "resume": self.batch.resume}
        routes = [
            *[
                Route(f"/api/batch/{verb}", _handle_post(BatchBody, _on_batch(act)), methods=["POST"])
                for verb, act in batch.items()
            ],
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
        every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        nothing = [Route(f"{door}/{{path:path}}", raise_not_found, methods=every) for door in ("/api", "/v1")]
        return [*lock_routes(routes), *nothing, *lock_routes([Route("/{path:path}", static_file, methods=["GET"])])]

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
        given = request.query_params
        limit = _number(request, "limit", 50, 1, 500)
        found = await self.reader.list.page(
            visitor_of(request), RunQuery.parse(given), cursor=given.get("cursor") or None, limit=limit
        )
        answer = {"runs": found.cards, "cursor": found.cursor}
        return {**answer, "excerpts": found.excerpts, "searched": found.searched} if given.get("text") else answer

    async def run(self, request: Request) -> Any:
        """All about one run."""
        detail = await self.reader.detail(request.path_params["id"], visitor_of(request))
        if not self.options.trace_url:
            return detail
        trace = await self.reader.find_trace(detail.session_id)
        return detail if trace is None else replace(detail, trace=self.options.trace_url.replace("{trace_id}", trace))

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

    async def timeline(self, request: Request) -> dict[str, Any]:
        """A page of what took how long."""
        after, limit = _number(request, "after", 0, 0, MOST), _number(request, "limit", 200, 1, 1000)
        order = request.query_params.get("order") or "time"
        return await self.reader.timeline(request.path_params["id"], visitor_of(request), after, limit, order)

    async def burn(self, request: Request) -> dict[str, Any]:
        """What a run and its children had used, over time."""
        return {"points": await self.reader.burn(request.path_params["id"], visitor_of(request))}

    async def model_request(self, request: Request) -> Any:
        """What a model was asked in one call."""
        at = read_time(request.query_params, "at")
        if at is None:
            raise HttpError(400, "bad_at", "at is missing: name the time at which the call began, as the timeline does")
        return await self.reader.requests.read(request.path_params["id"], visitor_of(request), at)

    async def approvals(self, request: Request) -> dict[str, Any]:
        """Calls that are waiting for a person."""
        return {"approvals": await self.reader.approvals(visitor_of(request))}

    async def evaluations(self, request: Request) -> dict[str, Any]:
        """The evaluations in the store."""
        return {"evals": await self.evals.list_cards(visitor_of(request))}

    async def evaluation(self, request: Request) -> Any:
        """The report of one."""
        after, limit = _number(request, "after", 0, 0, MOST), _number(request, "limit", 200, 1, 1000)
        return await self.evals.detail(request.path_params["id"], visitor_of(request), after, limit)

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
                await self.reader.list.page(OPERATOR, limit=1)
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


def _on_batch(act: Callable[[Any, Visitor], Awaitable[Any]]) -> Callable[[Request, Any, Visitor], Awaitable[Any]]:
    async def on_batch(_: Request, body: Any, who: Visitor) -> Any:
        return await act(body, who)

    return on_batch


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
