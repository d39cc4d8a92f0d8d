"""The gates that ship with glidepath: for the first turn, for allow and deny lists, and for a person's approval."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, ClassVar

from glidepath.spi import Ask, Gate, GateContext, Plugin, ToolCallContext
from glidepath.values import ConfigurationError

MOST_NAMES = 100_000


class OpeningGate(Plugin):
    """Only these tools in the first turn of a run, such as the one that makes a plan.

    The gate is required; with `required=False` it is advisory, and gives way to a stronger advisory gate if the two
    together would leave no tool. It does not bind the runs of children.
    """

    inheritable_to_child: ClassVar[bool | None] = False
    named: tuple[str, ...]
    """The tools it was given; a misspelled name is reported when an agent is made."""

    def __init__(
        self,
        tools: Iterable[str],
        *,
        denial_reason: str = "it is not available in the first turn",
        priority: int = 0,
        required: bool = True,
        name: str = "opening_gate",
    ) -> None:
        self.name = name
        self.named = _names("OpeningGate", "tools", tools)
        self._gate = Gate(
            allowed=frozenset(self.named),
            denial_reason=denial_reason,
            priority=priority,
            required=required,
        )

    def tool_gate(self, context: GateContext) -> Gate | None:
        """Narrow the first turn, and have no opinion about the others."""
        return self._gate if context.iteration == 0 else None


class ToolListGate(Plugin):
    """Only the tools in `allow` (None: all), and none in `deny`; both take names and patterns such as `mail_*`.

    Always required, and inherited by children: what is denied here is denied below.
    """

    named: tuple[str, ...]
    """The names and patterns it was given; a misspelled name is reported when an agent is made."""

    def __init__(
        self,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        denial_reason: str = "it is not allowed here",
        name: str = "tool_list_gate",
    ) -> None:
        self.name = name
        self._allow = None if allow is None else _names("ToolListGate", "allow", allow)
        self._deny = _names("ToolListGate", "deny", deny)
        self.named = (*(self._allow or ()), *self._deny)
        self._reason = denial_reason
        if self._allow is None and not self._deny:
            raise ConfigurationError("ToolListGate needs allow=[...] or deny=[...]: without either it does nothing")

    def tool_gate(self, context: GateContext) -> Gate:
        """What is allowed and not denied."""
        allowed = {name for name in context.tools if self._allow is None or _matches(name, self._allow)}
        allowed = {name for name in allowed if not _matches(name, self._deny)}
        return Gate(allowed=frozenset(allowed), denial_reason=self._reason)


class ApprovalGate(Plugin):
    """Asks a person before a call of these tools runs: the run pauses until they decide.

    `tools` takes names and patterns (None: every tool). `when` narrows it further: a function of `ToolCallContext` that
    returns whether to ask. If it crashes, the call is blocked.
    """

    named: tuple[str, ...]
    """The names and patterns it was given; a misspelled name is reported when an agent is made."""

    def __init__(
        self,
        tools: Iterable[str] | None = None,
        *,
        when: Callable[[ToolCallContext], bool] | None = None,
        reason: str = "",
        name: str = "approval_gate",
    ) -> None:
        if when is not None and not callable(when):
            raise ConfigurationError(f"ApprovalGate.when must be a function of ToolCallContext, not {when!r:.100}")
        self.name = name
        self._tools = None if tools is None else _names("ApprovalGate", "tools", tools)
        self.named = self._tools or ()
        self._when = when
        self._reason = reason

    def before_tool_call(self, context: ToolCallContext) -> Ask | None:
        """Ask for approval if it is one of those calls."""
        if self._tools is not None and not _matches(context.call.name, self._tools):
            return None
        if self._when is not None:
            answer: Any = self._when(context)
            if not isinstance(answer, bool):
                raise TypeError(f"ApprovalGate.when must return True or False, not {answer!r:.100}")
            if not answer:
                return None
        return Ask(self._reason or f"{context.call.name} needs a person's approval")


def _names(owner: str, field: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{owner}.{field} must be a list of tool names, not {given!r:.100}")
    names = tuple(islice(given, MOST_NAMES + 1))
    if len(names) > MOST_NAMES:
        raise ConfigurationError(
            f"{owner}.{field} has more than {MOST_NAMES} names, or never ends; pass a list of names"
        )
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{owner}.{field} must hold names of tools, not {name!r:.100}")
    return names


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
