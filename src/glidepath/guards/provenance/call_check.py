"""Whether a call is accounted for: by the user's words, by trusted results, or by a record that the user named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from glidepath._wire import Value
from glidepath.guards.provenance.action_words import verb_kinds
from glidepath.guards.provenance.call_rules import CallRules
from glidepath.guards.provenance.known_text import KnownEntry, KnownText, keys_in, list_leaves
from glidepath.guards.provenance.user_text import UserText, role_of
from glidepath.guards.provenance.words import (
    find_addresses,
    is_moment,
    list_meaningful_words,
    longest_copy,
    normalize_phrase,
    normalize_text,
    normalize_with_symbols,
    word_set,
)

__all__ = ["Suspicion", "find_suspicions"]

COPIED = 5  # words in a row that are a copy
SHARED = 2  # words that content has in common with what the user said, to count as asked for
_QUANTITIES = word_set(
    "amount amounts price cost sum total value budget count limit max min top n quantity size length width height page "
    "pages offset depth level rating score rate percent percentage days hours minutes seconds duration year month day "
    "hour minute timeout interval priority temperature zoom volume"
)
"""What the name of an argument contains when a number in it says how much."""
_POSTAL = 7  # digits of a postal code, which a place may have
_SHOWN = 80  # characters of a value that are shown


class Suspicion(Value, frozen=True):
    """Why a call is not accounted for, and the untrusted sources that are to blame."""

    why: str
    origins: tuple[str, ...]


class _Leaf(Value, frozen=True):
    name: str
    value: str
    sources: tuple[str, ...]
    reads: bool = False
    """The call fetches something: its target is where that comes from."""

    @property
    def is_content(self) -> bool:
        return "content" in self.sources


def find_suspicions(
    name: str, tool: object, arguments: Mapping[str, Any], known: KnownText, rules: CallRules
) -> list[Suspicion]:
    """What about this call is not accounted for; nothing when all of it is."""
    judged = _values_to_check(name, tool, arguments, rules)
    targets = [leaf for leaf in judged if not leaf.is_content]
    content = [leaf for leaf in judged if leaf.is_content]
    found = [
        Suspicion(
            f"{leaf.name}={_shorten(leaf.value)} comes neither from you nor from a source you trust", _from(leaf, known)
        )
        for leaf in targets
        if not _is_accounted_for(leaf, known, alone=len(judged) == 1)
    ]
    found += [one for leaf in content for one in _foreign_addresses(leaf, known)]
    theirs = any(_is_said_by_user(leaf, known) for leaf in targets)
    if not theirs:
        found += [one for leaf in content if (one := _find_copied_text(leaf, known)) is not None]
    if content and not targets and not found and not any(_is_shared_with_user(leaf, known) for leaf in content):
        found.append(Suspicion("nothing in it comes from your own words", tuple(known.origins)))
    if known.hidden and content and not found:
        why = "what was read before is redacted, or inside a program, and cannot be compared"
        found.append(Suspicion(why, tuple(known.origins)))
    if not known.actions.ask_for(name):
        found.append(Suspicion(f"your own words do not ask for {name}", tuple(known.origins)))
    return found


def _values_to_check(name: str, tool: object, arguments: Mapping[str, Any], rules: CallRules) -> list[_Leaf]:
    """The values that have to come from somewhere: no flags, moments, amounts, or words of the tool's own schema."""
    schema = getattr(tool, "parameters", None)
    schema = schema if isinstance(schema, Mapping) else {}
    properties = schema.get("properties") or {}
    found = []
    reads = "fetch" in verb_kinds(name)
    for key, given in arguments.items():
        part = properties.get(key)
        chosen, declared = _find_offered_words(schema, part), _fields(schema, part)
        keys = _find_undescribed_keys([one for one in keys_in([given]) if one not in declared], tool, schema)
        if part is None and (properties or find_addresses(key)):
            keys.append(key)
        for inner, value in (*list_leaves(given, str(key)), *[(str(key), one) for one in keys]):
            sources = rules.sources(name, inner if inner != key else str(key))
            if "any" in sources or not value.strip() or value in chosen or is_moment(value):
                continue
            if value not in keys and _is_amount(inner, value, given):
                continue
            found.append(_Leaf(inner, value, sources, reads))
    return found


def _find_undescribed_keys(keys: list[str], tool: object, schema: Mapping[str, Any]) -> list[str]:
    """The keys that the tool's own description does not mention."""
    if not keys:
        return keys
    known = set(normalize_phrase(f"{getattr(tool, 'description', '')} {schema}").split())
    return [one for one in keys if not known.issuperset(normalize_phrase(one).split())]


def _is_amount(name: str, value: str, given: object) -> bool:
    """A number that says how much or how often. Any other one may be whom or what: a text of digits always is."""
    if _holds_text(given, value) or not _is_number(value):
        return False
    return "." in value or not _QUANTITIES.isdisjoint(normalize_phrase(name).split())


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _holds_text(given: object, value: str) -> bool:
    """True when the value is a text somewhere in there, and not a number."""
    waiting = [given]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting += list(one.values())
        elif isinstance(one, list | tuple):
            waiting += list(one)
        elif one == value:
            return True
    return False


def _find_offered_words(schema: Mapping[str, Any], part: object, depth: int = 0) -> frozenset[str]:
    """The words that a parameter's schema itself offers, and its default."""
    if not isinstance(part, Mapping) or depth > 4:  # noqa: PLR2004 - deep enough for optional lists of choices
        return frozenset()
    found = {str(one) for one in part.get("enum") or ()} | {
        str(part[key]) for key in ("const", "default") if key in part
    }
    if isinstance(ref := part.get("$ref"), str):
        found |= _find_offered_words(schema, schema.get("$defs", {}).get(ref.rpartition("/")[2]), depth + 1)
    for inner in (part.get("items"), *(part.get("anyOf") or ()), *(part.get("properties") or {}).values()):
        found |= _find_offered_words(schema, inner, depth + 1)
    return frozenset(found)


def _fields(schema: Mapping[str, Any], part: object, depth: int = 0) -> frozenset[str]:
    """The names that a parameter's schema itself gives to fields."""
    if not isinstance(part, Mapping) or depth > 4:  # noqa: PLR2004 - as deep as choices
        return frozenset()
    inside = part.get("properties") or {}
    found = frozenset(map(str, inside))
    if isinstance(ref := part.get("$ref"), str):
        found |= _fields(schema, schema.get("$defs", {}).get(ref.rpartition("/")[2]), depth + 1)
    further = (part.get("items"), part.get("additionalProperties"), *(part.get("anyOf") or ()), *inside.values())
    return found.union(*[_fields(schema, inner, depth + 1) for inner in further])


# --- where a value comes from -------------------------------------------------------------------------------------


def _is_accounted_for(leaf: _Leaf, known: KnownText, *, alone: bool) -> bool:
    for source in leaf.sources:
        if source == "user":
            good = _is_said_by_user(leaf, known)
        elif source == "trusted":
            good = any(chunk.has(leaf.value, known.user) for _, chunk in known.trusted)
        elif source == "named":
            good = _is_named_by_user(leaf, known) or _is_begun_by_user(leaf, known) or _is_pointed_to(leaf, known)
            good = good or (alone and _is_linked(leaf, known))
        elif source == "listed":
            good = normalize_with_symbols(leaf.value) in known.listed
        else:
            good = any(fnmatchcase(tool, source) and chunk.has(leaf.value, known.user) for tool, chunk in known.trusted)
        if good:
            return True
    return False


def _is_said_by_user(leaf: _Leaf, known: KnownText) -> bool:
    role = role_of(leaf.name)
    return any(text.accounts_for(leaf.value, role, known.user, reads=leaf.reads) for text in known.user) or any(
        chunk.has(leaf.value, known.user) for chunk in known.approved
    )


def _is_named_by_user(leaf: _Leaf, known: KnownText) -> bool:
    """It says which one the record is that the user named; or it is in a field of it that they named, too."""
    words = normalize_with_symbols(leaf.value)
    found = [entry for entry in known.entries.values() if words in entry.values]
    if not found:
        return False
    called = known.find_called_names()
    for entry in found:
        names = _names_of(entry, called)
        if any(text.names_field(name, entry.fields[words]) for name in names for text in known.user):
            return True
        if words in entry.ids and not role_of(leaf.name) and (names or _is_one_of_a_kind(entry, known)):
            return True
    return False


def _names_of(entry: KnownEntry, called: Mapping[str, list[KnownEntry]]) -> list[str]:
    """The names by which the user called this record and no other one: of several nobody knows which."""
    return [
        name
        for name in entry.names
        if name in called and all(owners == [entry] for other, owners in called.items() if name in other)
    ]


def _is_one_of_a_kind(entry: KnownEntry, known: KnownText) -> bool:
    """Of all records it alone has two words that name something, or the size that the user asked for."""
    if any(owners == [entry] for owners in known.find_mentioned_phrases().values()):
        return True
    return entry.size is not None and any(
        entry.size == size and any(f" {word} " in text.words for text in known.user)
        for word, size in known.find_extremes().items()
    )


def _is_begun_by_user(leaf: _Leaf, known: KnownText) -> bool:
    """It is the only one in the lists that begins as the user said."""
    value = normalize_with_symbols(leaf.value)
    if value not in known.listed or find_addresses(leaf.value):
        return False
    begins = [start for text in known.user for start in text.prefixes() if value.startswith(start)]
    return any(sum(one.startswith(start) for one in known.listed) == 1 for start in begins)


def _is_pointed_to(leaf: _Leaf, known: KnownText) -> bool:
    """It is the only mail address at an address of the user's, who said that it is there."""
    for one in known.outside:
        mails = [address for address in one.addresses if "@" in address]
        if mails == [normalize_text(leaf.value)] and any(
            text.points_to_mail_at(place) for place in one.place for text in known.user
        ):
            return True
    return False


def _is_linked(leaf: _Leaf, known: KnownText) -> bool:
    """It is one whole link in a record that the user named: to follow it carries nothing out, and reaches nobody."""
    if not leaf.reads or "@" in leaf.value:
        return False
    return leaf.value in find_addresses(leaf.value).values() and any(
        leaf.value in entry.links for owners in known.find_called_names().values() for entry in owners
    )


def _is_shared_with_user(leaf: _Leaf, known: KnownText) -> bool:
    """Content that is the user's own, or has words in common with it."""
    words = set(list_meaningful_words(normalize_phrase(leaf.value)))
    if _is_said_by_user(leaf, known):
        return True
    return any(len(words.intersection(chunk.words.split())) >= SHARED for chunk in known.user)


def _foreign_addresses(leaf: _Leaf, known: KnownText) -> list[Suspicion]:
    found = []
    for canonical, written in find_addresses(leaf.value).items():
        given = [*[one.addresses for one in known.user], *[one.addresses for one in known.approved]]
        if any(canonical in one for one in given):
            continue
        if (
            canonical.isdecimal()
            and len(canonical) == _POSTAL
            and normalize_phrase(leaf.name).split()[-1:] == ["location"]
        ):
            continue
        brought = [
            chunk
            for _, chunk in known.trusted
            if canonical in chunk.addresses
            and canonical not in chunk.echoed
            and not chunk.repeats(normalize_phrase(written))
        ]
        if any(
            not _is_secret(canonical) or _is_wanted(chunk.labels.get(canonical, ()), known.user) for chunk in brought
        ):
            continue
        if brought:
            why = f"{leaf.name} contains {_shorten(written)}, which your own words do not ask for"
            found.append(Suspicion(why, tuple(known.origins)))
            continue
        origins = [name for one in known.outside if canonical in one.addresses for name in one.origins]
        why = f"{leaf.name} contains {_shorten(written)}, which comes neither from you nor from a source you trust"
        found.append(Suspicion(why, tuple(dict.fromkeys(origins)) or tuple(known.origins)))
    return found


def _is_secret(canonical: str) -> bool:
    """True for a number of an account, a card, a passport or a phone, and for a key; not for what leads somewhere."""
    return re.search(r"[.@:]", canonical) is None


def _is_wanted(label: tuple[str, ...], said: list[UserText]) -> bool:
    """True when the user's words name what the label names."""
    return any(f" {word} " in one.words or f" {word}s " in one.words for word in label for one in said)


def _find_copied_text(leaf: _Leaf, known: KnownText) -> Suspicion | None:
    """Content that was copied out of the middle of an outside text, in a call whose target is not the user's."""
    words = normalize_phrase(leaf.value)
    for one in known.outside:
        copy = longest_copy(words, one.words, COPIED)
        if copy and f" {copy} " not in one.whole and not any(f" {copy} " in chunk.words for chunk in known.user):
            return Suspicion(f"{leaf.name} repeats {_shorten(copy)}", one.origins)
    return None


def _from(leaf: _Leaf, known: KnownText) -> tuple[str, ...]:
    """The sources whose text contains it; all of them when none does verbatim."""
    found, words = find_addresses(leaf.value), normalize_phrase(leaf.value)
    origins = [
        name
        for one in known.outside
        if (one.addresses.issuperset(found) if found else words and words in one.words)
        for name in one.origins
    ]
    return tuple(dict.fromkeys(origins)) or tuple(known.origins)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
