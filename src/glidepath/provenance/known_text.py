"""What a run has read so far, by source: the user, trusted tools, and the outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from glidepath._wire import Record as Mutable
from glidepath._wire import loads
from glidepath.messages import REDACTED, AssistantMessage, Message, ToolResultMessage, UserMessage
from glidepath.provenance.action_words import ActionWords
from glidepath.provenance.words import addresses, besides, phrase, significant, word_set

__all__ = ["Chunk", "KnownText", "keys_in", "leaves"]

_NAMING = ("name", "title", "subject", "sender", "recipient", "from", "label", "user", "channel", "topic", "author")
"""What the key of a field contains that says what its record is called."""
MOST_LEAVES = 20_000  # values of one result, or of one call's arguments
_SHORT = 3  # letters that a name has at least
_LABEL = 3  # words before a number that say what it is
_GENERIC = word_set("number numbers code get find read list show look fetch user info information data details value")
"""Words of a label that do not say which number it is."""


class Chunk(Mutable):
    """One text: its words, its addresses, and those of the call that it answers, which it may only repeat."""

    words: str
    addresses: frozenset[str]
    echo: str = ""
    echoed: frozenset[str] = frozenset()
    labels: Mapping[str, tuple[str, ...]] = {}
    """The words that say what each of its addresses is."""

    def has(self, value: str, said: Sequence[Chunk] = ()) -> bool:
        """True when the text brings these words or addresses by itself. What is next to an address may be `said`."""
        found = addresses(value)
        if found:
            return (
                self.addresses.issuperset(found)
                and self.echoed.isdisjoint(found)
                and all(self._brings(rest) or any(rest in one.words for one in said) for rest in besides(value))
            )
        words = phrase(value)
        return bool(words) and self._brings(words)

    def _brings(self, words: str) -> bool:
        return words in self.words and words not in self.echo


class Passage(Mutable):
    """A text from outside, and where it comes from."""

    words: str
    addresses: frozenset[str]
    origins: tuple[str, ...]
    whole: frozenset[str]
    """The words of each field that stands by itself."""


class KnownEntry(Mutable):
    """One record of a structured result."""

    values: frozenset[str]
    names: frozenset[str]
    links: frozenset[str]
    """All addresses in it as they are written, in the middle of texts, too."""


class KnownText:
    """Everything that was said in a run and in the runs above it."""

    def __init__(self, extra_words: Mapping[str, Sequence[str]]) -> None:
        self.user: list[Chunk] = []
        self.trusted: list[tuple[str, Chunk]] = []
        self.outside: list[Passage] = []
        self.entries: dict[tuple[frozenset[str], frozenset[str]], KnownEntry] = {}
        self.listed: set[str] = set()
        self.origins: dict[str, None] = {}
        self.actions = ActionWords(extra_words)
        self._calls: dict[str, str] = {}
        self._programs = False

    @property
    def hidden(self) -> bool:
        """True when some untrusted text cannot be compared: it was redacted, or a program keeps it to itself."""
        return REDACTED in self.origins or self._programs

    def hear(self, origins: Sequence[str]) -> None:
        """The program that makes the call has read from these sources."""
        self._programs = bool(origins)
        self.origins |= dict.fromkeys(origins)

    def take(self, messages: Iterable[Message]) -> None:
        """Some more messages."""
        for message in messages:
            if isinstance(message, AssistantMessage):
                self._calls |= {
                    call.id: " ; ".join([v for _, v in leaves(call.arguments)] + keys_in(call.arguments.values()))
                    for call in message.tool_calls
                }
            elif isinstance(message, UserMessage):
                self._take_words(message)
            elif isinstance(message, ToolResultMessage):
                self._take_result(message)

    def approve(self, values: Iterable[str]) -> None:
        """A person has approved a call with these values: they count as the user's own."""
        self.user += [Chunk(phrase(value), frozenset(addresses(value))) for value in values]

    def _take_words(self, message: UserMessage) -> None:
        if message.origins:
            self._take_outside(message.text, message.origins)
        elif not message.internal:
            self.user.append(Chunk(phrase(message.text), frozenset(addresses(message.text))))
            self.actions.take(message.text)

    def _take_result(self, message: ToolResultMessage) -> None:
        asked, text = self._calls.pop(message.call_id, ""), message.text
        if message.origins:
            self._take_outside(text, message.origins)
            return
        if message.is_error:
            return  # our own words, or a failure that repeats what it was given
        found, words = addresses(text), phrase(text)
        labels = {canonical: _label(words, written, message.tool_name) for canonical, written in found.items()}
        chunk = Chunk(words, frozenset(found), phrase(asked), frozenset(addresses(asked)), labels)
        self.trusted.append((message.tool_name, chunk))
        self.listed |= {phrase(value) for _, value in _fields(text)} - {chunk.echo}

    def _take_outside(self, text: str, origins: tuple[str, ...]) -> None:
        self.origins |= dict.fromkeys(origins)
        data = _parsed(text)
        whole = (
            frozenset({phrase(value) for _, value in leaves(data)}) if data is not None else frozenset({phrase(text)})
        )
        self.outside.append(Passage(phrase(text), frozenset(addresses(text)), origins, whole))
        if data is not None:
            self.listed |= whole
            for record in _records(data):
                entry = _entry(record)
                self.entries[entry.values, entry.names] = entry


def leaves(data: object, name: str = "") -> list[tuple[str, str]]:
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
    before = words.partition(phrase(written) or " ")[0].split()[-_LABEL:]
    return tuple([word for word in significant(" ".join(before) or phrase(tool)) if word not in _GENERIC])


def _parsed(text: str) -> Any:
    """The data of a result that is JSON of more than one value; None for any other text."""
    if text[:1] not in ("{", "["):
        return None
    try:
        data = loads(text)
        return data if len(leaves(data)) else None
    except (ValueError, RecursionError):
        return None


def _fields(text: str) -> list[tuple[str, str]]:
    data = _parsed(text)
    return [] if data is None else leaves(data)


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
    values: set[str] = set()
    names: set[str] = set()
    links: set[str] = set()
    for key, value in record.items():
        for _, one in leaves(value if not isinstance(value, Mapping) else list(value), str(key)):
            words = phrase(one)
            values.add(words)
            links |= set(addresses(one).values())
            if any(part in str(key).casefold() for part in _NAMING):
                names |= {words, _without_ending(one)}
    names = {name for name in names if sum(char.isalpha() for char in name) >= _SHORT}
    return KnownEntry(frozenset(values), frozenset(names), frozenset(links))


def _without_ending(text: str) -> str:
    stem, dot, ending = text.rpartition(".")
    return phrase(stem) if dot and ending.isalnum() and len(ending) <= 5 and "@" not in text else ""  # noqa: PLR2004
