"""What a run has read so far, by source: the user, trusted tools, and the outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from glidepath._wire import Record as Mutable, loads
from glidepath.guards.provenance.action_words import ActionWords, nouns_of, verb_kinds
from glidepath.guards.provenance.user_text import UserText
from glidepath.guards.provenance.words import (
    find_addresses,
    has_loose_symbols,
    is_moment,
    is_telling,
    list_meaningful_words,
    list_text_around_addresses,
    normalize_phrase,
    normalize_with_symbols,
    word_set,
)
from glidepath.values import (
    REDACTED,
    AssistantMessage,
    Message,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    find_untrusted_parts,
    own_words,
)

__all__ = ["Chunk", "KnownText", "keys_in", "list_leaves"]

_NAMING = ("name", "title", "subject", "sender", "recipient", "from", "label", "user", "channel", "topic", "author")
"""What the key of a field contains that says what its record is called."""
_IDENTIFYING = word_set("id ids uid uuid guid key ref path file filename folder slug number no nr")
"""Words in the key of a field that says which one a record is: what may be done to it, and never whom it reaches."""
MOST_LEAVES = 20_000  # values of one result, or of one call's arguments
_SHORT = 3  # letters that a name has at least
_LABEL = 3  # words before a number that say what it is
_LOOKED_UP, _SHORT_NAME = 4, 40  # words and letters of a name that can be looked up
_KEY_WORDS = 8  # words of a value under which something is written and read again
_GENERIC = word_set("number numbers code get find read list show look fetch user info information data details value")
"""Words of a label that do not say which number it is."""
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]+")


class Chunk(Mutable):
    """One text: its words, its addresses, and those of the call that it answers, which it may only repeat."""

    words: str
    literal: str
    addresses: frozenset[str]
    echo: str = ""
    echoed: frozenset[str] = frozenset()
    labels: Mapping[str, tuple[str, ...]] = {}
    """The words that say what each of its addresses is."""
    fields: frozenset[str] = frozenset()
    """Its values that are fields."""
    written: Sequence[str] = ()
    """What the run has written out of untrusted text: this may repeat the first `written_before` of it."""
    written_before: int = 0

    def has(self, value: str, said: Sequence[UserText] = ()) -> bool:
        """True when the text brings these words or addresses by itself. What is next to an address may be `said`."""
        found = find_addresses(value)
        if found:
            return (
                self.addresses.issuperset(found)
                and self.echoed.isdisjoint(found)
                and not any(self.repeats(normalize_phrase(one)) for one in found.values())
                and all(
                    (
                        self._is_new_here(normalize_phrase(rest))
                        or any(normalize_phrase(rest) in one.words for one in said)
                    )
                    and not has_loose_symbols(rest.strip(" <>,;[]()\"'"), self.literal)
                    for rest in list_text_around_addresses(value)
                )
            )
        words = normalize_phrase(value)
        return bool(words) and self._is_new_here(words) and self._is_telling(value, words)

    def _is_telling(self, value: str, words: str) -> bool:
        """No common words out of the middle of a text, and no symbols that it lacks."""
        if has_loose_symbols(value, self.literal):
            return False
        return normalize_with_symbols(value) in self.fields or any(
            is_telling(word) or word.isdecimal() for word in words.split()
        )

    def _is_new_here(self, words: str) -> bool:
        return words in self.words and words not in self.echo and not self.repeats(words)

    def repeats(self, words: str) -> bool:
        """True when these words were written out of untrusted text before this was read."""
        return any(words in text for text in islice(self.written, self.written_before))


class Passage(Mutable):
    """A text from outside, and where it comes from."""

    words: str
    addresses: frozenset[str]
    origins: tuple[str, ...]
    whole: frozenset[str]
    """The words of each field that stands by itself."""
    place: frozenset[str] = frozenset()
    """The addresses that it was fetched from."""


class KnownEntry(Mutable):
    """One record of a structured result."""

    values: frozenset[str]
    names: frozenset[str]
    ids: frozenset[str]
    """The values that say which one it is."""
    fields: Mapping[str, tuple[str, ...]]
    """The words of the field that each value is in."""
    links: frozenset[str]
    """All addresses in it as they are written, in the middle of texts, too."""
    words: str
    """All of its text."""
    size: float | None = None


class _Made(Mutable):
    """A call of the model: what it was given, and whether all of that is the user's or from a source they trust."""

    tool: str
    asked: str
    values: tuple[str, ...]
    tainted: tuple[str, ...]


class KnownText:
    """Everything that was said in a run and in the runs above it."""

    def __init__(self, extra_words: Mapping[str, Sequence[str]], looks: Mapping[str, bool] | None = None) -> None:
        self.user: list[UserText] = []
        self.approved: list[Chunk] = []
        self.trusted: list[tuple[str, Chunk]] = []
        self.outside: list[Passage] = []
        self.entries: dict[tuple[frozenset[str], frozenset[str]], KnownEntry] = {}
        self.listed: set[str] = set()
        self.origins: dict[str, None] = {}
        self.actions = ActionWords(extra_words)
        self._looks = {} if looks is None else looks
        self._calls: dict[str, _Made] = {}
        self._own: set[str] = set()  # words of the user and of trusted results
        self._own_addresses: set[str] = set()
        self._written: list[str] = []
        self._written_nouns: set[str] = set()
        self._written_keys: set[str] = set()
        self._texts: set[tuple[str, tuple[str, ...], frozenset[str]]] = set()  # from outside, each taken once
        self._programs = False
        self._seen = (0, 0)
        self._called: dict[str, list[KnownEntry]] = {}
        self._mentioned: dict[str, list[KnownEntry]] = {}

    @property
    def hidden(self) -> bool:
        """True when some untrusted text cannot be compared: it was redacted, or a program keeps it to itself."""
        return REDACTED in self.origins or self._programs

    def note_origins(self, origins: Sequence[str]) -> None:
        """The program that makes the call has read from these sources."""
        self._programs = bool(origins)
        self.origins |= dict.fromkeys(origins)

    def take(self, messages: Iterable[Message]) -> None:
        """Some more messages."""
        for message in messages:
            if isinstance(message, AssistantMessage):
                self.origins |= dict.fromkeys(message.origins)
                self._calls |= {call.id: self._describe_call(call) for call in message.tool_calls}
            elif isinstance(message, UserMessage):
                self._take_words(message)
            elif isinstance(message, ToolResultMessage):
                self._take_result(message)

    def _describe_call(self, call: ToolCall) -> _Made:
        arguments = call.arguments
        values = (*[value for _, value in list_leaves(arguments)], *keys_in(arguments.values()))
        tainted = tuple([one for one in values if not self._is_own(one)]) if self.origins else ()
        return _Made(call.name, " ; ".join(values), values, tainted)

    def _is_own(self, value: str) -> bool:
        """All words and addresses of a value are the user's, or came from a source they trust."""
        if is_moment(value):
            return True
        if any(chunk.has(value) for chunk in self.approved):
            return True
        return self._own.issuperset(normalize_phrase(value).split()) and self._own_addresses.issuperset(
            find_addresses(value)
        )

    def find_called_names(self) -> dict[str, list[KnownEntry]]:
        """The names that the user has used, with the records that have them."""
        if self._seen != (len(self.user), len(self.entries)):
            self._find_meant_records()
        return self._called

    def find_mentioned_phrases(self) -> dict[str, list[KnownEntry]]:
        """The phrases of the user that name something, with the records that contain them."""
        if self._seen != (len(self.user), len(self.entries)):
            self._find_meant_records()
        return self._mentioned

    def find_extremes(self) -> dict[str, float]:
        """The sizes that only one record has and that are the largest or smallest of all."""
        sizes = [entry.size for entry in self.entries.values() if entry.size is not None]
        found = {"largest": max, "biggest": max, "smallest": min}
        return {word: extreme(sizes) for word, extreme in found.items() if sizes and sizes.count(extreme(sizes)) == 1}

    def _find_meant_records(self) -> None:
        """Find the records that the user means. A stranger can list many: one look serves all values of a call."""
        self._seen = (len(self.user), len(self.entries))
        self._called, self._mentioned = {}, {}
        phrases = dict.fromkeys([words for text in self.user for words in text.name_phrases()])
        for entry in self.entries.values():
            for name in entry.names:
                if name in self._called or any(text.has_name(name) for text in self.user):
                    self._called.setdefault(name, []).append(entry)
            for words in phrases:
                if words in entry.words:
                    self._mentioned.setdefault(words, []).append(entry)

    def approve(self, values: Iterable[str]) -> None:
        """A person has approved a call with these values: they count as the user's own."""
        self.approved += [
            Chunk(
                normalize_phrase(value),
                normalize_with_symbols(value),
                frozenset(find_addresses(value)),
                fields=frozenset({normalize_with_symbols(value)}),
            )
            for value in values
        ]

    def _take_words(self, message: UserMessage) -> None:
        if message.origins:
            self._take_outside(message.text, message.origins)
            return
        for part in find_untrusted_parts(message):
            self._take_outside(part.text, part.origins)
        if not message.internal:
            words = own_words(message)
            self.user.append(UserText(words))
            self._own.update(self.user[-1].words.split())
            self._own_addresses.update(self.user[-1].addresses)
            self.actions.take(words)

    def _take_result(self, message: ToolResultMessage) -> None:
        made, text = self._calls.pop(message.call_id, _Made(message.tool_name, "", (), ())), message.text
        if not message.is_error:
            self._note_tainted_write(made)
        if message.origins:
            self._take_outside(text, message.origins, frozenset(find_addresses(made.asked)))
            return
        if self._is_derived(made, text):
            self._take_outside(text, (f"{message.tool_name}, given what was read",))
            return
        found, words = find_addresses(text), normalize_phrase(text)
        labels = {canonical: _label(words, written, message.tool_name) for canonical, written in found.items()}
        echo = normalize_phrase(made.asked)
        fields = frozenset(
            [normalize_with_symbols(value) for _, value in _fields(text)] or [normalize_with_symbols(text)]
        )
        self.trusted.append(
            (
                message.tool_name,
                Chunk(
                    words,
                    normalize_with_symbols(text),
                    frozenset(found),
                    echo,
                    frozenset(find_addresses(made.asked)),
                    labels,
                    fields,
                    self._written,
                    len(self._written),
                ),
            )
        )
        self._own.update(words.split())
        self._own_addresses.update(found)
        self.listed |= fields - {normalize_with_symbols(made.asked)}

    def _note_tainted_write(self, made: _Made) -> None:
        """A tool that does more than look was given untrusted text: reading it there is reading untrusted text."""
        if not made.tainted or self._is_read_only(made.tool):
            return
        self._written += [normalize_phrase(one) for one in made.tainted]
        self._written_nouns |= nouns_of(made.tool)
        self._written_keys |= {
            normalize_phrase(one) for one in made.values if len(one.split()) <= _KEY_WORDS and not find_addresses(one)
        }

    def _is_read_only(self, tool: str) -> bool:
        """By the mark of the tool; a tool of another process is known by its name alone."""
        known = self._looks.get(tool)
        return "fetch" in verb_kinds(tool) if known is None else known

    def _is_derived(self, made: _Made, text: str) -> bool:
        """A result that is made of untrusted text: decoded, expanded, or written there before and read back."""
        if not self._written_nouns.isdisjoint(nouns_of(made.tool)):
            return True
        if any(normalize_phrase(one) in self._written_keys for one in made.values):
            return True
        return bool(made.tainted) and not self._is_looked_up(made, text)

    def _is_looked_up(self, made: _Made, text: str) -> bool:
        """A name was looked up: a choice among what is trusted.

        Nothing that could be decoded is such a name. A value of a list, such as a channel, brings no address.
        """
        words, reaches = normalize_phrase(text), bool(find_addresses(text))
        return "fetch" in verb_kinds(made.tool) and all(
            len(one.split()) <= _LOOKED_UP
            and len(one) <= _SHORT_NAME
            and not find_addresses(one)
            and (
                (normalize_with_symbols(one) in self.listed and not reaches)
                or (normalize_phrase(one) in words and one.replace(" ", "").istitle())
            )
            for one in made.tainted
        )

    def _take_outside(self, text: str, origins: tuple[str, ...], place: frozenset[str] = frozenset()) -> None:
        self.origins |= dict.fromkeys(origins)
        if (text, origins, place) in self._texts:
            return
        self._texts.add((text, origins, place))
        data = _parse_result(text)
        values = [text] if data is None else [value for _, value in list_leaves(data)]
        whole = frozenset(map(normalize_phrase, values))
        self.outside.append(Passage(normalize_phrase(text), frozenset(find_addresses(text)), origins, whole, place))
        if data is not None:
            self.listed |= set(map(normalize_with_symbols, values))
            for record in _records(data):
                entry = _entry(record)
                self.entries[entry.values, entry.names] = entry


def list_leaves(data: object, name: str = "") -> list[tuple[str, str]]:
    """The values in plain data as text, each with the name of its field; at most `MOST_LEAVES`."""
    found: list[tuple[str, str]] = []
    waiting = [(name, data)]
    while waiting:
        if len(found) > MOST_LEAVES:
            raise ValueError(f"more than {MOST_LEAVES} values: too many to judge")
        name, one = waiting.pop()
        if isinstance(one, Mapping):
            waiting += [(str(key), value) for key, value in reversed(list(one.items()))]
        elif isinstance(one, list | tuple):
            waiting += [(name, value) for value in reversed(one)]
        elif one is not None and not isinstance(one, bool):
            found.append((name, one if isinstance(one, str) else str(one)))
    return found


def keys_in(values: Iterable[Any]) -> list[str]:
    """The keys of all mappings in plain data."""
    found: list[str] = []
    waiting = list(values)
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            found += map(str, one)
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
    return found


def _label(words: str, written: str, tool: str) -> tuple[str, ...]:
    """What a number in a result is called: the words before it, such as its key; else the words of the tool's name."""
    before = words.partition(normalize_phrase(written) or " ")[0].split()[-_LABEL:]
    return tuple(
        [word for word in list_meaningful_words(" ".join(before) or normalize_phrase(tool)) if word not in _GENERIC]
    )


def _parse_result(text: str) -> Any:
    """The data of a result that is JSON of more than one value; None for any other text."""
    if text[:1] not in ("{", "["):
        return None
    try:
        data = loads(text)
        return data if len(list_leaves(data)) else None
    except (ValueError, RecursionError):
        return None


def _fields(text: str) -> list[tuple[str, str]]:
    data = _parse_result(text)
    return [] if data is None else list_leaves(data)


def _records(data: object) -> Iterator[Mapping[str, Any]]:
    waiting = [data]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            yield one
            waiting += [value for value in one.values() if isinstance(value, Mapping | list)]
        elif isinstance(one, list):
            waiting += [value for value in one if isinstance(value, Mapping | list)]


def _entry(record: Mapping[str, Any]) -> KnownEntry:
    names: set[str] = set()
    ids: set[str] = set()
    links: set[str] = set()
    fields: dict[str, tuple[str, ...]] = {}
    for key, value in record.items():
        parts = tuple([part.casefold() for part in _PARTS.findall(str(key))])
        for _, one in list_leaves(value if not isinstance(value, Mapping) else list(value), str(key)):
            fields[normalize_with_symbols(one)] = (*fields.get(normalize_with_symbols(one), ()), *parts)
            found = find_addresses(one)
            links |= set(found.values())
            if not _IDENTIFYING.isdisjoint(parts) and not any(re.search(r"[.@:]", address) for address in found):
                ids.add(normalize_with_symbols(one))
            if any(part in str(key).casefold() for part in _NAMING):
                names |= {normalize_phrase(one), _drop_file_ending(one)}
    names = {name for name in names if sum(char.isalpha() for char in name) >= _SHORT}
    words = "|".join(map(normalize_phrase, fields))
    given = record.get("size")
    size = float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None
    return KnownEntry(frozenset(fields), frozenset(names), frozenset(ids), fields, frozenset(links), words, size)


def _drop_file_ending(text: str) -> str:
    stem, dot, ending = text.rpartition(".")
    return normalize_phrase(stem) if dot and ending.isalnum() and len(ending) <= 5 and "@" not in text else ""  # noqa: PLR2004
