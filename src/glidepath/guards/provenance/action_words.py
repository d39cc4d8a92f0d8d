"""Whether the user's own words ask for what a tool does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from glidepath.guards.provenance.words import normalize_phrase, normalize_text, word_set

_KINDS: Mapping[str, frozenset[str]] = {
    "tell": word_set(
        "send write tell message email mail forward reply answer post share notify inform ask contact text dm respond "
        "say publish tweet comment invite congratulate remind"
    ),
    "make": word_set(
        "create make add set append insert put write save store book schedule reserve plan record draft generate build "
        "log register note upload copy attach include setup"
    ),
    "book": word_set("book reserve reservation booking rent order buy hire"),
    "remove": word_set(
        "delete remove cancel drop erase clear purge revoke kick unsubscribe discard uninstall ban archive trash"
    ),
    "change": word_set(
        "update change edit modify adjust reschedule move rename set correct fix replace switch increase decrease "
        "raise lower extend postpone"
    ),
    "pay": word_set("pay send transfer refund buy order purchase donate settle reimburse wire"),
    "fetch": word_set(
        "get fetch open visit read browse load check look find search view see download summarize show go review"
    ),
    "run": word_set("run execute start launch deploy install build test restart reboot stop kill"),
}
_GRANTS = word_set("share invite grant allow permit authorize")
"""To let somebody in is not to tell them something, though people say share for both."""
_ALL = frozenset().union(*_KINDS.values()) | _GRANTS
_READING = _KINDS["fetch"] - word_set("get show go see")
_MONEY = word_set("money payment transaction funds invoice bill transfer")
_NOUNS_TOO = word_set(
    "email mail message text note comment contact post report schedule order change record transfer "
    "answer update share book copy log plan test build set cut move charge rent"
)
"""Verbs that are nouns as well: they count only where a verb can stand."""
_BEFORE_VERBS = word_set("please and then to also or just now you first next lets let") | frozenset(".!?;:,\n-")
_NOT_NEGATED = word_set("forget hesitate fail")
_NEGATIONS = word_set("not never don without avoid dont cannot")
_SMALL = word_set(
    "a an in of on to my and all are for from has new the this with into via list lookup one many current latest recent"
)
"""Words in a tool's name that do not say what it is about."""
_TOKEN = re.compile(r"[^\W_]+|[.!?;:,\n-]")
_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]+")
_REACH = 3  # words before a verb in which a negation takes it back


class ActionWords:
    """What the user has asked for so far."""

    def __init__(self, extra: Mapping[str, Sequence[str]]) -> None:
        self._extra = {pattern: tuple(normalize_phrase(word) for word in words) for pattern, words in extra.items()}
        self._asked: set[str] = set()
        self._texts: list[str] = []

    def take(self, text: str) -> None:
        """Add a message of the user."""
        said = normalize_text(text)
        self._texts.append(normalize_phrase(text))
        before: list[str] = ["."]
        for word in _TOKEN.findall(said):
            near = before[-_REACH:]
            if word[0].isalnum() and (_NEGATIONS.isdisjoint(near) or not _NOT_NEGATED.isdisjoint(near)):
                self._asked |= {base for base in _iterate_base_forms(word) if _can_be_verb(base, before[-1])}
            before.append(word)

    def ask_for(self, tool: str) -> bool:
        """True when some word of the user asks for this kind of action."""
        for pattern, words in self._extra.items():
            if fnmatchcase(tool, pattern) and any(word and word in text for word in words for text in self._texts):
                return True
        return not self._asked.isdisjoint(_words_for(tool))


def is_verb(word: str, before: str = ".") -> bool:
    """True when a word, behind another word or sign, asks for an action of some kind."""
    return any(base in _ALL and _can_be_verb(base, before) for base in _iterate_base_forms(word))


def is_reading(word: str) -> bool:
    """True for a verb that only looks at its object."""
    return any(base in _READING for base in _iterate_base_forms(word))


def verb_kinds(tool: str) -> frozenset[str]:
    """The kinds of action that a tool's name stands for: `fetch` for `find_contact`."""
    words = _words_for(tool)
    return frozenset([name for name, ones in _KINDS.items() if ones <= words])


def nouns_of(tool: str) -> frozenset[str]:
    """What a tool is about, by its name: `note` for `save_note` and `read_notes`."""
    parts = [part.casefold() for part in _NAME.findall(tool)]
    parts = parts[: parts.index("by")] if "by" in parts else parts
    verb = next((part for part in parts if part in _ALL), "")
    return frozenset([part.removesuffix("s") for part in parts if part != verb and part not in _SMALL])


def _can_be_verb(base: str, before: str) -> bool:
    return base not in _NOUNS_TOO or before in _BEFORE_VERBS


def _iterate_base_forms(word: str) -> Iterable[str]:
    yield word
    if word.endswith("ing") and len(word) > 5:  # noqa: PLR2004 - sending, deleting, planning
        yield from (word[:-3], f"{word[:-3]}e", word[:-4])
    if word.endswith("s") and len(word) > 3:  # noqa: PLR2004
        yield word[:-1]


def _words_for(tool: str) -> frozenset[str]:
    parts = [part.casefold() for part in _NAME.findall(tool)]
    verb = next(
        (part for part in parts if any(part in words for words in (*_KINDS.values(), _GRANTS))),
        parts[0] if parts else "",
    )
    if verb in ("send", "schedule", "make") and not _MONEY.isdisjoint(parts):
        return _KINDS["pay"] | (_KINDS["make"] if verb == "schedule" else frozenset())
    if verb in _GRANTS:
        return _GRANTS
    if verb in ("book", "reserve", "rent"):
        return _KINDS["book"]
    kinds = [words for name, words in _KINDS.items() if verb in words and name not in ("pay", "book")]
    return kinds[0] if kinds else _KINDS["pay"] if verb in _KINDS["pay"] else frozenset({verb})
