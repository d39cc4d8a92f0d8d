"""The scenes of `glidepath demo` that our own agents play: a limit lands, a budget holds, a loop is noticed."""

from __future__ import annotations

import asyncio
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from glidepath.agent import Agent, Budget, Limits
from glidepath.apps.cli.cli_context import CliContext, screen_size
from glidepath.apps.cli.display_text import call_line
from glidepath.apps.cli.status import clip_line
from glidepath.models import LocalModel
from glidepath.spi import ModelRequest
from glidepath.testing import ScriptedModel, Turn, call, say, truncated
from glidepath.tools import tool
from glidepath.values import GuardTripped, LandingStarted, LoopOutcome, RunResult, Texts, ToolEnded, ToolStarted

if TYPE_CHECKING:
    from glidepath.spi import Model

TASK = "What does the atlas say about Lisbon?"
ATLAS = {
    "Lisbon": "Lisbon is the capital of Portugal. It lies on the river Tagus and has 548,000 people.",
    "Oslo": "Oslo is the capital of Norway. It lies on a fjord and has 710,000 people.",
    "Wellington": "Wellington is the capital of New Zealand. It lies on Cook Strait and has 213,000 people.",
}
_LONG = "Write a long text about "
CITIES = ("Lisbon", "Oslo", "Rome", "Paris")
_PATIENCE = 90  # seconds for a scene; on a quiet machine it takes ten
_SHARED = 1_000
_WANTED = 200
_WIDE, _NARROWEST, _MARGIN = 100, 30, 4
_BAR = 30
_ANSWERS = {"nudge": "the model is told", "withdraw": "the tool is withdrawn"}


@tool(name="atlas", read_only=True, idempotent=True)
async def look_up_city(city: str) -> str:
    """Look a city up in the atlas."""
    return ATLAS.get(city.strip(), f"{city} is not in the atlas. It has {', '.join(ATLAS)}.")


def make_scripted_model() -> ScriptedModel:
    """Replaces the embedded model: it calls its tool for as long as it has one, and fills its output cap."""

    def answer(request: ModelRequest) -> Turn:
        asked = request.messages[0].text
        if request.tools:
            return call("atlas", city="Lisbon")
        if not asked.startswith(_LONG):
            return say("The atlas says that Lisbon is the capital of Portugal, on the river Tagus.")
        text = f"{asked.removeprefix(_LONG).rstrip('.')} is a city. " * 100
        return truncated(text[: 4 * min(request.max_output_tokens or _WANTED, _WANTED)])

    return ScriptedModel(name="scripted", delay=0.001, record=False).forever(answer)


class DemoStage:
    """Plays the scenes on a model and prints what happens. Each answers False when the model itself failed."""

    def __init__(self, model: Model, world: CliContext) -> None:
        self._model = model
        self._world = world
        self._temperature = 0 if isinstance(model, LocalModel) else None

    async def limit(self) -> bool:
        """One turn is allowed, the model spends it on a tool, and there is still an answer."""
        self._title("2. A limit that lands with an answer")
        self._line(f'The model may take one turn. The task: "{TASK}"')
        agent = self._agent(
            limits=Limits(max_iterations=1, timeout=_PATIENCE),
            tools=[look_up_city],
            max_output_tokens=64,
            texts=Texts(landing="Tell me in one sentence what the atlas said."),
        )
        result = await self._watch(agent, "tools withdrawn, one last call from the reserve")
        self._end(result, "Most other runtimes raise an exception or return no answer here.")
        return result.outcome is not LoopOutcome.FAILED

    async def budget(self) -> bool:
        """Four agents want more than there is, at the same moment, and together they stay below the limit."""
        self._title("3. A budget that holds among four agents at once")
        self._line(f"{_SHARED:,} tokens for all of them. Each would write more than its share.")
        purse = Budget(Limits(max_tokens=_SHARED, landing_tokens=48))
        agent = self._agent(
            limits=Limits(timeout=_PATIENCE, landing_tokens=48),
            min_output_tokens=24,
            max_output_tokens=_WANTED,
            texts=Texts(landing="Finish with one sentence."),
        )

        async def one(city: str) -> RunResult:
            result: RunResult = await agent.run(f"{_LONG}{city}.", parent=purse)
            said = " ".join(result.text.split())
            self._quote(f"{city:<7} {result.usage.total:>4} tokens  {said}")
            return result

        results = await asyncio.gather(*map(one, CITIES))
        spent = sum(result.usage.total for result in results)
        full = min(_BAR, _BAR * spent // _SHARED)
        self._line(f"together {spent:,} of {_SHARED:,} tokens [{'#' * full}{'.' * (_BAR - full)}]")
        self._line("Each call reserved its worst case first and gave back what it did not use.")
        self._line("A limit that is checked after the call lets every call in flight through.")
        return not any(result.outcome is LoopOutcome.FAILED for result in results)

    async def loop(self) -> bool:
        """A model that has to call a tool every turn calls the same one, until somebody notices."""
        self._title("4. A stuck loop, noticed")
        self._line("The model must call a tool in every turn, and has 12 turns to waste.")
        agent = self._agent(
            limits=Limits(max_iterations=12, timeout=_PATIENCE),
            tools=[look_up_city],
            tool_choice="required",
            max_output_tokens=128,
            texts=Texts(withdrawn="Tell me in one sentence what the atlas said."),
        )
        result = await self._watch(agent)
        self._end(result, f"It took {result.iterations} of 12 turns. Nobody had to set this up.")
        return result.outcome is not LoopOutcome.FAILED

    # --- how it is shown ------------------------------------------------------------------------------------------

    def _agent(self, **fields: Any) -> Agent[Any]:
        return Agent(model=self._model, temperature=self._temperature, **fields)

    async def _watch(self, agent: Agent[Any], landing: str = "") -> RunResult:
        calls: dict[str, str] = {}
        seen: set[str] = set()
        noticed = False
        async with agent.stream(TASK) as stream:
            async for event in stream:
                if isinstance(event, ToolStarted):
                    calls[event.call_id] = call_line(event.tool_name, event.arguments)
                elif isinstance(event, ToolEnded):
                    said = "(the same again)" if event.result.text in seen else event.result.text
                    seen.add(event.result.text)
                    began = calls.get(event.call_id)
                    self._quote(
                        f"{event.tool_name} was called once more, and not run"
                        if began is None
                        else f"{began} -> {said}"
                    )
                elif isinstance(event, GuardTripped) and event.action in _ANSWERS:
                    what = "the model calls it again" if noticed else f"noticed: {event.reason}"
                    self._line(f"{what}; {_ANSWERS[event.action]}")
                    noticed = True
                elif isinstance(event, LandingStarted) and landing:
                    self._line(f"limit: {event.reason}; {landing}")
        result: RunResult = stream.result
        return result

    def _end(self, result: RunResult, moral: str) -> None:
        self._quote(f"answer: {' '.join(result.text.split())}")
        self._line(f"result: {result.outcome.name} ({result.state.name}). {moral}")

    def _title(self, text: str) -> None:
        self._world.write(f"\n{text}\n")

    def _line(self, text: str) -> None:
        """Print a text of ours in full, wrapped."""
        self._world.write(wrap_text(text, self._world, "   "))

    def _quote(self, text: str) -> None:
        """Print one row of what the model or a tool said."""
        self._world.write(f"   {clip_line(text, self._room())}\n")

    def _room(self) -> int:
        return room_on(self._world)


def wrap_text(text: str, world: CliContext, indent: str = "") -> str:
    """A text of ours as rows that fit the terminal."""
    rows = wrap(text, room_on(world), break_on_hyphens=False)
    return "".join(f"{indent}{row}\n" for row in rows)


def room_on(world: CliContext) -> int:
    """The columns of a row, without its indent."""
    return max(min(screen_size(world.stdout)[0], _WIDE) - _MARGIN, _NARROWEST)
