"""The options of `run`, `resume` and `stream`, and of their twins without an event loop: declared once, here."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from glidepath.values import DepsT

if TYPE_CHECKING:
    from glidepath.agent.limits import Budget, Limits
    from glidepath.agent.resuming import Target
    from glidepath.run import CancelToken, Decision, Inherit
    from glidepath.sessions import Session
    from glidepath.spi import Model, PromptContext
    from glidepath.tools import ToolContext

F = TypeVar("F", bound=Callable[..., Any])


class EveryRun(TypedDict, Generic[DepsT], total=False):
    """What every run takes, a new one and one that continues. All but `cancel` is for this run alone."""

    cancel: CancelToken | None
    deps: DepsT | None
    limits: Limits | None
    system_prompt: str | Callable[[PromptContext[DepsT]], str | Awaitable[str]] | None
    model: Model | str | None
    extras: Mapping[str, Any] | None
    tool_choice: str | None
    metadata: Mapping[str, str] | None
    user: str | None


class NewRun(TypedDict, total=False):
    """What only a new run takes: where it belongs."""

    session: str | Session | None
    parent: Budget | ToolContext | Inherit | None


class Continued(TypedDict, total=False):
    """What only a run takes that continues."""

    decisions: Mapping[str, Decision] | None
    accept_repair: bool


class RunKeywords(NewRun, EveryRun[DepsT], total=False):
    """What `run` takes."""


class ResumeKeywords(Continued, EveryRun[DepsT], total=False):
    """What `resume` takes."""

    parent: Budget | None


class StreamKeywords(NewRun, EveryRun[DepsT], Continued, total=False):
    """What `stream` takes: both, since it also continues runs."""

    resume: Target | None


def with_options_in_signature(options: type, **defaults: object) -> Callable[[F], F]:
    """Show each of these options in the signature of a method that takes them, for `help` and for editors at run time.

    One that is not among the `defaults` is None when it is left out.
    """

    def show(method: F) -> F:
        signature = inspect.signature(method)
        given = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        for name, kind in options.__annotations__.items():
            default = defaults.get(name)
            text = kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", str(kind))
            given.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=text))
        method.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        return method

    return show
