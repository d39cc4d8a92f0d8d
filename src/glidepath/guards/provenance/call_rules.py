"""CallRules by tool and argument: where a value must come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from glidepath._wire import Value
from glidepath.guards.provenance.words import word_set
from glidepath.values import ConfigurationError, short_repr

RulesGiven: TypeAlias = Mapping[str, "str | Mapping[str, str | Sequence[str]]"]
DEFAULT: tuple[str, ...] = ("user", "trusted", "named")
CONTENT: tuple[str, ...] = ("content",)
VERDICTS = ("allow", "ask", "block")
SOURCES = ("user", "trusted", "named", "listed", "content", "any")
_CONTENT_NAMES = word_set(
    "body content contents text message title subject description location note notes comment comments "
    "summary reason caption answer reply question feedback prompt details markdown html new_string "
    "old_string"
)
"""Arguments of these names are content, not a target."""


class Rule(Value, frozen=True):
    """What holds for the calls of one tool."""

    pattern: str
    verdict: str | None = None
    arguments: tuple[tuple[str, tuple[str, ...]], ...] = ()


class CallRules:
    """The rules of a policy, checked; the first that fits a tool holds for it."""

    def __init__(self, given: RulesGiven | None) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise ConfigurationError(f"rules: expected a mapping from tool names to rules, got {short_repr(given)}")
        self._rules = tuple(_rule(pattern, rule) for pattern, rule in (given or {}).items())

    def verdict(self, tool: str) -> str | None:
        """`allow`, `ask` or `block`, whatever the arguments are; None when they decide."""
        rule = self._find_rule(tool)
        return None if rule is None else rule.verdict

    def sources(self, tool: str, argument: str) -> tuple[str, ...]:
        """Where the value of an argument may come from."""
        rule = self._find_rule(tool)
        for pattern, sources in () if rule is None else rule.arguments:
            if fnmatchcase(argument, pattern):
                return sources
        return CONTENT if argument.casefold() in _CONTENT_NAMES else DEFAULT

    def _find_rule(self, tool: str) -> Rule | None:
        return next((rule for rule in self._rules if fnmatchcase(tool, rule.pattern)), None)


def _rule(pattern: object, given: object) -> Rule:
    if not isinstance(pattern, str) or not pattern:
        raise ConfigurationError(f"rules: expected a tool's name or a pattern, got {short_repr(pattern)}")
    if isinstance(given, str):
        if given not in VERDICTS:
            raise ConfigurationError(
                f"rules[{pattern!r}]: {given!r} is not a rule; use 'allow', 'ask', 'block', or {{argument: sources}}"
            )
        return Rule(pattern, given)
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f"rules[{pattern!r}]: expected 'allow', 'ask', 'block' or a mapping, got {short_repr(given)}"
        )
    return Rule(
        pattern, None, tuple((_name(pattern, name), _read_sources(pattern, name, one)) for name, one in given.items())
    )


def _name(pattern: str, argument: object) -> str:
    if not isinstance(argument, str) or not argument:
        raise ConfigurationError(
            f"rules[{pattern!r}]: expected an argument's name or a pattern, got {short_repr(argument)}"
        )
    return argument


def _read_sources(pattern: str, argument: object, given: object) -> tuple[str, ...]:
    sources = (given,) if isinstance(given, str) else given
    if not isinstance(sources, Sequence) or not sources or not all(isinstance(one, str) and one for one in sources):
        raise ConfigurationError(
            f"rules[{pattern!r}][{argument!r}]: expected one or more of {', '.join(SOURCES)} and tools' names, "
            f"got {short_repr(given)}"
        )
    return tuple(sources)
