"""The agent: a frozen configuration that can run any number of tasks at once."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Unpack, overload
from weakref import WeakKeyDictionary

from glidepath._wire import replace
from glidepath.agent.assemble import assemble, warn_about_ineffective
from glidepath.agent.config import FIELDS, LoopConfig, make_config
from glidepath.agent.limits import Limits
from glidepath.agent.nested_runs import DELEGATES, call_of, delegate_of, place_of, run_inside, stream_inside
from glidepath.agent.per_run import NOTHING, as_messages, check_keywords
from glidepath.agent.prepare import RunRequest
from glidepath.agent.run_lifecycle import partial_line
from glidepath.agent.run_options import EveryRun, ResumeKeywords, RunKeywords, StreamKeywords, with_options_in_signature
from glidepath.agent.run_starter import RunStarter
from glidepath.kernel import write_pause
from glidepath.plugins import HookTable
from glidepath.run import INHERIT, CancelToken, Plan, RunStream, current_scope
from glidepath.tools import NeedsDecisions, Tool, ToolContext, tool
from glidepath.values import (
    ConfigurationError,
    DepsT,
    FileBlock,
    ImageBlock,
    LoopOutcome,
    Message,
    OutputT,
    RunResult,
    TextBlock,
)

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from glidepath.agent.keywords import AgentChanges, AgentKeywords, AgentSettings
    from glidepath.agent.limits import Budget
    from glidepath.agent.resuming import Target
    from glidepath.agent.sync_api import SyncStream
    from glidepath.sessions import Fork

Part: TypeAlias = str | PathLike[str] | TextBlock | ImageBlock | FileBlock
"""Of a prompt: a text, the path of a picture or file, or a block."""
Prompt: TypeAlias = str | Message | Sequence[Message | Part]
"""A text, a message, messages, or the parts of one message; not messages and parts together."""


_SHOWN = (
    *("as_tool", "config", "fork", "map", "map_sync", "replace", "resume", "resume_sync", "rewind"),
    *("run", "run_sync", "stream", "stream_sync"),
)
"""What `dir` shows of an agent; the rest is for the runtime."""


class Agent(RunStarter, Generic[OutputT, DepsT]):
    """An agent: `Agent(model=..., tools=[...], limits=Limits(...))`, or `Agent(config)`.

    The keywords are the fields of `LoopConfig`. An agent is immutable and keeps nothing between runs: use one for as
    many runs at a time as you like. For type checkers it is an `Agent[output_type, deps_type]`.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # `Agent[Invoice]` leaves the second type out: `typing` takes that from 3.13 on
        __class_getitem__ = classmethod(GenericAlias)

    @overload
    def __init__(self: Agent[Any, Any], config: LoopConfig, /) -> None: ...
    @overload
    def __init__(self: Agent[None, Any], model: str, /, **fields: Unpack[AgentSettings]) -> None: ...
    @overload
    def __init__(
        self: Agent[OutputT, Any], model: str, /, *, output_type: TypeForm[OutputT], **fields: Unpack[AgentSettings]
    ) -> None: ...
    @overload
    def __init__(self: Agent[None, Any], /, **fields: Unpack[AgentKeywords]) -> None: ...
    @overload
    def __init__(
        self: Agent[OutputT, Any], /, *, output_type: TypeForm[OutputT], **fields: Unpack[AgentKeywords]
    ) -> None: ...
    @overload
    def __init__(self: Agent[None, DepsT], /, *, deps_type: type[DepsT], **fields: Unpack[AgentKeywords]) -> None: ...
    @overload
    def __init__(
        self, /, *, output_type: TypeForm[OutputT], deps_type: type[DepsT], **fields: Unpack[AgentKeywords]
    ) -> None: ...
    def __init__(self, config: LoopConfig | str | None = None, /, **fields: object) -> None:
        if isinstance(config, str):
            if "model" in fields:
                raise ConfigurationError(f"the model is named twice: {config!r:.80} and model={fields['model']!r:.80}")
            config, fields = None, {"model": config, **fields}
        if config is not None and not isinstance(config, LoopConfig):
            raise ConfigurationError(
                f"Agent takes a model's name, a LoopConfig, or keywords such as model=..., not {config!r:.100}"
            )
        if config is not None and fields:
            raise ConfigurationError("pass a LoopConfig or keywords, not both")
        self.config = make_config(**fields) if config is None else config
        self._plan = assemble(self.config)
        warn_about_ineffective(self.config)
        self._heirs: WeakKeyDictionary[HookTable, Plan] = WeakKeyDictionary()
        self._told_of_store = False
        self._prepare_sources()

    def replace(self, **changes: Unpack[AgentChanges]) -> Agent[OutputT, DepsT]:
        """The same agent with other settings: `agent.replace(limits=Limits(max_cost="1"))`. This one stays."""
        if "output_type" in changes:
            raise ConfigurationError("replace cannot change output_type: make another Agent for another result")
        for name in changes:
            if name not in FIELDS:
                raise LoopConfig.no_such_setting(name)
        return Agent(replace(self.config, **changes))

    # --- running ----------------------------------------------------------------------------------------------

    @with_options_in_signature(RunKeywords, parent=INHERIT)
    async def run(self, prompt: Prompt, **options: Unpack[RunKeywords[DepsT]]) -> RunResult[OutputT]:
        """Run to the end and return how it ended; raises only `ConfigurationError`, before the first call.

        Inside a tool or a guarding hook of another run this is a child of that run, within its limits; `parent=None`
        makes a root. When the caller's own task is cancelled, the run lands and then the cancellation continues.

        For this run alone: `deps` for its tools and hooks (`ToolContext.deps`), never written anywhere; `limits`,
        `system_prompt`, `model` and `tool_choice` instead of the agent's; `extras` on top of the agent's (None takes
        one out); `metadata` and `user` for hooks, events and providers that have a field for them. Children have its
        `deps`, `metadata` and `user`.
        """
        asked = self._request(prompt, options, RunKeywords.__optional_keys__) if options else RunRequest(prompt)
        agent = self if asked.given is NOTHING else self._apply_run_options(asked.given)
        parent = options.get("parent", INHERIT)
        if isinstance(parent, ToolContext):
            if asked.session is not None or asked.cancel is not None:
                raise ConfigurationError("a child run has its parent's cancel and its own session: leave both out")
            if asked.given is NOTHING:
                return await parent.spawn(self, prompt)
            asked.prompt = as_messages(prompt, self.config)
            return await run_inside(agent, call_of(parent), asked)
        asked.budget = None if parent is INHERIT else parent
        place = current_scope() if parent is INHERIT else place_of(parent)
        if place is None:
            return await agent._run(asked)  # noqa: SLF001 - itself, or nearly
        asked.session = self._find_child_session(place, asked.session, asked.cancel)
        asked.prompt = as_messages(prompt, self.config)
        return await run_inside(agent, place, asked)

    @with_options_in_signature(ResumeKeywords, accept_repair=False)
    async def resume(self, target: Target, **options: Unpack[ResumeKeywords[DepsT]]) -> RunResult[OutputT]:
        """Continue a run that was paused, cancelled, limited or failed; a DONE result is returned unchanged.

        `target` is its `RunResult`, or its `Session`. `decisions` decide the calls that wait for a
        person; those without one wait on, and the run pauses again. The meters continue where they stood; `limits`
        replaces the limits. A run that spent from a `Budget` needs one again as `parent`, and one that was given `deps`
        or a model object needs them again: they are never stored. The rest is what the run was started with, unless it
        is given here. A session whose journal was repaired continues only with `accept_repair`: what was lost may have
        had effects.
        """
        asked = self._request((), options, ResumeKeywords.__optional_keys__, again=True)
        asked.budget = options.get("parent")
        repair = options.get("accept_repair", False)
        return await self._resume(asked, target, options.get("decisions"), accept_repair=repair)

    @with_options_in_signature(RunKeywords, parent=INHERIT)
    def run_sync(self, prompt: Prompt, **keywords: Unpack[RunKeywords[DepsT]]) -> RunResult[OutputT]:
        """The same for code without an event loop; inside a running loop it uses a thread and its own loop.

        It blocks that loop: in an `async def`, await `run()`. Ctrl-C lands the run and raises `RunInterrupted`, a
        KeyboardInterrupt that has the result.
        """
        from glidepath.agent.sync_api import can_be_interrupted, run_without_loop

        token = keywords.get("cancel")
        if token is None and "parent" not in keywords:  # a child has its parent's
            token = keywords["cancel"] = CancelToken() if can_be_interrupted() else None
        return run_without_loop(partial(self.run, prompt, **keywords), token)

    @with_options_in_signature(RunKeywords, parent=INHERIT)
    def stream_sync(self, prompt: Prompt, **keywords: Unpack[RunKeywords[DepsT]]) -> SyncStream[OutputT]:
        """`stream` for code without an event loop: `with agent.stream_sync("...") as s: for event in s: ...`."""
        from glidepath.agent.sync_api import SyncStream

        check_keywords(keywords, StreamKeywords.__optional_keys__)
        token = keywords.get("cancel") or CancelToken()
        keywords["cancel"] = token

        return SyncStream(partial(self.stream, prompt, **keywords), token, self._plan.output)

    @with_options_in_signature(ResumeKeywords, accept_repair=False)
    def resume_sync(self, target: Target, **keywords: Unpack[ResumeKeywords[DepsT]]) -> RunResult[OutputT]:
        """`resume` for code without an event loop, as `run_sync` is `run`."""
        from glidepath.agent.sync_api import run_without_loop

        return run_without_loop(partial(self.resume, target, **keywords))

    @with_options_in_signature(StreamKeywords, parent=INHERIT, accept_repair=False)
    def stream(self, prompt: Prompt | None = None, **options: Unpack[StreamKeywords[DepsT]]) -> RunStream[OutputT]:
        """The same run with its events: `async with agent.stream(...) as stream: async for event in stream: ...`.

        All is as with `run()`. `resume=` instead of a prompt, with `decisions`, is `resume()` with its events.
        """
        resume, decisions, parent = options.get("resume"), options.get("decisions"), options.get("parent", INHERIT)
        asked = self._request((), options, StreamKeywords.__optional_keys__, again=resume is not None)
        above: Any = None if parent is INHERIT else parent
        asked.budget = above
        if resume is None:
            if decisions is not None:
                raise ConfigurationError("decisions need resume=...: a new run has no pending calls")
            asked.prompt = as_messages(prompt, self.config)
            place, agent = (
                current_scope() if parent is INHERIT else place_of(parent),
                self._apply_run_options(asked.given),
            )
            if place is None:
                return RunStream(lambda stream: agent._run(asked.with_stream(stream)), self._plan.output)  # noqa: SLF001
            asked.session = self._find_child_session(place, asked.session, asked.cancel)
            asked.budget = None if isinstance(parent, ToolContext) else asked.budget  # a context only says where
            return RunStream(partial(stream_inside, agent, place, asked), self._plan.output)
        if prompt is not None or asked.session is not None:
            raise ConfigurationError("stream(resume=...) takes no prompt and no session: it continues the run it names")
        if self.config.store is None:  # raise here, not when the first event is asked for
            from glidepath.agent.resuming import check_decisions, find

            found = find(resume)
            check_decisions(decisions, None if isinstance(found, RunResult) else found[0])
        repair = options.get("accept_repair", False)
        fly = partial(self._resume, target=resume, decisions=decisions, accept_repair=repair)
        return RunStream(lambda stream: fly(asked.with_stream(stream)), self._plan.output)

    def as_tool(self, name: str, description: str, limits: Limits | None = None) -> Tool:
        """A tool that hands its `task` to this agent, as a child of the run that calls it.

        When the child waits for a person, so does that run: its `pending` has the call, and `resume` continues both.
        """

        async def delegate(task: str, context: ToolContext) -> str:
            result = await context.spawn(self, task, limits)
            if result.outcome is LoopOutcome.DONE:
                return result.text
            if result.outcome is LoopOutcome.PAUSED:
                raise NeedsDecisions(write_pause(result.pending, self.config.texts), result, self.config.agent_name)
            return f"[{partial_line(result, self.config.texts)}]\n{result.text}"

        DELEGATES[delegate] = self, limits
        made = tool(delegate, name=name, description=description, idempotent=True)  # its journal knows what was done
        return made.overlapping().asking_back()

    def map(
        self,
        items: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        budget: Budget | Limits | None = None,
        at_once: int = 8,
        key: str | Callable[[Any], str] | None = None,
        progress: bool | None = None,
        **options: Unpack[EveryRun[DepsT]],
    ) -> AsyncIterator[RunResult[OutputT]]:
        """A run for each item, `at_once` of them at a time: `async for result in agent.map(prompts): ...`.

        Results come in the order of the items, each as soon as it and all before it are there. `budget` bounds all of
        them together. With a `key` and a store the same call after a crash continues where it stopped and repeats
        nothing that is done: `key` is a name for all, or a function that names each item. An item that was another one,
        or an agent that was, is a `ConfigurationError`. Items are read as there is room for them, so they may be
        endless; when the budget is used up, no more are read of an iterable without a length. One that fails raises
        `ItemsError` after the last result. At a terminal, one line shows how far it is; `progress` says otherwise.
        """
        from glidepath.agent.mapping import RunMap

        given = dict(options)
        check_keywords(given, EveryRun.__optional_keys__)
        return RunMap(self, items, given, budget=budget, at_once=at_once, key=key, progress=progress).fly()

    def map_sync(
        self,
        items: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        budget: Budget | Limits | None = None,
        at_once: int = 8,
        key: str | Callable[[Any], str] | None = None,
        progress: bool | None = None,
        **options: Unpack[EveryRun[DepsT]],
    ) -> list[RunResult[OutputT]]:
        """The results of `map` as a list, for code without an event loop."""
        from glidepath.agent.sync_api import run_without_loop

        async def collect() -> list[RunResult[OutputT]]:
            results = self.map(items, budget=budget, at_once=at_once, key=key, progress=progress, **options)
            return [one async for one in results]

        return run_without_loop(collect)

    # --- the sessions in its store ------------------------------------------------------------------------------

    async def fork(self, target: Target, *, at: int | None = None, name: str | None = None) -> Fork:
        """A new session from this one as it was after turn `at`, the last one by default; this one does not change.

        Continue with `run(..., session=fork.session_id)` or `resume(fork.session_id)`. `fork.effects` lists what the
        original did after that turn, and the model is told. Raises `ConfigurationError` for a turn that is not there.
        """
        from glidepath.agent.durable import session_of
        from glidepath.sessions import fork

        return await fork(self._require_store("fork"), session_of(target), at=at, name=name, **self._make_fork_views())

    async def rewind(self, target: Target, *, at: int) -> Fork:
        """Rewind a session to turn `at`; its old state is kept as the session `fork.origin`."""
        from glidepath.agent.durable import session_of
        from glidepath.sessions import rewind

        return await rewind(self._require_store("rewind"), session_of(target), at=at, **self._make_fork_views())

    def _require_store(self, what: str) -> Any:
        if self.config.store is None:
            raise ConfigurationError(f"{what} needs the store that keeps the session: pass Agent(store=...)")
        return self.config.store

    def _make_fork_views(self) -> dict[str, Any]:
        """How a fork speaks; calls of its tools that only read do not count as effects."""
        tools = list(_iterate_all_tools(self, []))
        acting = {one.name for one in tools if not one.read_only}
        return {"texts": self.config.texts, "harmless": frozenset(one.name for one in tools) - acting}

    if not TYPE_CHECKING:  # a type checker knows better

        def __getattr__(self, name: str) -> None:
            from glidepath.values import OF_AGENTS, make_attribute_error

            raise make_attribute_error(Agent, name, OF_AGENTS, ("run", "run_sync", "stream", "stream_sync", "resume"))

    def __dir__(self) -> list[str]:
        from glidepath.values import list_for_people

        return list_for_people(self, _SHOWN)

    def __repr__(self) -> str:
        return f"<Agent {self.config.agent_name} on {self._plan.model_name}>"


def _iterate_all_tools(agent: Agent[Any, Any], seen: list[object]) -> Iterator[Tool]:
    """The tools of an agent, and of the agents among them."""
    seen.append(agent)
    for one in agent._plan.tools.values():  # noqa: SLF001 - one of us
        yield one
        inner, _ = delegate_of(one)
        if inner is not None and inner not in seen:
            yield from _iterate_all_tools(inner, seen)
