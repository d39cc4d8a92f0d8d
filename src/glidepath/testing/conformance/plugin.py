"""What the contracts of all hooks share."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from operator import attrgetter
from typing import Any, ClassVar

from glidepath._wire import encode
from glidepath.agent import Agent, Limits
from glidepath.spi import HOOKS, Plugin
from glidepath.testing import EventRecorder, ScriptedModel, call, say, transcript_errors
from glidepath.testing.conformance.contract import Contract, missing
from glidepath.testing.conformance.transcripts import TASK
from glidepath.tools import tool
from glidepath.values import (
    AssistantMessage,
    CustomMessage,
    HookFailed,
    Message,
    RunResult,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)

HOOK_TIMEOUT = 5.0
_MESSAGES = (AssistantMessage, CustomMessage, SystemMessage, ToolResultMessage, UserMessage)


class HookContract(Contract):
    """For a plugin with the hook of the contract. If it has other hooks, subclass their contracts as well."""

    hook: ClassVar[str]

    def make_plugin(self) -> Plugin:
        """The plugin as a user would create it."""
        raise NotImplementedError(missing(self, "make_plugin"))

    def test_plugin_1_the_hook_is_found(self) -> None:
        """PLUGIN-1: a configuration accepts the plugin, and lists its name under the hook."""
        names = Agent(model=ScriptedModel(), plugins=[self.make_plugin()], unbounded=True).config.plugin_names()
        assert len(getattr(names, self.hook)) == 1, f"no {self.hook} in {names}"

    def test_plugin_2_a_run_gets_a_plugin(self) -> None:
        """PLUGIN-2: `for_run` returns a plugin with the same hooks, each time; `for_child` returns one, or None."""
        plugin = self.make_plugin()
        for given in (plugin.for_run(), plugin.for_run(), plugin.for_child()):
            if given is None:
                continue
            assert isinstance(given, Plugin), f"it gave {given!r:.100}"
            assert [name for name in HOOKS if _has(given, name)] == [name for name in HOOKS if _has(plugin, name)]
        assert plugin.for_run() is not None

    async def test_plugin_3_a_run_with_it_is_sound(self) -> None:
        """PLUGIN-3: a run with it ends, its events are legal, every call has its result, and no hook has failed."""
        recorder = EventRecorder()
        result = await eventful_run([self.make_plugin()], recorder)
        failed = [f"{event.plugin}.{event.hook}: {event.error}" for event in recorder.of(HookFailed)]
        assert not failed
        recorder.assert_legal()
        pending = [waiting.call.id for waiting in result.pending]
        assert not [error for error in transcript_errors(result.messages) if not any(i in error for i in pending)]

    async def test_plugin_4_runs_do_not_mix(self) -> None:
        """PLUGIN-4: twenty runs at once on one configuration end as a single one does."""
        alone = await eventful_run([self.make_plugin()])
        plugin = self.make_plugin()
        results = await asyncio.gather(*[eventful_run([plugin]) for _ in range(20)])
        ends = {(result.state, result.outcome, result.text) for result in results}
        assert ends == {(alone.state, alone.outcome, alone.text)}

    # --- helpers ------------------------------------------------------------------------------------------------

    async def _ask_hook(self, context: object, plugin: Plugin | None = None) -> Any:
        """The hook's answer, asked as a run would ask."""
        answer = getattr(plugin or self.make_plugin().for_run(), self.hook)(context)
        return await asyncio.wait_for(answer, 10 * HOOK_TIMEOUT) if inspect.isawaitable(answer) else answer

    def _contexts(self) -> Sequence[Any]:
        """What the hook is asked about."""
        raise NotImplementedError

    async def _answers(self) -> AsyncIterator[tuple[Any, Any]]:
        """Every context with what the hook answers, each from a fresh plugin."""
        for context in self._contexts():
            yield context, await self._ask_hook(context)

    async def _assert_in_time(self) -> None:
        loop = asyncio.get_running_loop()
        for context in self._contexts():
            began = loop.time()
            await self._ask_hook(context)
            assert loop.time() - began < HOOK_TIMEOUT, f"it took {loop.time() - began:.1f} s"

    async def _assert_no_torn_calls(self) -> None:
        async for _, answer in self._answers():
            assert answer is None or not transcript_errors(answer)

    async def _assert_task_kept(self) -> None:
        async for _, answer in self._answers():
            if answer is not None:
                said = [message.text for message in answer if isinstance(message, UserMessage)]
                assert any(TASK in text for text in said), "the task is missing"

    async def _assert_unchanged(self, *parts: str) -> None:
        """The hook changes none of these parts of its context."""
        for context in self._contexts():
            before = [encode_for_comparison(attrgetter(part)(context)) for part in parts]
            await self._ask_hook(context)
            assert [encode_for_comparison(attrgetter(part)(context)) for part in parts] == before


async def eventful_run(plugins: Sequence[Plugin], recorder: EventRecorder | None = None) -> RunResult:
    """A run with calls, an error, and an answer."""

    @tool
    async def lookup(query: str) -> str:
        """Look something up."""
        if query == "more":
            raise ValueError("there is no more")
        return f"all about {query}"

    turns = [call("lookup", query="figures"), call("lookup", query="more"), say("The figures are 42 and 43.")]
    agent = Agent(
        model=ScriptedModel(turns).forever("The figures are 42 and 43."),
        tools=[lookup],
        plugins=tuple(plugins),
        limits=Limits(max_iterations=12, max_tokens=100_000),
        event_sink=recorder,
    )
    return await agent.run(TASK)


def encode_for_comparison(value: object) -> bytes:
    """A value as it would be kept, to compare."""
    return encode(list(value) if isinstance(value, list | tuple) else value)


def view_problems(answer: object) -> str:
    """What is wrong with a view; empty when it can be used."""
    if answer is None:
        return ""
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        return f"it answered {answer!r:.100}"
    strange = [message for message in answer if not isinstance(message, _MESSAGES)]
    if strange:
        return f"no messages: {strange!r:.100}"
    return "" if answer else "the view is empty"


def _has(plugin: Plugin, hook: str) -> bool:
    return getattr(type(plugin), hook) is not getattr(Plugin, hook) or hook in vars(plugin)


def as_messages(answer: object) -> list[Message | str]:
    """What a steering or follow-up hook returned, as a list."""
    if answer is None:
        return []
    return [answer] if isinstance(answer, str | UserMessage | CustomMessage) else list(answer)  # type: ignore[call-overload]
