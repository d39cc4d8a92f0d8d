"""A recorded run, repeated under other limits: the same replies and results, and the real kernel.

`what_if` reckons where a limit would have stopped a run, from figures alone. Here the loop itself decides, so that
reserves, notices and the landing come exactly where they would have come. The answer of a landing is not in any
recording; it is assumed to be the next recorded reply if that is an answer, else the best text so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Agent, Limits
from glidepath.agent.recording import Leg, legs_of
from glidepath.agent.replay import Tape
from glidepath.sessions import read_journal
from glidepath.spi import mark_unreal
from glidepath.tools import RecordedResult, ToolResult
from glidepath.values import AssistantMessage, ConfigurationError, LoopOutcome, Message, RunResult, TextBlock

if TYPE_CHECKING:
    from glidepath.spi import ModelRequest, SessionStore
    from glidepath.tools import Tool, ToolContext

NOBODY_KNOWS = "(what the model would have answered here is not recorded)"
_ANSWERED = (LoopOutcome.DONE, LoopOutcome.FAILED)


class RecordedRun:
    """One run of a session, ready to be repeated as often as you like."""

    def __init__(self, agent: Agent, leg: Leg, recorded: RunResult, messages: Sequence[Message]) -> None:
        self._agent, self._leg = agent, leg
        self._asked = tuple(_measure_requests(messages))
        self.result = recorded
        """How it ended when it was recorded."""

    @classmethod
    async def read(cls, agent: Agent, store: SessionStore, session_id: str) -> RecordedRun:
        """Read it; raises `ConfigurationError` for a run whose recording does not decide what would happen."""
        journal = await read_journal(store, session_id)
        legs = legs_of(journal.commits)
        result = journal.folded.result
        if len(legs) != 1 or legs[0].began is None or result is None:
            raise ConfigurationError("it was made in several parts")
        if result.outcome not in _ANSWERED:
            raise ConfigurationError("it was landed or stopped itself")
        if legs[0].kin or result.children:
            raise ConfigurationError("it started other agents")
        if agent.config.tool_sources or any(tool.makes_calls for tool in agent.config.tools):
            raise ConfigurationError("its tools come from servers, or it writes programs")
        began: Any = legs[0].began
        return cls(agent, legs[0], result, journal.folded.messages[began.first_new :])

    async def fly(self, limits: Limits) -> tuple[RunResult[Any], bool]:
        """The same run under other limits, and whether a request was shortened to fit them. Nothing outside is called.

        What a model says to a shortened request, nobody knows.
        """
        leg = self._leg
        began: Any = leg.began
        config = self._agent.config
        tape = _LandingTape(config.model, list(leg.attempts), self._asked, has_tools=bool(config.tools))
        flier = Agent(
            replace(
                config,
                limits=limits,
                model=tape,
                fallback_models=(),
                tools=tuple([_repeat_results(tool, leg) for tool in config.tools]),
                store=None,
                event_sink=None,
                deps_type=None,
                deps_factory=None,
            )
        )
        with mark_unreal():
            return await flier.run(leg.told[began.first_new :], parent=None), tape.shortened


class _LandingTape(Tape):
    """Repeats the recorded replies; asked for an answer without tools, it gives the one that is nearest."""

    def __init__(
        self, model: Any, attempts: list[AssistantMessage | None], asked: Sequence[int], *, has_tools: bool
    ) -> None:
        super().__init__(model, attempts)
        self._asked = asked
        self._played = 0
        self._has_tools = has_tools
        self.shortened = False
        """True once a request had less in it than the one that was recorded."""
        self._text = ""

    def next_reply(self, request: ModelRequest) -> AssistantMessage | None:
        """The recorded reply, or that of a landing."""
        replies = [one for one in self.attempts if one is not None]
        landing = (self._has_tools and not request.tools) or request.tool_choice == "none"
        if landing or not replies:
            nearest = replies[0] if replies else None
            answers = nearest is not None and nearest.text.strip() and not nearest.tool_calls
            text = nearest.text if answers and nearest is not None else self._text
            return AssistantMessage(blocks=(TextBlock(text or NOBODY_KNOWS),))
        reply = super().next_reply(request)
        if reply is None:
            return None
        self._text = reply.text if reply.text.strip() else self._text
        self._played += 1
        if sum(len(one.text) for one in request.messages) < self._asked[self._played - 1]:
            self.shortened = True
            return replace(reply, usage=None)  # it is counted as what it is now
        return reply


def _measure_requests(messages: Sequence[Message]) -> Iterator[int]:
    """How many characters each recorded reply was an answer to."""
    size = 0
    for one in messages:
        if type(one) is AssistantMessage:
            yield size
        size += len(one.text)


def _repeat_results(tool: Tool, leg: Leg) -> Tool:
    async def answer(_arguments: Mapping[str, Any], context: ToolContext | None) -> ToolResult:
        _, known = leg.results["" if context is None else context.call_id]
        return RecordedResult(
            known.content,
            is_error=known.is_error,
            details=known.details,
            narration=known.narration,
            kind=known.kind,
            raised_at=known.raised_at,
        )

    return tool.answering(answer)
