"""Agents as an MCP server: each is one tool, within the limits of its own configuration."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from glidepath._wire import replace
from glidepath.agent import Agent, Limits
from glidepath.run import CancelToken
from glidepath.values import (
    BudgetSettled,
    ConfigurationError,
    Event,
    GlidepathError,
    LandingStarted,
    LoopOutcome,
    RunResult,
    ToolStarted,
    TurnStarted,
    describe_error,
    install_line,
    pluralize,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server import MCPServer
    from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
    from mcp.types import CallToolResult

__all__ = ["AgentAnswer", "CallProgress", "Fly", "Offers", "agent_server"]

FAREWELL = 5.0  # seconds that runs have to land when the server ends
_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class AgentAnswer(TypedDict):
    """How a run ended: what the tool's structured content holds."""

    outcome: str
    state: str
    text: str
    partial: bool
    cause: dict[str, Any] | None
    usage: dict[str, int]
    cost: str | None
    iterations: int
    tool_calls: int
    session_id: str
    pending: list[dict[str, Any]]


Fly: TypeAlias = Callable[[str, str, Limits, Any], Awaitable[RunResult]]
"""Runs an agent: its name, the task, the limits that hold for this call, and the SDK's context of the call."""
Offers: TypeAlias = Callable[[str, object], bool]
"""True when the caller of a request may know of an agent: its name, and the request as its transport has it."""


def agent_server(
    agents: Mapping[str, Agent],
    *,
    name: str = "glidepath",
    instructions: str | None = None,
    fly: Fly | None = None,
    offers: Offers | None = None,
) -> MCPServer:
    """An MCP server of the SDK with one tool for each agent; raises `ConfigurationError` for one without limits.

    A caller may lower an agent's limits for one call, and never raise them. Cancelling the call lands the run. With
    `fly`, somebody else runs the agents and looks after them. With `offers`, a caller's list of tools has only the
    agents that it allows.
    """
    for label, agent in agents.items():
        _check(label, agent)
    try:
        from mcp.server import MCPServer
    except ImportError:
        raise ConfigurationError(f"serving agents over MCP needs mcp: {install_line('mcp')}") from None

    running: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def lifespan(_server: object) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            for agent in agents.values() if fly is None else ():
                await stack.enter_async_context(agent)
            try:
                yield {}
            finally:
                if running:
                    await asyncio.wait(running, timeout=FAREWELL)

    with _protect_logging():
        hiding = () if offers is None else (_hide_others({tool_name(label): label for label in agents}, offers),)
        server = MCPServer(name, instructions=instructions, lifespan=lifespan, middleware=hiding)
    for label, agent in agents.items():
        _add(server, label, agent, fly or _Alone(agents, running).run_in_own_task)
    return server


def tool_name(label: str) -> str:
    """The name of an agent's tool."""
    return _NAME.sub("_", label)[:64] or "agent"


def _hide_others(labels: Mapping[str, str], offers: Offers) -> ServerMiddleware[dict[str, Any]]:
    """A middleware of the SDK: a caller's list has only what is offered to it. It hides; `fly` is what refuses."""

    async def hide_others(ctx: ServerRequestContext[dict[str, Any]], call_next: CallNext) -> HandlerResult:
        answer = await call_next(ctx)
        if ctx.method != "tools/list" or not isinstance(answer, Mapping):
            return answer
        shown = [one for one in answer["tools"] if one["name"] in labels and offers(labels[one["name"]], ctx.request)]
        return {**answer, "tools": shown}

    return hide_others


@contextmanager
def _protect_logging() -> Iterator[None]:
    """Keep the SDK from setting up the logging of the whole process, which it does where nobody else has."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _check(label: str, agent: object) -> None:
    if not isinstance(agent, Agent):
        raise ConfigurationError(f"{label}: expected an Agent, got {type(agent).__name__}")
    if not agent.config.limits.bounded:
        raise ConfigurationError(
            f"{label}: an agent that others may call needs its own limits: Agent(limits=Limits(max_iterations=..., "
            "max_tokens=..., timeout=...))"
        )


def _add(server: MCPServer, label: str, agent: Agent, fly: Fly) -> None:
    from mcp.server.mcpserver import Context
    from mcp.types import CallToolResult, TextContent, ToolAnnotations

    async def run_agent(
        task: str,
        ctx: Context,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        max_cost: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - what a caller sees
    ) -> Annotated[CallToolResult, AgentAnswer]:
        try:
            limits = _lower_limits(agent.config.limits, max_turns, max_tokens, max_cost, timeout)
        except ConfigurationError as error:
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
        try:
            result = await fly(label, task, limits, ctx)
        except GlidepathError as error:
            return CallToolResult(content=[TextContent(type="text", text=describe_error(error))], is_error=True)
        return CallToolResult(
            content=[TextContent(type="text", text=_text(result))],
            structured_content=dict(_answer(result)),
            is_error=result.outcome in (LoopOutcome.FAILED, LoopOutcome.PAUSED),
        )

    run_agent.__annotations__ = {
        "task": str,
        "ctx": Context,
        "max_turns": int | None,
        "max_tokens": int | None,
        "max_cost": str | None,
        "timeout": float | None,
        "return": Annotated[CallToolResult, AgentAnswer],
    }
    server.add_tool(
        run_agent,
        name=tool_name(label),
        description=_description(agent),
        annotations=ToolAnnotations(open_world_hint=True),
    )


def _description(agent: Agent) -> str:
    prompt = agent.config.system_prompt
    first = (prompt if isinstance(prompt, str) else "").strip().split("\n")[0][:300]
    limits = agent.config.limits
    held = [
        f"{value} {what}"
        for value, what in (
            (limits.max_iterations, "turns"),
            (limits.max_tokens, "tokens"),
            (limits.max_cost, "dollars"),
            (limits.timeout, "seconds"),
        )
        if value is not None
    ]
    return (
        f"Give a task to the agent {agent.config.agent_name!r}. {first}".strip()
        + f" It always answers within its limits ({', '.join(held)}); max_turns, max_tokens, max_cost and timeout "
        "lower them for one call."
    )


def _lower_limits(
    now: Limits, turns: int | None, tokens: int | None, cost: float | str | None, timeout: float | None
) -> Limits:
    """The limits that hold for one call: the caller's where they are lower; higher ones change nothing."""
    asked = Limits(max_iterations=turns, max_tokens=tokens, max_cost=cost, timeout=timeout)
    settings = settings_of(Limits)
    lower = {
        name: value
        for name in ("max_iterations", "max_tokens", "max_cost", "timeout")
        if (value := getattr(asked, name)) is not None and settings[name].is_narrower(value, getattr(now, name))
    }
    return replace(now, **lower) if lower else now


class _Alone:
    """Runs agents in this process, for a server that nobody else looks after."""

    def __init__(self, agents: Mapping[str, Agent], running: set[asyncio.Task[Any]]) -> None:
        self._agents = agents
        self._running = running

    async def run_in_own_task(self, label: str, task: str, limits: Limits, ctx: Any) -> RunResult:
        """Run in a plain task: the SDK's scopes cancel again and again, which no landing survives."""
        agent = self._agents[label]
        if limits != agent.config.limits:
            agent = agent.replace(limits=limits)
        token = CancelToken()
        news: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue(maxsize=64)
        flight = asyncio.get_running_loop().create_task(_run_agent(agent, task, token, news), name="glidepath-served")
        self._running.add(flight)
        flight.add_done_callback(self._running.discard)
        try:
            while (one := await news.get()) is not None:
                turn, said = one
                await ctx.report_progress(turn, limits.max_iterations, said)
            await asyncio.wait([flight])
        except asyncio.CancelledError:
            token.cancel("the caller cancelled the call")
            raise
        return flight.result()


async def _run_agent(
    agent: Agent, task: str, token: CancelToken, news: asyncio.Queue[tuple[int, str] | None]
) -> RunResult:
    watch = CallProgress(agent.config.limits)
    try:
        async with agent.stream(task, cancel=token, parent=None) as stream:
            async for event in stream:
                said = watch.describe_progress(event)
                if said is not None and news.qsize() < news.maxsize - 1:  # the last place is for the end
                    news.put_nowait((watch.turn, said))
    finally:
        news.put_nowait(None)
    return stream.result


class CallProgress:
    """How far a run is, in one line: phase, turn, what it has used."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.turn = 0
        self._phase = "starting"
        self._tokens = 0
        self._cost: Any = None

    def describe_progress(self, event: Event) -> str | None:
        """The line after this event, when there is something new to say."""
        if isinstance(event, TurnStarted):
            self.turn += 1
            self._phase = "thinking"
        elif isinstance(event, ToolStarted):
            self._phase = f"calling {event.tool_name}"
        elif isinstance(event, LandingStarted):
            self._phase = "landing"
        elif isinstance(event, BudgetSettled):
            self._tokens += event.usage.total
            return None
        else:
            return None
        most = self._limits.max_iterations
        of = f" of {most}" if most is not None else ""
        used = pluralize(self._tokens, "token", f"{self._tokens:,}") + (
            f" of {self._limits.max_tokens:,}" if self._limits.max_tokens is not None else ""
        )
        return f"{self._phase}, turn {self.turn}{of}, {used}"


def _text(result: RunResult) -> str:
    if result.outcome is LoopOutcome.PAUSED:
        waiting = ", ".join(f"{one.call.name} ({one.reason})" for one in result.pending)
        return f"The agent is waiting for a person's decision: {waiting}. Its session is {result.session_id}."
    if result.outcome is LoopOutcome.DONE or result.cause is None:
        return result.text
    return f"[{result.outcome.value}: {result.cause.reason}]\n{result.text}"


def _answer(result: RunResult) -> AgentAnswer:
    usage, cause = result.usage, result.cause
    return {
        "outcome": result.outcome.value,
        "state": result.state.value,
        "text": result.text,
        "partial": result.partial,
        "cause": None if cause is None else {"source": cause.source, "action": cause.action, "reason": cause.reason},
        "usage": {"input": usage.input, "output": usage.output, "total": usage.total},
        "cost": None if result.cost is None else str(result.cost),
        "iterations": result.iterations,
        "tool_calls": result.tool_calls,
        "session_id": result.session_id,
        "pending": [{"id": one.call.id, "tool": one.call.name, "reason": one.reason} for one in result.pending],
    }
