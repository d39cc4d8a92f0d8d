"""A recorded run, repeated under other limits: the same replies and results, and the real kernel.

`what_if` reckons where a limit would have stopped a run, from figures alone. Here the loop itself decides, so that
reserves, notices and the landing come exactly where they would have come. The answer of a landing is not in any
recording; it is assumed to be the next recorded reply if that is an answer, else the best text so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Agent, Limits, LoopConfig, change_speakers
from glidepath.agent.recording import Leg, legs_of
from glidepath.agent.replay import Tape, repeat_prompt
from glidepath.sessions import read_journal
from glidepath.spi import mark_unreal
from glidepath.testing.model import RequestMeasure
from glidepath.testing.turns import fragments, pieces
from glidepath.tools import RecordedResult, ToolResult, fill_cut
from glidepath.values import (
    AssistantMessage,
    ConfigurationError,
    LoopOutcome,
    RunResult,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UserMessage,
)

if TYPE_CHECKING:
    from glidepath.spi import ModelRequest, SessionStore
    from glidepath.tools import Tool, ToolContext
    from glidepath.values import Delta

NOBODY_KNOWS = "(what the model would have answered here is not recorded)"
_CHARACTERS = 4  # of a token, where nobody has counted
_ANSWERED = (LoopOutcome.DONE, LoopOutcome.FAILED)


class RecordedRun:
    """One run of a session, ready to be repeated as often as you like."""

    def __init__(self, agent: Agent, leg: Leg, recorded: RunResult) -> None:
        self._agent, self._leg = agent, leg
        self._attempts: Sequence[AssistantMessage | None] = leg.attempts
        self._sizes: tuple[int, ...] = ()
        """How many characters each recorded reply was an answer to."""
        self.result = recorded
        """How it ended when it was recorded."""

    @classmethod
    async def read(cls, agent: Agent, store: SessionStore, session_id: str) -> RecordedRun:
        """Read it; raises `ConfigurationError` for a run whose recording does not decide what would happen."""
        journal = await read_journal(store, session_id)
        legs = legs_of(journal.commits)
        result = journal.folded.result
        if len(legs) == 1 and legs[0].until:
            raise ConfigurationError(legs[0].until)
        if len(legs) != 1 or legs[0].began is None or result is None:
            raise ConfigurationError("it was made in several parts")
        if result.outcome not in _ANSWERED:
            raise ConfigurationError("it was landed or stopped itself")
        if legs[0].kin or result.children:
            raise ConfigurationError("it started other agents")
        if agent.config.tool_sources or any(tool.makes_calls for tool in agent.config.tools):
            raise ConfigurationError("its tools come from servers, or it writes programs")
        run = cls(agent, legs[0], result)
        await run._repeat_as_it_was()
        return run

    async def _repeat_as_it_was(self) -> None:
        """Repeat it under its own limits, and take the sizes of its requests: what cannot be repeated is refused."""
        # An estimate in place of a report depends on the limits, so it is made again; if that is what it was.
        unreported = [_leave_out_estimate(one) for one in self._leg.attempts]
        for attempts in (unreported, self._leg.attempts):
            self._attempts = attempts
            again, tape = await self._fly(self._agent.config.limits)
            if _figures_of(again) == _figures_of(self.result):
                self._sizes = tuple(tape.sizes)
                return
            if attempts == self._leg.attempts:
                break
        raise ConfigurationError("repeated with this agent and its limits, it ends in another way")

    async def fly(self, limits: Limits) -> tuple[RunResult[Any], bool]:
        """The same run under other limits, and whether a request had to change to fit them. Nothing outside is called.

        What a model says to a request that was changed, nobody knows.
        """
        result, tape = await self._fly(limits)
        return result, tape.changed

    async def _fly(self, limits: Limits) -> tuple[RunResult[Any], _LandingTape]:
        leg = self._leg
        began: Any = leg.began
        config = self._agent.config
        has_tools = bool(config.tools or config.handoffs)
        tape = _LandingTape(config.model, self._attempts, self._sizes, has_tools=has_tools)

        def repeat(speaker: LoopConfig) -> LoopConfig:
            return replace(
                speaker,
                model=tape,
                fallback_models=(),
                tools=tuple([_repeat_results(tool, leg) for tool in speaker.tools]),
                system_prompt=repeat_prompt(speaker, leg),
                store=None,
                event_sink=None,
                deps_type=None,
                deps_factory=None,
            )

        flier = Agent(replace(change_speakers(config, repeat), limits=limits))
        with mark_unreal():
            return await flier.run(leg.told[began.first_new :], parent=None), tape


def _leave_out_estimate(reply: AssistantMessage | None) -> AssistantMessage | None:
    """The reply as the model sent it when it reported no usage."""
    estimated = reply is not None and reply.usage is not None and reply.usage.estimated
    return replace(reply, usage=None) if reply is not None and estimated else reply


def _figures_of(result: RunResult[Any]) -> tuple[object, ...]:
    return result.outcome, result.text, result.usage, result.cost


class _LandingTape(Tape):
    """Repeats the recorded replies; asked for an answer without tools, it gives the one that is nearest.

    `recorded` are the sizes of the requests that the replies were answers to; empty where they are to be found out.
    """

    def __init__(
        self, model: Any, attempts: Sequence[AssistantMessage | None], recorded: Sequence[int], *, has_tools: bool
    ) -> None:
        super().__init__(model, list(attempts))
        self._measure = RequestMeasure()
        self._replies = [one for one in attempts if one is not None]
        self._recorded = recorded
        self._has_tools = has_tools
        self.sizes: list[int] = []
        """The sizes of the requests that recorded replies have answered."""
        self.changed = False
        """True once a request was not the one that was recorded."""
        self._text = ""
        if getattr(model, "count_tokens", None) is not None:
            self.count_tokens = self._count_tokens

    def next_reply(self, request: ModelRequest) -> AssistantMessage | None:
        """The recorded reply, or that of a landing."""
        is_over = len(self.sizes) == len(self._replies)
        if (self._has_tools and not request.tools) or request.tool_choice == "none":
            return self._land(request, None if is_over else self._find_nearest())
        if is_over:  # the last reply was cut, and the model is asked to continue it
            self.changed = True
            return self._answer(request, self._find_rest(request) or self._text or NOBODY_KNOWS)
        reply = super().next_reply(request)
        if reply is None:
            return None
        size = self._measure.count_characters(request)
        self.sizes.append(size)
        self._text = reply.text if reply.text.strip() else self._text
        if not self._recorded or size == self._recorded[len(self.sizes) - 1]:
            return reply
        self.changed = True
        return replace(reply, usage=_scale(reply.usage, self._recorded[len(self.sizes) - 1], size))

    def cut(self, delta: Delta) -> Iterable[Delta]:
        """A part of a reply in small pieces, as models send it: how far a budget reaches depends on them."""
        if type(delta) is TextDelta or type(delta) is ThinkingDelta:
            return [type(delta)(piece) for piece in pieces(delta.text)]
        if type(delta) is not ToolCallDelta:
            return (delta,)
        first, *rest = fragments(delta.arguments)
        return [replace(delta, arguments=first), *[ToolCallDelta(delta.index, arguments=one) for one in rest]]

    def _land(self, request: ModelRequest, nearest: AssistantMessage | None) -> AssistantMessage:
        """The answer that is assumed when there is nothing but an answer to give."""
        if nearest is not None and nearest.text.strip() and not nearest.tool_calls:
            return self._answer(request, nearest.text, nearest.usage)
        return self._answer(request, self._text or NOBODY_KNOWS)

    def _answer(self, request: ModelRequest, text: str, usage: Usage | None = None) -> AssistantMessage:
        """A reply with this text; `usage` is what it took when it was the answer to another request."""
        given = self._count_tokens(request)
        if given is None:
            return AssistantMessage(blocks=(TextBlock(text),))
        written = len(text) // _CHARACTERS if usage is None else usage.output
        return AssistantMessage(blocks=(TextBlock(text),), usage=Usage(input=given, output=max(1, written)))

    def _find_rest(self, request: ModelRequest) -> str:
        """What is missing of the last reply, of which the end of the request has the beginning."""
        said = ""
        for message in reversed(request.messages):
            if type(message) is AssistantMessage and self._text.startswith(message.text + said):
                said = message.text + said
            elif type(message) is not UserMessage or not message.internal:
                break
        return self._text[len(said) :]

    def _find_nearest(self) -> AssistantMessage | None:
        """The reply that comes next; after the last one, that one."""
        replies = self._replies
        return replies[min(len(self.sizes), len(replies) - 1)] if replies else None

    def _count_tokens(self, request: ModelRequest) -> int | None:
        """The tokens of a request as the model would count them, as far as the nearest reply tells; else None."""
        nearest = self._find_nearest()
        usage = None if nearest is None else nearest.usage
        if usage is None or usage.estimated:
            return None
        if not self._recorded:
            return usage.input
        recorded = self._recorded[min(len(self.sizes), len(self._recorded) - 1)]
        return _scale_tokens(usage.input, recorded, self._measure.count_characters(request))


def _scale(usage: Usage | None, recorded: int, size: int) -> Usage | None:
    """What a reply to a request of another size uses; None where the recorded figures are none of the model's."""
    if usage is None or usage.estimated:
        return None
    given = _scale_tokens(usage.input, recorded, size)
    whole = max(1, usage.input)
    read, write = usage.cache_read * given // whole, usage.cache_write * given // whole
    return replace(usage, input=given, cache_read=read, cache_write=write)


def _scale_tokens(tokens: int, recorded: int, size: int) -> int:
    """The tokens of this many characters, by the simplest rate that gives the recorded tokens for those recorded.

    A model that counts by one rate is predicted to the token, however it rounds down.
    """
    for parts in range(1, recorded + 1):
        share = -(-tokens * parts // recorded)
        if share * recorded < (tokens + 1) * parts:
            return max(1, size * share // parts)
    return max(1, tokens)


def _repeat_results(tool: Tool, leg: Leg) -> Tool:
    async def answer(_arguments: Mapping[str, Any], context: ToolContext | None) -> ToolResult:
        _, known = leg.results["" if context is None else context.call_id]
        # It may be cut again, at another place: then it must be as long as what the tool has returned.
        content = fill_cut(known.content) if isinstance(known.content, str) else known.content
        return RecordedResult(
            content,
            is_error=known.is_error,
            details=known.details,
            narration=known.narration,
            kind=known.kind,
            raised_at=known.raised_at,
        )

    return tool.answering(answer)
