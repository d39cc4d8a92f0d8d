"""The world of a benchmark: its functions as tools, the state that they change, and what a run did to it.

A world lives in memory, and a run may be continued by another process. What its transcript says was done is then done
again in the new world, before the next call. Judges read the transcript as well: an answer is judged the same wherever
that happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from glidepath._wire import Value
from glidepath.spi import GateContext, Plugin, PollContext, ToolCallContext
from glidepath.values import (
    AssistantMessage,
    ConfigurationError,
    Message,
    ToolResultMessage,
    UserMessage,
    describe_error,
)

if TYPE_CHECKING:
    from glidepath.agent import Agent
    from glidepath.apps.evals.cases import Case
    from glidepath.values import RunResult

Act = Callable[[str, Mapping[str, Any]], object]
"""Makes one call in a world: name and arguments."""


class DoneCall(Value, frozen=True, kw_only=True):
    """One call that a run made and that ended without an error."""

    name: str
    arguments: Mapping[str, Any]


def list_done(messages: Sequence[Message], questions: Sequence[str] = ()) -> list[list[DoneCall]]:
    """What was done, in source order of the calls: one list for each question of the user that was asked.

    Without `questions` everything belongs to the first one.
    """
    failed = {one.call_id for one in messages if isinstance(one, ToolResultMessage) and one.is_error}
    answered = {one.call_id for one in messages if isinstance(one, ToolResultMessage)} - failed
    done: list[list[DoneCall]] = [] if questions else [[]]
    for message in messages:
        if isinstance(message, UserMessage):
            if len(done) < len(questions) and message.text == questions[len(done)]:
                done.append([])
        elif isinstance(message, AssistantMessage) and done:
            made = [one for one in message.tool_calls if one.id in answered]
            done[-1].extend([DoneCall(name=one.name, arguments=one.arguments) for one in made])
    return done


class WorldPlugin(Plugin):
    """Asks the later questions of a conversation, shows the tools of each, and catches up after a restart."""

    name = "benchmark_world"
    inheritable_to_child: ClassVar[bool | None] = False

    def __init__(
        self, act: Act, questions: Sequence[str] = (), withheld: Mapping[int, frozenset[str]] | None = None
    ) -> None:
        self._act = act
        self._questions = tuple(questions)
        self._withheld = dict(withheld or {})
        """The tools that are there only from a question on, by its number."""
        self._is_caught_up = False

    def steering(self, context: PollContext) -> None:
        """Catch up before the first model call."""
        self._catch_up(context.messages)

    def before_tool_call(self, context: ToolCallContext) -> None:
        """Catch up before the first call: a run that is continued may begin with one."""
        self._catch_up(context.messages)

    def follow_up(self, context: PollContext) -> str | None:
        """The next question, when the model has answered the last one."""
        asked = len(list_done(context.messages, self._questions))
        return self._questions[asked] if asked < len(self._questions) else None

    def tool_gate(self, context: GateContext) -> frozenset[str] | None:
        """The tools that the conversation has so far."""
        if not self._withheld:
            return None
        asked = len(list_done(context.messages, self._questions))
        hidden = [names for number, names in self._withheld.items() if number >= asked]
        return context.tools.difference(*hidden) if hidden else None

    def _catch_up(self, messages: Sequence[Message]) -> None:
        if self._is_caught_up:
            return
        self._is_caught_up = True
        for one in list_done(messages)[0]:
            with suppress(Exception):
                self._act(one.name, one.arguments)


class WorldCheck:
    """A benchmark's own checker as an evaluator: a function of case and result, which gets a thread."""

    def __init__(self, name: str, judge: Callable[[Case, RunResult[Any]], str]) -> None:
        self._name = name
        self._judge = judge

    @property
    def name(self) -> str:
        """What reports call it."""
        return self._name

    def __call__(self, case: Case, result: RunResult[Any]) -> tuple[bool, str]:
        """Whether the run passes, and why not."""
        fault = self._judge(case, result)
        return not fault, fault


def furnish(agent: Agent, tools: Sequence[Any], plugin: Plugin) -> Agent:
    """The agent with the tools of a world instead of its own."""
    return agent.replace(tools=tuple(tools), plugins=(*agent.config.plugins, plugin))


def import_benchmark(module: str, package: str) -> Any:
    """A module of a benchmark's package; raises `ConfigurationError` with what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"this dataset is in the package {package}, which cannot be imported here ({describe_error(error)}): "
            f"pip install {package}"
        ) from error


def check_choice(field: str, given: Sequence[str] | str | None, known: Sequence[str]) -> tuple[str, ...]:
    """These names of parts of a benchmark, or all of them; raises `ConfigurationError` for an unknown one."""
    chosen = tuple(known) if given is None else (given,) if isinstance(given, str) else tuple(given)
    for one in chosen:
        if one not in known:
            raise ConfigurationError(f"{field}={one!r:.60} is not one of {', '.join(known)}")
    if not chosen:
        raise ConfigurationError(f"{field} is empty: name some of {', '.join(known)}, or leave it out for all")
    return chosen
