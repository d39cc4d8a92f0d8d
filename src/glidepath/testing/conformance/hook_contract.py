"""The contracts of the hooks that guard and change things: around tool calls, at the gate, on the context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from glidepath import _wire
from glidepath.spi import (
    AfterDecision,
    Allow,
    Ask,
    Block,
    Gate,
    GateContext,
    OverflowContext,
    Replace,
    ToolCallContext,
    ToolResultContext,
    TransformContext,
)
from glidepath.testing.conformance.plugin import HookContract, encode_for_comparison, view_problems
from glidepath.testing.conformance.transcripts import TASK, long_talk, make_transcript_of_every_kind, sizes_of
from glidepath.values import ImageBlock, Message, TextBlock, ToolCall, ToolResultMessage, UserMessage

WHO: Mapping[str, Any] = {"run_id": "run_kit", "agent_name": "agent", "conversation_id": "talk"}


def call_context(name: str = "lookup", iteration: int = 0, **more: Any) -> ToolCallContext:
    """A call about to run; `arguments` and all other fields can be set."""
    arguments = more.pop("arguments", {"query": "figures", "deep": {"list": [1, 2]}})
    call = ToolCall("c1", name, dict(arguments))
    fields = {"tool": None, "messages": make_transcript_of_every_kind(), **WHO, **more}
    return ToolCallContext(call=call, arguments=arguments, iteration=iteration, **fields)


class BeforeToolCallContract(HookContract):
    """Subclass this and provide `make_plugin`; override `refused` if there are calls that it must not let run."""

    hook: ClassVar[str] = "before_tool_call"

    def refused(self) -> ToolCallContext | None:
        """A call that must be blocked or asked about, made with `call_context`; None if it refuses nothing."""
        return None

    def _contexts(self) -> list[ToolCallContext]:
        refused = self.refused()
        return [
            call_context(),
            call_context(arguments={}),
            call_context("unheard_of", 7, approved=True),
            call_context(replaceable=False),
            *([] if refused is None else [refused]),
        ]

    async def test_before_1_it_answers_with_a_decision(self) -> None:
        """BEFORE-1: it answers None, `Allow`, `Replace`, `Block` or `Ask`, about every call."""
        async for _, answer in self._answers():
            assert answer is None or isinstance(answer, Allow | Replace | Block | Ask), f"it answered {answer!r:.100}"

    async def test_before_2_a_refusal_explains_itself(self) -> None:
        """BEFORE-2: a block says why, in words for the model; a question to a person is a text."""
        async for _, answer in self._answers():
            if isinstance(answer, Block):
                assert isinstance(answer.reason, str)
                assert answer.reason.strip(), "say why"
            if isinstance(answer, Ask):
                assert isinstance(answer.reason, str)

    async def test_before_3_it_only_looks(self) -> None:
        """BEFORE-3: the arguments, the call and the transcript are not changed in place."""
        await self._assert_unchanged("arguments", "call.arguments", "messages")

    async def test_before_4_a_replacement_is_final(self) -> None:
        """BEFORE-4: a replacement is plain data, and the hook does not replace it again when asked about it."""
        async for context, answer in self._answers():
            if isinstance(answer, Replace):
                assert isinstance(answer.arguments, Mapping)
                encode_for_comparison(answer.arguments)
                assert context.replaceable, "it may not replace again"
                final = _wire.replace(context, arguments=dict(answer.arguments), replaceable=False)
                assert not isinstance(await self._ask_hook(final), Replace)

    async def test_before_5_what_it_refuses_does_not_run(self) -> None:
        """BEFORE-5: the call that it must refuse is blocked or asked about, in any turn, the first time and again."""
        refused = self.refused()
        if refused is None:
            return
        for iteration in (refused.iteration, 3, 50):
            for replaceable in (True, False):
                context = _wire.replace(refused, iteration=iteration, replaceable=replaceable)
                answer = await self._ask_hook(context)
                assert isinstance(answer, Block | Ask), f"turn {iteration}: it answered {answer!r:.100}"

    async def test_before_6_it_answers_in_time(self) -> None:
        """BEFORE-6: it answers within five seconds, the time a run waits for a hook."""
        await self._assert_in_time()


class AfterToolCallContract(HookContract):
    """Subclass this and provide `make_plugin`; set `hidden` to a text that it must keep from the model."""

    hook: ClassVar[str] = "after_tool_call"
    hidden: str = ""

    def _contexts(self) -> list[ToolResultContext]:
        hidden = self.hidden or "nothing"
        contents: tuple[tuple[Any, bool], ...] = (
            (f"before {hidden} after", False),
            (f"it failed: {hidden}", True),
            ("", False),
            ("word " * 200_000, False),
            ((TextBlock(f"see {hidden}"), ImageBlock("image/png", data=b"\x89PNG")), False),
        )
        call = ToolCall("c1", "lookup", {"query": "figures"})
        return [
            ToolResultContext(
                call=call,
                arguments={"query": "figures", "deep": {"list": [1]}},
                tool=None,
                iteration=0,
                result=ToolResultMessage("c1", "lookup", content, is_error=is_error, details={"raw": [1, 2]}),
                **WHO,
            )
            for content, is_error in contents
        ]

    async def test_after_1_it_answers_with_a_decision(self) -> None:
        """AFTER-1: it answers None or an `AfterDecision`: a text, and True, False or None for the rest."""
        for context in self._contexts()[:2]:
            answer = await self._ask_hook(context)
            assert answer is None or isinstance(answer, AfterDecision), f"it answered {answer!r:.100}"
            if answer is not None:
                assert answer.content is None or isinstance(answer.content, str)
                assert {type(answer.is_error), type(answer.terminate)} <= {bool, type(None)}

    async def test_after_2_it_only_looks(self) -> None:
        """AFTER-2: the result, its details and the arguments are not changed in place."""
        await self._assert_unchanged("result", "arguments", "call.arguments")

    async def test_after_3_any_result_will_do(self) -> None:
        """AFTER-3: an error, nothing, a megabyte and a picture are results like any other."""
        for context in self._contexts()[2:]:
            answer = await self._ask_hook(context)
            assert answer is None or isinstance(answer, AfterDecision), f"it answered {answer!r:.100}"

    async def test_after_4_what_it_hides_is_hidden(self) -> None:
        """AFTER-4: the model never sees what it must hide, not even in errors and next to pictures."""
        async for context, answer in self._answers():
            changed = isinstance(answer, AfterDecision) and answer.content is not None
            seen = answer.content if changed else context.result.text
            assert not self.hidden or self.hidden not in seen, f"the model sees {seen[:100]!r}"

    async def test_after_5_it_answers_in_time(self) -> None:
        """AFTER-5: it answers within five seconds, the time a run waits for a hook."""
        await self._assert_in_time()


class ContextTransformContract(HookContract):
    """Subclass this and provide `make_plugin`."""

    hook: ClassVar[str] = "context_transform"

    def _contexts(self) -> list[Any]:
        return [
            TransformContext(messages=messages, system_prompt="Be brief.", model_id="m", iteration=number, **WHO)
            for number, messages in enumerate(_make_transcripts())
        ]

    async def test_transform_1_it_answers_with_a_view(self) -> None:
        """TRANSFORM-1: it answers None, or at least one message."""
        for context in self._contexts():
            assert not view_problems(await self._ask_hook(context))

    async def test_transform_2_calls_and_results_stay_together(self) -> None:
        """TRANSFORM-2: a call is never separated from its result."""
        await self._assert_no_torn_calls()

    async def test_transform_3_the_task_stays(self) -> None:
        """TRANSFORM-3: the task is in every view."""
        await self._assert_task_kept()

    async def test_transform_4_it_only_looks(self) -> None:
        """TRANSFORM-4: the transcript is not changed: a view is never kept."""
        await self._assert_unchanged("messages")

    async def test_transform_5_it_keeps_nothing(self) -> None:
        """TRANSFORM-5: the same transcript has the same view, however often it is asked: views do not accumulate."""
        plugin = self.make_plugin().for_run()
        for context in self._contexts():
            views = [encode_for_comparison(await self._ask_hook(context, plugin)) for _ in range(3)]
            assert views.count(views[0]) == 3

    async def test_transform_6_it_answers_in_time(self) -> None:
        """TRANSFORM-6: it answers within five seconds, the time a run waits for a hook."""
        await self._assert_in_time()


class ContextOverflowRecoveryContract(HookContract):
    """Subclass this and provide `make_plugin`."""

    hook: ClassVar[str] = "context_overflow_recovery"

    def _contexts(self) -> list[Any]:
        return [
            OverflowContext(messages=messages, estimated_tokens=sum(sizes_of(messages)), iteration=number, **WHO)
            for number, messages in enumerate(_make_transcripts())
        ]

    async def test_over_1_it_answers_with_a_view(self) -> None:
        """OVER-1: it answers None, or at least one message, even when nothing can be left out."""
        for context in self._contexts():
            assert not view_problems(await self._ask_hook(context))

    async def test_over_2_the_view_is_smaller(self) -> None:
        """OVER-2: the view has fewer tokens than what did not fit."""
        async for context, answer in self._answers():
            if answer is not None:
                assert sum(sizes_of(answer)) < context.estimated_tokens

    async def test_over_3_calls_and_results_stay_together(self) -> None:
        """OVER-3: a call is never separated from its result."""
        await self._assert_no_torn_calls()

    async def test_over_4_the_task_stays(self) -> None:
        """OVER-4: the task is in every view."""
        await self._assert_task_kept()

    async def test_over_5_it_only_looks(self) -> None:
        """OVER-5: the transcript is not changed."""
        await self._assert_unchanged("messages")

    async def test_over_6_it_answers_in_time(self) -> None:
        """OVER-6: it answers within five seconds, the time a run waits for a hook."""
        await self._assert_in_time()


class ToolGateContract(HookContract):
    """Subclass this and provide `make_plugin`; set `denied` to tools that it must never let through."""

    hook: ClassVar[str] = "tool_gate"
    denied: frozenset[str] = frozenset()

    def _contexts(self) -> list[GateContext]:
        many = frozenset(f"tool_{number}" for number in range(500))
        sets = (frozenset({"lookup", "finish"}) | self.denied, frozenset[str](), frozenset({"\U0001f6eb"}), many)
        return [
            GateContext(tools=tools, messages=make_transcript_of_every_kind(), iteration=iteration, **WHO)
            for tools in sets
            for iteration in (0, 1, 9)
        ]

    async def test_gate_1_it_answers_with_names(self) -> None:
        """GATE-1: it answers None, a set of names or a `Gate`, for any set of tools, even an empty one."""
        async for _, answer in self._answers():
            names = answer.allowed if isinstance(answer, Gate) else answer
            assert names is None or isinstance(names, set | frozenset), f"it answered {answer!r:.100}"
            assert all(isinstance(name, str) for name in names or ())

    async def test_gate_2_a_denial_explains_itself(self) -> None:
        """GATE-2: a `Gate` that takes tools away says why, in words for the model."""
        async for context, answer in self._answers():
            if isinstance(answer, Gate) and context.tools - answer.allowed:
                assert answer.denial_reason.strip(), "say why"

    async def test_gate_3_what_it_denies_stays_denied(self) -> None:
        """GATE-3: the tools that it must deny are never allowed, and its gate is a required one."""
        for context in self._contexts() if self.denied else ():
            answer = await self._ask_hook(context)
            assert answer is not None, f"no opinion in turn {context.iteration}"
            allowed = answer.allowed if isinstance(answer, Gate) else answer
            assert not self.denied & set(allowed), f"turn {context.iteration}"
            assert not isinstance(answer, Gate) or answer.required

    async def test_gate_4_the_same_turn_has_the_same_answer(self) -> None:
        """GATE-4: it gives the same answer about the same turn, however often it is asked."""
        plugin = self.make_plugin().for_run()
        for context in self._contexts():
            answers = [await self._ask_hook(context, plugin) for _ in range(3)]
            assert answers.count(answers[0]) == 3

    async def test_gate_5_it_only_looks(self) -> None:
        """GATE-5: the transcript is not changed."""
        await self._assert_unchanged("messages")

    async def test_gate_6_it_answers_in_time(self) -> None:
        """GATE-6: it answers within five seconds, the time a run waits for a hook."""
        await self._assert_in_time()


def _make_transcripts() -> list[list[Message]]:
    return [make_transcript_of_every_kind(), long_talk(40), [UserMessage(TASK)]]
