"""The plugin of a run with skills: lists the untrusted ones, and asks about calls that an active one leaves out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from glidepath.agent.skills.skill import Skill
from glidepath.agent.skills.skill_results import READ
from glidepath.agent.skills.skill_tools import introduce_untrusted
from glidepath.spi import Ask, Plugin, PollContext, ToolCallContext
from glidepath.values import Message, ToolResultMessage, UserMessage

SOME, ALL = 4, 8


class SkillGuard(Plugin):
    """Asks a person about every call that a skill which was read does not list, and gives a run its list of skills.

    A skill is active as long as its text is in the conversation, for children and resumed runs, too. What was read is
    in the transcript; nothing is remembered elsewhere.
    """

    name = "skills"

    def __init__(self, skills: Sequence[Skill], *, made: Collection[str] = (READ,), introduces: bool = True) -> None:
        self._skills = {skill.name: skill for skill in skills}
        self._made = frozenset(made)  # our own tools; another one may have the name of one that was not made
        self._introduces = introduces
        self._forget()

    def _forget(self) -> None:
        self._read: list[tuple[Sequence[Message], int]] = []
        self._active: dict[str, tuple[frozenset[str], bool]] = {}
        self._greeted = False

    def for_run(self) -> SkillGuard:
        """One for each run: it remembers how far it has read the transcript."""
        return SkillGuard(tuple(self._skills.values()), made=self._made, introduces=self._introduces)

    def for_child(self) -> SkillGuard:
        """The guard alone: a child has no skills of its parent, and is bound by those that its parent has read."""
        return SkillGuard(tuple(self._skills.values()), introduces=False)

    def before_tool_call(self, context: ToolCallContext) -> Ask | None:
        """Ask about a call that an active skill does not list."""
        called = context.call.name
        self._catch_up([*context.above, context.messages])
        if called in self._made or context.approved:
            return None
        closed = [(name, own) for name, (allowed, own) in self._active.items() if called not in allowed]
        if not closed:
            return None
        listed = "; ".join(f"the skill {name} lists {_join(self._active[name][0])}" for name, _ in closed[:SOME])
        origins = tuple(f"skill {name}" for name, own in closed if not own)
        return Ask(f"{called} is not among the tools of a skill that is in use: {listed}", origins)

    def steering(self, context: PollContext) -> list[UserMessage] | None:
        """Before the first turn: the untrusted skills, and which of those that were read have changed since."""
        if self._greeted or not self._introduces:
            return None
        self._greeted = True
        said = [introduce_untrusted(self._skills.values()), self._tell_changes(context.messages)]
        return [one for one in said if one is not None and one not in context.messages] or None

    def _tell_changes(self, messages: Sequence[Message]) -> UserMessage | None:
        """What has become of the skills that an earlier part of this conversation has read."""
        known: dict[str, str] = {name: details["digest"] for name, details in _find_reads(messages)}
        rows = []
        for name, digest in known.items():
            now = self._skills.get(name)
            if now is None:
                rows.append(f"The skill {name}, which you read earlier, is no longer here. Do not rely on its text.")
            elif now.digest != digest:
                rows.append(f"The skill {name} has changed since you read it. Read it again before you rely on it.")
        return UserMessage("\n".join(rows), internal=True) if rows else None

    def _catch_up(self, transcripts: Sequence[Sequence[Message]]) -> None:
        """Which skills are active; only what is new in the transcripts has to be read."""
        same = len(self._read) == len(transcripts) and all(
            one is known and len(one) >= count for one, (known, count) in zip(transcripts, self._read, strict=True)
        )
        if not same:
            self._active = {}
            self._read = [(one, 0) for one in transcripts]
        for place, (messages, count) in enumerate(self._read):
            if len(messages) > count:
                for name, details in _find_reads(messages[count:]):
                    self._note_read(name, details)
                self._read[place] = (messages, len(messages))

    def _note_read(self, name: str, details: Mapping[str, Any]) -> None:
        said = details.get("allowed_tools")
        skill = self._skills.get(name)
        if said is None and skill is not None and skill.digest == details["digest"]:
            said = skill.allowed_tools
        if said is not None:
            allowed = frozenset(said)
            known = self._active.get(name)
            self._active[name] = (allowed if known is None else known[0] & allowed, details.get("trusted") is True)


def _find_reads(messages: Sequence[Message]) -> list[tuple[str, Mapping[str, Any]]]:
    """The skills whose text is among these messages, and what the journal knows of each."""
    found = []
    for message in messages:
        if type(message) is ToolResultMessage and message.tool_name == READ and isinstance(message.details, Mapping):
            details: Mapping[str, Any] = message.details
            if isinstance(details.get("skill"), str) and isinstance(details.get("digest"), str):
                found.append((details["skill"], details))
    return found


def _join(names: frozenset[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - ALL} more" if len(names) > ALL else ""
    return f"{', '.join(sorted(names)[:ALL])}{more}"
