"""The base of all specimens: models and tools that misbehave in one way, whatever the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import isawaitable
from random import Random
from typing import Any, ClassVar, NoReturn, Protocol

from glidepath._wire import Value
from glidepath.plugins import snake_case
from glidepath.spi import ModelRequest, Plugin, ToolSpec
from glidepath.testing.specimens.bad_arguments import arguments_for
from glidepath.testing.turns import Turn, call, say
from glidepath.tools import Tool
from glidepath.values import UserMessage

ANSWER = "ANSWER: this is what I know so far."
_RECENT = 4


class Moment(Value, frozen=True, kw_only=True):
    """One request that a specimen has to answer. `number` counts the requests of a flight from 1."""

    number: int
    request: ModelRequest
    tools: tuple[ToolSpec, ...]
    """The work tools of the configuration, offered or not."""
    chance: Random

    @property
    def told(self) -> bool:
        """True when the model was told to finish, or has no work tool left to call."""
        offered = {tool.name for tool in self.request.tools}
        if self.tools and not any(tool.name in offered for tool in self.tools):
            return True
        recent = self.request.messages[-_RECENT:]
        return any(type(message) is UserMessage and message.reason == "wind_down" for message in recent)

    def call(self, number: int | None = None, *, tool: int = 0) -> Turn:
        """A valid call of one of the tools; other numbers give other arguments."""
        if not self.tools:
            return call("search", query=f"item {number}")
        spec = self.tools[tool % len(self.tools)]
        return call(spec.name, arguments_for(spec.parameters, self.number if number is None else number))


class Outside(Protocol):
    """What code outside a flight can see and do."""

    streaming: asyncio.Event
    in_tool: asyncio.Event

    def cancel(self) -> None:
        """Cancel the run by its token."""
        ...

    def cancel_task(self) -> None:
        """Cancel the task the run lives in."""
        ...

    def wind_down(self) -> None:
        """Ask the run to finish up."""
        ...


class Specimen:
    """One way to misbehave. A fresh object for every flight; the docstring's first line says what it does."""

    name: ClassVar[str] = ""
    """The class's name in snake_case, unless you set it."""
    family: ClassVar[str] = ""
    says: ClassVar[Turn] = say(ANSWER)
    """What the model says to every request, unless `reply` decides."""
    answers: ClassVar[bool] = True
    """It writes `ANSWER`, by itself or when told to finish."""
    succeeds: ClassVar[bool] = False
    """It may end DONE: it finishes by itself, with an answer."""
    loops: ClassVar[bool] = False
    """It repeats itself without progress, which guards should notice."""
    only_if_read_only: ClassVar[bool] = False
    """Its loop can be told from work only if the tools are marked `read_only`."""
    honest: ClassVar[bool] = False
    """It works: no guard may nudge it, take a tool away from it, or land it."""
    needs_tools: ClassVar[bool] = False
    real_time: ClassVar[bool] = False
    """It needs real threads or processes, so it cannot run in virtual time."""
    hangs: ClassVar[bool] = False
    """One of its tools never returns: the tool's time limit should end it, not the run's."""
    killed: ClassVar[bool] = False
    """Its process is killed in the middle of a tool, and the run is resumed from its journal."""
    extra_tool: ClassVar[str | None] = None
    """An extra tool: "delegate" spawns children, "run" runs the agent again with `agent.run`, "map" on many items."""
    hands_over: ClassVar[bool] = False
    """There is a second agent, to which the conversation can be handed over, and which can hand it back."""
    reviewed: ClassVar[bool] = False
    """Its calls that need approval are reviewed by a model, which says what `review` says."""
    output_type: ClassVar[Any] = None
    """What is read from its answers, while they are written."""
    blocking: ClassVar[bool] = False
    """Its tools are plain functions that block a thread."""
    reports: ClassVar[bool] = False
    """Its tools are generators that report: `progress` instead of `work`."""
    ends_from_outside: ClassVar[bool] = False
    """Somebody stops it: CANCELLED is the right end."""
    plugins: ClassVar[tuple[Callable[[], Plugin], ...]] = ()
    """Factories of extra plugins, called for every flight."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = snake_case(cls.__name__)

    def reply(self, moment: Moment) -> Turn:
        """What the model says to this request."""
        return self.says

    def review(self, moment: Moment) -> Turn:
        """What the reviewer of `approvals` says to a question about a call, if there is one."""
        return say("ALLOW")

    async def work(self, number: int) -> Any:
        """What a tool does, on its `number`-th call."""
        return "Nothing new."

    def progress(self, number: int) -> AsyncIterator[Any]:
        """The same for a specimen that reports: its progress, then the result."""
        raise NotImplementedError

    def tools(self) -> tuple[Tool, ...]:
        """Extra tools, in addition to those of the configuration."""
        return ()

    def block(self, number: int) -> Any:
        """The same for a blocking specimen."""
        raise NotImplementedError

    async def outside(self, flight: Outside) -> None:
        """Interfere with the run from outside."""


class OneCall(Specimen):
    """Calls one tool, then answers."""

    succeeds = True

    def reply(self, moment: Moment) -> Turn:
        """One call, then the answer."""
        return moment.call() if moment.number == 1 and moment.request.tools and moment.tools else say(ANSWER)


class Tireless(Specimen):
    """Works until it is told to finish, then answers."""

    def reply(self, moment: Moment) -> Turn:
        """The answer when told to finish, else the next step."""
        return say(ANSWER) if moment.told else self.step(moment)

    def step(self, moment: Moment) -> Turn:
        """What it does instead of finishing."""
        raise NotImplementedError


def specimen(name: str, does: str, base: type[Specimen] = Specimen, **own: object) -> type[Specimen]:
    """A specimen as one row of a table: its name, what it does, and how it differs from `base`.

    Functions in `own` take no `self`. `work` may be plain or async.
    """
    body = {key: staticmethod(value) if callable(value) else value for key, value in own.items()}
    if "work" in own:
        body["work"] = _awaitable(own["work"])
    return type(name.title().replace("_", ""), (base,), {"__doc__": does, "name": name, **body})


def table(base: type[Specimen], part: str, **rows: tuple[str, object]) -> tuple[type[Specimen], ...]:
    """Specimens that differ from `base` in one part: each has a name, says what it does, and has its own part."""
    return tuple([specimen(name, does, base, **{part: own}) for name, (does, own) in rows.items()])


def failing(error: type[BaseException], *arguments: object) -> Callable[[int], NoReturn]:
    """The work of a tool that raises this."""

    def work(_number: int) -> NoReturn:
        raise error(*arguments)

    return work


def _awaitable(work: Any) -> Callable[[Specimen, int], Awaitable[Any]]:
    async def await_work(_self: Specimen, number: int) -> Any:
        answer = work(number)
        return await answer if isawaitable(answer) else answer

    return await_work
