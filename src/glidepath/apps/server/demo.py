"""The demo fleet: scripted agents that show everything the deck can show, at a pace that a person can follow.

One lands on its budget, one is stuck in a loop, one asks for approval, one sends a team, one has children and
grandchildren. Where the embedded model is on this machine, one more is answered by it. Nothing here needs a key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glidepath.agent import Agent, Limits
from glidepath.apps.server.locks import OPERATOR
from glidepath.spi import ModelRequest
from glidepath.teams import Member, Team, TeamExecutionPlan, TeamExecutionRequest, TeamStep
from glidepath.testing import ScriptedModel, Turn, call, calls, say
from glidepath.tools import ToolContext, tool
from glidepath.values import ConfigurationError, describe_error

if TYPE_CHECKING:
    from glidepath.apps.server.hub import Hub

_log = logging.getLogger("glidepath.serve")
PACE = 0.05  # seconds between two words
THINK = 0.35  # seconds before the first
AGAIN = 25.0  # seconds between two rounds
PRICE = ("3", "15")
TASKS = {
    "researcher": "Which cities run trams on batteries, and how far do they get?",
    "looper": "Wait until the export is ready and tell me its size.",
    "billing": "Pay invoice 2041 from Harbor Supplies.",
    "press-office": "Write a short note about the new night train.",
    "expedition": "Compare three harbors for the spring regatta.",
}
"""What each agent is asked."""
_TOPICS = (
    "Nice",
    "Seville",
    "Birmingham",
    "Nanjing",
    "Doha",
    "Konya",
    "Zaragoza",
    "Guangzhou",
    "Cardiff",
    "Luxembourg",
)
_HARBORS = ("Kiel", "Lorient", "Gdynia")


def _turns(request: ModelRequest) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def _model(name: str, turn: Callable[[ModelRequest], Turn]) -> ScriptedModel:
    return ScriptedModel(name=name, price=PRICE, record=False, delay=PACE, first_chunk_delay=THINK).forever(turn)


# --- one that lands -------------------------------------------------------------------------------------------------


@tool(read_only=True, idempotent=True)
async def search(query: str, context: ToolContext) -> str:
    """Search the transport archive."""
    for share in (30, 70):
        await asyncio.sleep(0.15)
        context.report(f"{share} % of the archive read")
    return (
        f"{query}: the line has run on batteries between stops since the upgrade. Range per charge is about "
        f"{2 + len(query) % 5} kilometers, charging takes {15 + len(query)} seconds at each terminus. " * 3
    )


def _reply_as_researcher(request: ModelRequest) -> Turn:
    if not request.tools:
        return say(
            "What I have so far: Nice, Seville and Birmingham cross their old towns on batteries. Ranges are 2 to 6 "
            "kilometers per charge, and all of them recharge at the terminus. I could not check the remaining cities."
        )
    place = _TOPICS[_turns(request) % len(_TOPICS)]
    return call("search", query=f"battery trams in {place}").with_text(f"Next I check {place}. ")


# --- one that is stuck ----------------------------------------------------------------------------------------------


@tool(read_only=True, idempotent=True)
async def export_status(job: str) -> str:
    """Ask how far an export is."""
    await asyncio.sleep(0.1)
    return f"export {job}: pending"


@tool(read_only=True, idempotent=True)
async def list_files(folder: str) -> str:
    """List the files of a folder."""
    await asyncio.sleep(0.1)
    return f"{folder} is empty"


def _reply_in_loop(request: ModelRequest) -> Turn:
    if not request.tools:
        return say("The export was still pending when I stopped looking: I cannot tell its size.")
    if _turns(request) % 2:
        return call("list_files", folder="exports").with_text("Maybe the file is there already. ")
    return call("export_status", job="nightly").with_text("I ask how far it is. ")


# --- one that asks --------------------------------------------------------------------------------------------------


@tool(read_only=True, idempotent=True)
async def invoice(number: int) -> str:
    """Look an invoice up."""
    await asyncio.sleep(0.2)
    return f"invoice {number}: Harbor Supplies, 1,240.00 USD for rope and paint, due today"


@tool(requires_approval=True)
async def pay(invoice: int, amount: str, recipient: str) -> str:
    """Pay an invoice from the company account."""
    await asyncio.sleep(0.3)
    return f"paid {amount} USD to {recipient} for invoice {invoice}"


def _reply_as_billing(request: ModelRequest) -> Turn:
    last = request.messages[-1].text if request.messages else ""
    done = _turns(request)
    if done == 0:
        return call("invoice", number=2041).with_text("First I look at the invoice. ")
    if done == 1:
        return call("pay", invoice=2041, amount="1240.00", recipient="Harbor Supplies").with_text("It is due today. ")
    return say("The invoice is paid." if "paid" in last else f"I did not pay it: {last[:120]}")


# --- a team, and a tree ---------------------------------------------------------------------------------------------


def _write(request: ModelRequest) -> Turn:
    asked = request.messages[0].text if request.messages else ""
    if "facts" in asked:
        return say("The night train leaves at 22:10, has 12 sleeping cars, and takes bicycles. Source: the timetable.")
    return say(
        "Sleep in one city and wake up in another: from June the night train leaves at 22:10, bicycles included."
    )


def _reply_as_office(request: ModelRequest) -> Turn:
    if _turns(request) == 0:
        return call("send_team", goal="A note about the new night train").with_text("I hand this to the team. ")
    return say("The team has delivered its note about the night train.")


def _make_press_office() -> Agent[Any]:
    writers = [
        Agent(
            model=_model("demo-writer", _write),
            limits=Limits(max_iterations=4, max_tokens=20_000),
            agent_name=name,
        )
        for name in ("reporter", "editor")
    ]
    team = Team([Member(name=one.config.agent_name, agent=one) for one in writers], name="press office")
    plan = TeamExecutionPlan(
        steps=(
            TeamStep(id="facts", description="Collect the facts with their source"),
            TeamStep(id="text", description="Write two sentences for the public", depends_on=("facts",)),
        )
    )

    @tool
    async def send_team(goal: str) -> str:
        """Let the press office work on a goal."""
        result = await team.run(TeamExecutionRequest(goal=goal, plan=plan))
        return f"{result.status.value}: {result.final_output}"

    return Agent(
        model=_model("demo-office", _reply_as_office),
        tools=[send_team],
        limits=Limits(max_iterations=20, max_tokens=80_000, max_cost="0.80"),
        agent_name="press-office",
    )


@tool(read_only=True, idempotent=True)
async def harbor_chart(harbor: str) -> str:
    """Read the chart of a harbor."""
    await asyncio.sleep(0.4)
    return f"{harbor}: depth {len(harbor)} meters, {20 * len(harbor)} berths, westerly winds in spring"


def _make_expedition() -> Agent[Any]:
    def look(request: ModelRequest) -> Turn:
        harbor = next((one for one in _HARBORS if one in request.messages[0].text), "Kiel")
        if _turns(request) == 0:
            return call("harbor_chart", harbor=harbor)
        return say(f"{harbor} has enough berths and steady westerly winds in spring.")

    def scout(request: ModelRequest) -> Turn:
        if _turns(request) == 0:
            return call("surveyor", task=request.messages[0].text).with_text("I send a surveyor. ")
        return say(f"Report: {request.messages[-1].text[:160]}")

    def lead(request: ModelRequest) -> Turn:
        if _turns(request) == 0:
            return calls(*[call("scout", task=f"Look at {one}") for one in _HARBORS], text="Three scouts go at once. ")
        return say(
            "Lorient has the most berths, Kiel the steadiest wind, Gdynia the shortest way. I would take Lorient."
        )

    small = Limits(max_iterations=4, max_tokens=20_000, max_cost="0.20")
    surveyor = Agent(model=_model("demo-surveyor", look), tools=[harbor_chart], limits=small, agent_name="surveyor")
    middle = Agent(
        model=_model("demo-scout", scout),
        tools=[surveyor.as_tool("surveyor", "Survey a harbor")],
        limits=Limits(max_iterations=9, max_tokens=40_000, max_cost="0.30"),
        agent_name="scout",
    )
    return Agent(
        model=_model("demo-lead", lead),
        tools=[middle.as_tool("scout", "Scout a harbor")],
        limits=Limits(max_iterations=40, max_tokens=200_000, max_cost="1.50", timeout=120),
        agent_name="expedition",
    )


def _make_embedded_agent() -> Agent[Any] | None:
    """An agent on the embedded model, where that is on this machine already."""
    try:
        import xllamacpp

        from glidepath.models import resolve
        from glidepath.models.local.weights import find_weights_file

        find_weights_file("smollm2")
        model: Any = resolve("local:smollm2")
    except (ImportError, ConfigurationError, OSError):
        return None
    assert xllamacpp  # noqa: S101 - only looked for
    return Agent(
        model=model,
        limits=Limits(max_iterations=2, max_tokens=2_000, timeout=60),
        max_output_tokens=128,
        agent_name="embedded",
    )


def demo_agents() -> dict[str, Agent[Any]]:
    """The agents of the demo, by name."""
    agents = [
        Agent(
            model=_model("demo-researcher", _reply_as_researcher),
            tools=[search],
            limits=Limits(max_iterations=9, max_tokens=40_000, max_cost="0.25", timeout=300),
            agent_name="researcher",
        ),
        Agent(
            model=_model("demo-looper", _reply_in_loop),
            tools=[export_status, list_files],
            limits=Limits(max_iterations=40, max_tokens=60_000, max_cost="0.50"),
            agent_name="looper",
        ),
        Agent(
            model=_model("demo-billing", _reply_as_billing),
            tools=[invoice, pay],
            limits=Limits(max_iterations=6, max_tokens=20_000, max_cost="0.10"),
            agent_name="billing",
        ),
        _make_press_office(),
        _make_expedition(),
    ]
    embedded = _make_embedded_agent()
    return {one.config.agent_name: one for one in [*agents, *([embedded] if embedded is not None else [])]}


class DemoFleet:
    """Runs the demo: every agent once, then again every now and then, as long as somebody may be looking."""

    def __init__(self, hub: Hub, *, again: float = AGAIN, rounds: int | None = None) -> None:
        self._hub = hub
        self._again = again
        self._rounds = rounds

    async def run_fleet(self) -> None:
        """Start the runs; returns after the last round, if there is one."""
        flown = 0
        while self._rounds is None or flown < self._rounds:
            for name in self._hub.agents:
                if name == "billing" and flown and self._is_waiting():
                    continue  # one invoice at a time waits for a person
                try:
                    task = TASKS.get(name, "Say hello to the person who looks at you.")
                    await self._hub.start(name, task, tags=["demo"], who=OPERATOR)
                except Exception as error:
                    _log.warning("the demo could not start %s: %s", name, describe_error(error))
                await asyncio.sleep(0.2)
            flown += 1
            await asyncio.sleep(self._again)

    def _is_waiting(self) -> bool:
        return any(feed.card.agent == "billing" and feed.card.state == "paused" for feed in self._hub.feeds.values())
