"""The plugin: a call that changes the world is asked about, or blocked, when untrusted text may be behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from glidepath.guards.provenance.call_check import Suspicion, find_suspicions
from glidepath.guards.provenance.call_rules import CallRules, RulesGiven
from glidepath.guards.provenance.known_text import KnownText, keys_in, list_leaves
from glidepath.spi import Ask, BeforeDecision, Block, Plugin, ToolCallContext
from glidepath.values import ConfigurationError, Message, short_repr

Policy = Literal["ask", "block"]
MOST_REASONS = 4  # that a person is shown


class Provenance(Plugin):
    """Untrusted content cannot drive consequential tools unseen.

    Once a run, or a run above it, has read the result of an `untrusted` tool, every call of a tool that is not
    `read_only` must be accounted for: the user's own words ask for the action, and each argument that says whom or
    what it is about comes from the user, from a trusted result, or from the one record the user named. What is not
    accounted for is asked about (`policy="ask"`) or blocked (`policy="block"`).

    `rules` say more by tool and argument: `{"send_mail": {"to": ["user", "find_contact"]}, "log_*": "allow"}`.
    `words` are further words with which a user asks for a tool: `{"send_mail": ["schicke"]}`.
    """

    name = "provenance"

    def __init__(
        self,
        policy: Policy = "ask",
        *,
        rules: RulesGiven | None = None,
        words: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if policy not in ("ask", "block"):
            raise ConfigurationError(f"policy={short_repr(policy)} is not a policy; use 'ask' or 'block'")
        self.policy = policy
        self._rules = CallRules(rules)
        self._words = _check_words(words)
        self._looks: dict[str, bool] = {}
        self._known = KnownText(self._words, self._looks)
        self._read: list[tuple[Sequence[Message], int]] = []

    def for_run(self) -> Provenance:
        """One for each run: it remembers what the run has read, so that a turn costs the same however long it is."""
        own = object.__new__(type(self))
        own.__dict__.update(self.__dict__)
        own._forget()
        return own

    def before_tool_call(self, context: ToolCallContext) -> BeforeDecision:
        """Ask about a consequential call that nobody but untrusted content accounts for, or block it."""
        looks = _is_read_only(context.tool)
        self._looks[context.call.name] = looks and self._looks.get(context.call.name, True)
        if looks:
            return None
        verdict = self._rules.verdict(context.call.name)
        if verdict == "allow":
            return None
        known = self._catch_up(context)
        if not known.origins:
            return None
        if context.approved and self.policy == "ask" and verdict != "block":
            known.approve([value for _, value in list_leaves(context.arguments)] + keys_in(context.arguments.values()))
            return None
        if verdict is not None:
            found = [Suspicion(f"a rule holds every call of {context.call.name}", tuple(known.origins))]
        else:
            found = find_suspicions(context.call.name, context.tool, context.arguments, known, self._rules)
        if not found:
            return None
        return self._hold_call(found, verdict or self.policy)

    def _hold_call(self, found: list[Suspicion], how: str) -> BeforeDecision:
        reasons = [one.why for one in found[:MOST_REASONS]]
        if len(found) > MOST_REASONS:
            reasons.append(f"and {len(found) - MOST_REASONS} more")
        origins = tuple(dict.fromkeys([name for one in found for name in one.origins]))
        text = f"{'; '.join(reasons)}. Untrusted text was read from: {', '.join(origins)}."
        if how == "ask" and self.policy == "ask":
            return Ask(text, origins)
        return Block(f"{text} Tell the user what you wanted to do instead of trying another way.")

    def _catch_up(self, context: ToolCallContext) -> KnownText:
        """Everything that was said up to now; only what is new has to be read."""
        transcripts = [*context.above, context.messages]
        same = len(self._read) == len(transcripts) and all(
            one is known and len(one) >= count for one, (known, count) in zip(transcripts, self._read, strict=True)
        )
        if not same:
            self._forget()
            self._read = [(one, 0) for one in transcripts]
        for place, (messages, count) in enumerate(self._read):
            if len(messages) > count:
                self._known.take(messages[count:])
                self._read[place] = (messages, len(messages))
        self._known.note_origins(context.origins)
        return self._known

    def _forget(self) -> None:
        self._known = KnownText(self._words, self._looks)
        self._read = []


def _is_read_only(tool: object) -> bool:
    """True for a tool that is `read_only`, or whose effects are calls of other tools, each of which is judged."""
    if getattr(tool, "consequential", False):
        return False
    return bool(getattr(tool, "read_only", False) or getattr(tool, "makes_calls", False))


def _check_words(words: object) -> Mapping[str, Sequence[str]]:
    if words is None:
        return {}
    if not isinstance(words, Mapping) or not all(
        isinstance(name, str) and isinstance(ones, list | tuple) and all(isinstance(one, str) and one for one in ones)
        for name, ones in words.items()
    ):
        raise ConfigurationError(
            f"words: expected lists of words by tool, such as {{'send': ['mail']}}, got {short_repr(words)}"
        )
    return {name: tuple(ones) for name, ones in words.items()}
