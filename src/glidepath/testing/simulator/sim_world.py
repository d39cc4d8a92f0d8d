"""Ground truth: what a flight really sent, wrote and started, measured outside the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Agent, LoopConfig, change_speakers
from glidepath.guards.approvals import Rules
from glidepath.run import CancelToken
from glidepath.spi import ModelRequest
from glidepath.testing import ScriptedModel
from glidepath.testing.specimens import ANSWER, Moment, Specimen
from glidepath.tools import Tool, ToolContext, tool
from glidepath.tools.options import RunOptions
from glidepath.values import Delta, RejectedError, TextDelta, ThinkingDelta, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glidepath.testing.turns import Turn

CHARS_PER_TOKEN = 4
CALL_TOKENS = 8
PARTNER = "the_other"
WRITTEN = "You do what you are asked to do."  # in place of a system prompt that a function writes
_KEPT = ("name", "description", "parameters", *sorted(RunOptions.__optional_keys__ - {"isolation", "sandbox"}))
"""What a stand-in copies from its tool: everything except where that runs."""


class Ceiling:
    """The limits at which the simulator itself ends a flight, which then counts as not contained."""

    calls = 2_000
    tokens = 3_000_000
    seconds = 86_400.0
    tool_calls = 20_000


CEILING = Ceiling()


class SimWorld:
    """One flight seen from outside: the specimen's model, stand-ins of the tools, and what really happened."""

    def __init__(self, config: LoopConfig, specimen: Specimen, chance: Random) -> None:
        self.specimen = specimen
        self.chance = chance
        self.token = CancelToken()
        self.streaming = asyncio.Event()
        self.in_tool = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None
        self.calls = self.sent = self.written = self.largest = self.longest_reply = 0
        self.tools_started = 0
        self.stopped = self.asked_after_cancel = self.answered = False
        self.runaway = ""
        self.agent: Agent | None = None
        self._config = config
        self._work = tuple([one.spec for one in config.tools if not one.terminal])
        self._reviews = 0
        self._pilot = ScriptedModel(record=False).forever(self._reply)
        self._reviewer = ScriptedModel(record=False).forever(self._review)

    # --- what the runtime gets --------------------------------------------------------------------------------

    def configuration(self, sink: object) -> LoopConfig:
        """The user's configuration with this model, these tools, and nothing that reaches outside."""
        config = change_speakers(self._config, self._make_speaker)
        tools = [*config.tools, *self.specimen.tools()]
        if self.specimen.extra_tool is not None:
            tools.append(self._make_extra_tool(self.specimen.extra_tool))
        handoffs = config.handoffs
        if self.specimen.hands_over:
            handoffs = (*handoffs, _make_partner(config))
        return replace(
            config,
            tools=tuple(tools),
            handoffs=handoffs,
            approvals=self._make_rules(config.approvals),
            plugins=(*config.plugins, *[make() for make in self.specimen.plugins]),
            output_type=self.specimen.output_type,
            event_sink=sink,
        )

    def _make_speaker(self, config: LoopConfig) -> LoopConfig:
        """The settings of an agent, with the specimen as its model and stand-ins for what it can do."""
        return replace(
            config,
            model=_Model(self, config.model, self._pilot),
            tools=tuple([self._make_stand_in(one) for one in config.tools]),
            tool_sources=(),  # nothing is started for a simulation
            skills=(),  # their tools, and those of agents from files, have their stand-ins
            agents=(),
            system_prompt=config.system_prompt if isinstance(config.system_prompt, str) else WRITTEN,
            output_type=None,  # no specimen can know the user's
            output_validators=(),
            store=None,
            event_sink=None,
            fallback_models=(),
        )

    def _make_rules(self, rules: Rules | None) -> Rules | None:
        """The user's rules, with a reviewer who says what the specimen says."""
        if rules is None and self.specimen.reviewed:
            rules = Rules()
        given = None if rules is None else rules.reviewer or (self._config.model if self.specimen.reviewed else None)
        if rules is None or given is None:
            return rules
        if not isinstance(given, Agent):
            return replace(rules, reviewer=_Model(self, given, self._reviewer))
        config = self._make_speaker(given.config)
        return replace(rules, reviewer=Agent(replace(config, model=_Model(self, given.config.model, self._reviewer))))

    def _make_stand_in(self, original: Tool) -> Tool:
        async def stand_in(**_: object) -> Any:
            return await self.specimen.work(self.count_tool_start())

        def blocking(**_: object) -> Any:
            return self.specimen.block(self.count_tool_start())

        async def reporting(**_: object) -> AsyncIterator[Any]:
            async for value in self.specimen.progress(self.count_tool_start()):
                yield value

        if self.specimen.reports:
            return self.copy_of(original, reporting)
        return self.copy_of(original, blocking if self.specimen.blocking else stand_in)

    def copy_of(self, original: Tool, fn: Callable[..., Any]) -> Tool:
        """A tool with the same name, schema and options that does something else."""
        kept: Any = {name: getattr(original, name) for name in _KEPT}
        made = Tool(fn=fn, **kept)
        return made.overlapping() if original.overlaps else made

    def _make_extra_tool(self, name: str) -> Tool:
        async def give(task: str, context: ToolContext) -> str:
            self.count_tool_start()
            assert self.agent is not None  # noqa: S101 - for the type checker
            if name == "map":
                items = (f"item {number}" for number in count(1))
                return str(len([one async for one in self.agent.map(items, progress=False)]))
            work = context.spawn(self.agent, task) if name == "delegate" else self.agent.run(task)
            return (await work).text

        made = tool(give, name=name, description="Give a part of the task to another agent.")
        return made.overlapping()  # like every agent used as a tool

    # --- interference from outside ----------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel the run by its token."""
        self.stopped = True
        self.token.cancel("cancelled by the simulator")

    def cancel_task(self) -> None:
        """Cancel the task the run lives in."""
        if self.task is not None:
            self.stopped = True
            self.task.cancel()

    def wind_down(self) -> None:
        """Ask the run to finish up."""
        self.token.wind_down("the simulator asks to finish up")

    # --- what really happened ---------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Tokens sent and written, a token for every four characters."""
        return self.sent + self.written

    def _reply(self, request: ModelRequest) -> Turn:
        return self.specimen.reply(self._make_moment(request, self.calls - self._reviews))

    def _review(self, request: ModelRequest) -> Turn:
        self._reviews += 1
        return self.specimen.review(self._make_moment(request, self._reviews))

    def _make_moment(self, request: ModelRequest, number: int) -> Moment:
        return Moment(number=number, request=request, tools=self._work, chance=self.chance)

    async def stream(self, request: ModelRequest, script: ScriptedModel) -> AsyncIterator[Delta]:
        """The specimen's reply, counted."""
        self.calls += 1
        self.asked_after_cancel = self.asked_after_cancel or self.token.cancelled
        said = sum([len(message.text) for message in request.messages])
        sent = (len(request.system_prompt) + said) // CHARS_PER_TOKEN
        self.sent += sent
        self._hold(calls=self.calls > CEILING.calls, tokens=self.tokens > CEILING.tokens)
        written, text = 0, ""
        try:
            async for delta in script.stream(request):
                if isinstance(delta, TextDelta):
                    text = (text + delta.text)[-len(ANSWER) - len(delta.text) :]
                    self.answered = self.answered or ANSWER in text
                tokens = _tokens(delta)
                written += tokens
                self.written += tokens
                self._hold(tokens=self.tokens > CEILING.tokens)
                self.streaming.set()
                yield delta
        finally:
            self.largest = max(self.largest, sent + written)
            self.longest_reply = max(self.longest_reply, written)

    def _hold(self, **exceeded: bool) -> None:
        for what, true in exceeded.items():
            if true:
                self.runaway = self.runaway or what
                raise RejectedError(f"the simulator ends this flight: {what}")

    def count_tool_start(self) -> int:
        """A tool starts: how many have so far."""
        self.tools_started += 1
        self._hold(tool_calls=self.tools_started > CEILING.tool_calls)
        self.in_tool.set()
        return self.tools_started


def _make_partner(config: LoopConfig) -> Agent:
    """An agent like this one, to which it may hand over, and which may hand back."""
    own = {"plugins": (), "constraints": (), "guards": (), "approvals": None}  # those of the agent that begins hold
    return Agent(replace(config, agent_name=PARTNER, handoffs=(config.agent_name,), **own))


class _Model:
    """The specimen in place of a configured model, with the same name, price and limits."""

    def __init__(self, world: SimWorld, original: object, script: ScriptedModel) -> None:
        named = original if isinstance(original, str) else getattr(original, "name", "model")
        self.name = named.partition(":")[2] or named
        self.price = getattr(original, "price", None)
        self.max_output_tokens = getattr(original, "max_output_tokens", None)
        self.context_window = getattr(original, "context_window", None)
        self._world, self._script = world, script

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """The specimen's reply."""
        return self._world.stream(request, self._script)

    def explain_no_hosted(self, _tool: object, _others: Sequence[object], /) -> None:
        """Tools of the provider are reserved for as they will be; no specimen uses one."""


def _tokens(delta: Delta) -> int:
    if isinstance(delta, TextDelta | ThinkingDelta):
        return len(delta.text) // CHARS_PER_TOKEN
    if isinstance(delta, ToolCallDelta):
        return len(delta.arguments) // CHARS_PER_TOKEN + (CALL_TOKENS if delta.name else 0)
    return 0
