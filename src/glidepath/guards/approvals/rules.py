"""Rules about which calls run without asking, which ask a person, and which never run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Literal, NamedTuple

from glidepath._wire import Settings, settle_field
from glidepath.guards.approvals.call_subjects import Subject, subject_of, usual_subject
from glidepath.guards.approvals.commands import simple_words
from glidepath.guards.approvals.patterns import CommandPattern, PathPattern, list_paths, read_command, read_path
from glidepath.tools.workspace_marks import root_of
from glidepath.values import ConfigurationError, short_repr

Verdict = Literal["deny", "ask", "allow"]
VERDICTS: tuple[Verdict, ...] = ("deny", "ask", "allow")
"""In their order: the first that has a rule for a call decides."""
MOST_RULES = 1000
_FORM = re.compile(r"([^\s()]+)(?:\((.*)\))?", re.DOTALL)
_HINT = "write TOOL, TOOL(COMMAND) or TOOL(PATH), such as shell(npm test *) or read(src/**)"


class Ruling(NamedTuple):
    """What the rules say about one call, and which of them."""

    verdict: Verdict
    rule: str
    """Such as `deny rule shell(rm *)`."""


class ApprovalRule:
    """One rule: a tool, and the commands or files it is about; without parentheses every call of the tool."""

    __slots__ = ("_inner", "_patterns", "field", "text", "tool", "verdict")

    def __init__(self, verdict: Verdict, text: object, field: str) -> None:
        found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise ConfigurationError(f"{field} must be a rule, not {short_repr(text, 80)}; {_HINT}")
        self.verdict, self.field = verdict, field
        self.tool, self._inner = found[1], found[2]
        self.text = found[0]
        self._patterns: dict[Subject, CommandPattern | PathPattern] = {}
        if self._inner is not None and not self._inner.strip():
            raise ConfigurationError(f"{field}: {self.text!r} has nothing in its parentheses; {_HINT}")
        if verdict == "allow" and not re.search(r"\w", self.tool):
            raise ConfigurationError(f"{field}: {self.text!r} would allow every tool; name the tools")
        self.check(usual_subject(self.tool))

    def __str__(self) -> str:
        return f"{self.verdict} rule {self.text}"

    def names(self, tool: str) -> bool:
        """True for a tool that the rule is about."""
        return fnmatchcase(tool, self.tool)

    def check(self, subject: Subject) -> None:
        """Raise `ConfigurationError` when the rule could never do what it says for a tool of this kind."""
        if self._inner is None:
            if self.verdict == "allow" and subject == "command":
                raise ConfigurationError(
                    f"{self.field}: {self.text!r} would allow every command; name the command, as in "
                    f"{self.text}(npm test *)"
                )
        elif subject:
            self._pattern(subject)

    def _pattern(self, subject: Subject) -> CommandPattern | PathPattern:
        if subject not in self._patterns:
            where, text = f"{self.field}: {self.text!r}", self._inner or ""
            if subject == "command":
                self._patterns[subject] = read_command(text, field=where, allows=self.verdict == "allow")
            else:
                self._patterns[subject] = read_path(text, field=where)
        return self._patterns[subject]

    def is_about(self, tool: object, subject: Subject, arguments: Mapping[str, Any]) -> bool:
        """Whether it decides about this call: narrowly when it allows, else widely."""
        allows = self.verdict == "allow"
        if self._inner is None:
            return not (allows and subject == "command")
        if not subject:
            return not allows  # nobody can tell whether it is meant: forbidden, but not allowed
        try:
            pattern: Any = self._pattern(subject)
        except ConfigurationError:
            return not allows
        value = arguments.get(subject)
        if isinstance(pattern, CommandPattern):
            words = simple_words(value)
            return (words is not None and pattern.covers(words)) if allows else pattern.touches(value)
        paths = list_paths(value, root_of(tool))
        return bool(pattern.covers(paths) if allows else pattern.touches(paths))


class Rules(Settings, frozen=True, kw_only=True):
    """Which calls run without a person, which ask one, and which never run.

    A rule is a tool, as in `read` or `mail_*`, or a tool with the command or the path it is about:
    `shell(npm test *)`, `write(src/**)`. `deny` wins over `ask`, and `ask` over `allow`. `allow` answers only the
    question that a tool's own `requires_approval` asks; never one of a plugin such as `Provenance`, and it opens no
    gate. `reviewer` is a model, by its name or as an object, or an agent: it is asked about calls that need approval,
    that no rule covers and that are not consequential. Raises `ConfigurationError` naming the rule.
    """

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    ask: Sequence[str] = ()
    reviewer: Any = None

    def __post_init__(self) -> None:
        for verdict in VERDICTS:
            settle_field(self, verdict, _read_list(verdict, getattr(self, verdict)))
        read_rules(self)
        known: dict[str, str] = {}
        for verdict in VERDICTS:
            for text in getattr(self, verdict):
                if known.setdefault(text, verdict) != verdict:
                    raise ConfigurationError(
                        f"approvals.{verdict}: {text!r} is in approvals.{known[text]}, too; keep it in one of them"
                    )
        reviewer = self.reviewer
        if isinstance(reviewer, str) and not reviewer.strip():
            raise ConfigurationError(
                "approvals.reviewer must be the name of a model, such as anthropic:claude-haiku-4-5"
            )
        if reviewer is not None and not isinstance(reviewer, str):
            usable = callable(getattr(reviewer, "stream", None)) or callable(getattr(reviewer, "run", None))
            if isinstance(reviewer, type) or not usable:
                raise ConfigurationError(
                    f"approvals.reviewer must be a model, its name, or an agent; got {short_repr(reviewer, 80)}"
                )


def read_rules(rules: Rules) -> tuple[ApprovalRule, ...]:
    """The rules, those that deny first."""
    return tuple(
        ApprovalRule(verdict, text, f"approvals.{verdict}[{number}]")
        for verdict in VERDICTS
        for number, text in enumerate(getattr(rules, verdict))
    )


def check_tools(rules: Rules, tools: Iterable[Any]) -> None:
    """Raise `ConfigurationError` for a rule that could never do what it says for one of these tools."""
    found = read_rules(rules)
    for tool in tools:
        subject = subject_of(tool)
        for rule in found:
            if rule.names(tool.name):
                rule.check(subject)
                if rule.verdict == "allow" and not subject and "(" in rule.text:
                    raise ConfigurationError(
                        f"{rule.field}: {rule.text!r} can never allow anything: {tool.name} takes no command or path "
                        f"alone; allow the tool itself ({tool.name}), or leave the rule out"
                    )


def check_hosted(rules: Rules, names: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a rule that would hold a tool of the provider: nobody is asked about its calls."""
    for rule in read_rules(rules) if names else ():
        held = next((name for name in names if rule.verdict != "allow" and rule.names(name)), None)
        if held is not None:
            raise ConfigurationError(
                f"{rule.field}: {rule.text!r} cannot hold {held}, which runs at the provider, where no rule is asked; "
                f"leave {held} out of the tools, or write the rule without it"
            )


def decide(
    rules: Sequence[ApprovalRule], name: str, tool: object, arguments: Mapping[str, Any], subject: Subject | None = None
) -> Ruling | None:
    """What the rules say about a call; None when no rule is about it. The first rule decides: deny, ask, then allow."""
    meant = [rule for rule in rules if rule.names(name)]
    if not meant:
        return None
    subject = subject_of(tool) if subject is None else subject
    for rule in meant:
        if rule.is_about(tool, subject, arguments):
            return Ruling(rule.verdict, str(rule))
    held = next((rule for rule in meant if rule.verdict != "allow" and "(" in rule.text), None)
    if held is not None and _may_hide(subject, arguments):
        return Ruling("ask", f"{held} (this command cannot be read closely enough to rule it out)")
    return None


def _may_hide(subject: Subject, arguments: Mapping[str, Any]) -> bool:
    """True for a command that may run another than it shows."""
    return subject == "command" and simple_words(arguments.get("command")) is None


def _read_list(verdict: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"approvals.{verdict} must be a list of rules, not {short_repr(given, 80)}; {_HINT}")
    found = tuple(islice(given, MOST_RULES + 1))
    if len(found) > MOST_RULES:
        raise ConfigurationError(f"approvals.{verdict} has more than {MOST_RULES} rules, or never ends")
    for number, text in enumerate(found):
        if not isinstance(text, str):
            raise ConfigurationError(
                f"approvals.{verdict}[{number}] must be a rule, not {short_repr(text, 80)}; {_HINT}"
            )
    return tuple(text.strip() for text in found)
