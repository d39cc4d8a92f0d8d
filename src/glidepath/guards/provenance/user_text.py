"""A message of the user: what it names, and which role it gives to whom."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from glidepath.guards.provenance.action_words import is_reading, is_verb
from glidepath.guards.provenance.words import (
    addresses_at,
    find_addresses,
    has_loose_symbols,
    is_common,
    is_generic,
    is_telling,
    list_text_around_addresses,
    normalize_phrase,
    normalize_spelling,
    normalize_text,
    normalize_with_symbols,
    word_set,
)

__all__ = ["UserText", "role_of"]

TO, FROM, NOT, TOPIC = "to", "from", "not", "topic"
_PIECE = re.compile(r"[^\W_]+|[^\w\s]|\n")
_OPENS, _CLOSES = "'\"`\u2018\u201c\u00ab\u2039\u201e\u201a", "'\"`\u2019\u201d\u00bb\u203a\u201c\u2018"
_SOURCES = word_set("from by von vom")
_DESTINATIONS = word_set("to with cc bcc into an mit")
_OTHER_PLACES = word_set("for in on at via onto over under after before through")
_TOPICS = word_set("about regarding concerning re against like")
_MESSAGES = word_set(
    "mail mails email emails message messages letter letters note notes post posts article articles request "
    "requests invoice invoices text texts comment comments question questions reply answer news report reports"
)
_HAS_SAID = word_set(
    "wrote writes sent sends said says asked asks told tells mailed emailed posted posts claims claimed wants "
    "wanted forwarded forwards shared replied answered suggested recommends recommended reports reported is was "
    "has had are were keeps did does will"
)
"""What somebody did who is a source: whom the mail is from, not whom it goes to."""
_BACK = word_set("back refund return reimburse reply respond answer")
"""Words that make the source the destination."""
_THEY = word_set("them him her")
_MENTIONED = _THEY | word_set("it that this the my each every all those these")
_TOLD = word_set("send pay tell ask answer inform notify message write email dm refund give owe")
_THINGS = word_set(
    "payment payments mail mails email emails message messages file files document documents event events meeting "
    "meetings appointment appointments list lists note notes channel channels invoice invoices bill bills report "
    "reports project ticket tickets task tasks page pages folder folders order orders transaction transactions "
    "thread article articles"
)
"""Kinds of records: with a telling word in front, two words name one, such as rent payment."""
_ONE_OF_THINGS = [[word] for word in _THINGS]
_BEGINS = word_set("starting beginning starts begins")
_WHOSE = word_set("her his their its s")
_AT = word_set("on at in from under")
_NEGATIONS = word_set("not never don dont without avoid cannot except excluding neither nor ignore skip block unlike")
_NOT_NEGATED = word_set("forget hesitate fail only")
_TURNS = word_set("and then but instead however rather so")
_PEOPLE_VERBS = word_set(
    "tell ask remind notify message dm email invite add call text contact inform pay mail write answer send "
    "congratulate"
)
_PLACES = word_set("channel channels group user users contact person account folder file called named titled user's")
_RANKS = word_set("top first last next past previous about around over under least most exactly only another nearly")
_STOPS = frozenset(".!?;\n")
_BEHIND = 40  # parts that are looked at before a name, for its role
_CLOSE = 7  # words between a field, or reply, and the record whose field it is
_LONG_NUMBER = 4  # digits of a number that nobody uses for a count
_ENGLISH = 0.15  # the share of common words that an English sentence has
_CASED = 0.5  # the share of capitalised words from which capitals say nothing
_NAMES_FROM = word_set("from sender source author origin by owner")
_NAMES_TO = word_set(
    "to cc bcc recipient recipients receiver receivers user users username person people contact contacts "
    "participant participants attendee attendees guest guests invitee invitees member members account accounts "
    "iban phone chat channel channels group groups address addresses handle url uri host webhook endpoint target "
    "destination email mails emails recipient's beneficiary payee reviewer reviewers assignee"
)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+")


def role_of(argument: str) -> str:
    """What the name of an argument makes of its value: `to`, `from`, or empty when it is a thing."""
    parts = [part.casefold() for part in _PARTS.findall(argument)]
    if not _NAMES_FROM.isdisjoint(parts):
        return FROM
    if parts[-1:] in (["id"], ["ids"]) and parts[:-1] in (["email"], ["mail"], ["message"]):
        return ""
    return "" if _NAMES_TO.isdisjoint(parts) else TO


class UserText:
    """What a person wrote, by its places."""

    def __init__(self, text: str) -> None:
        self.words = normalize_phrase(text)
        self.literal = normalize_with_symbols(text)
        self._text = normalize_spelling(text)
        found = list(_PIECE.finditer(self._text))
        self._raw = [match[0] for match in found]
        self._parts = [normalize_text(match[0]) for match in found]
        self._starts = [match.start() for match in found]
        self._ends = [match.end() for match in found]
        self._inside = [False] * len(found)
        self.addresses: dict[str, list[tuple[int, int]]] = {}
        for canonical, _, start, end in addresses_at(self._text):
            first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
            self._inside[first:last] = [True] * (last - first)
            self.addresses.setdefault(canonical, []).append((first, last))
        self._places = [place for place, part in enumerate(self._parts) if part[0].isalnum()]
        self._at: dict[str, list[int]] = {}
        for number, place in enumerate(self._places):
            self._at.setdefault(self._parts[place], []).append(number)
        words = [self._parts[place] for place in self._places if not self._inside[place]]
        letters = [self._raw[place] for place in self._places if self._raw[place].isalpha()]
        self._is_english = sum(map(is_common, words)) >= _ENGLISH * len(words)
        self._is_cased = sum(one[0].isupper() for one in letters) > _CASED * max(len(letters), 6)
        self._phrases: tuple[str, ...] | None = None
        self._goes_back = self._is_reply_to_source()

    # --- whom and what a call may be about ----------------------------------------------------------------------

    def accounts_for(self, value: str, role: str, said: Sequence[UserText] = (), *, reads: bool = False) -> bool:
        """True when the user gave this value that role. Words next to an address may be anywhere in what was `said`.

        `reads`: the call fetches something, so that it is about the source.
        """
        found = find_addresses(value)
        if found:
            return all(self._is_address_allowed(one, role, reads=reads) for one in found) and all(
                any(normalize_phrase(rest) in one.words for one in (self, *said))
                and not has_loose_symbols(rest.strip(" <>,;[]()\"'"), self.literal)
                for rest in list_text_around_addresses(value)
            )
        words = normalize_phrase(value).split()
        if not words or has_loose_symbols(value, self.literal):
            return False
        return any(self._is_telling(first, last, role, reads=reads) for first, last in self._find_occurrences(words))

    def _is_address_allowed(self, canonical: str, role: str, *, reads: bool) -> bool:
        places = self.addresses.get(canonical, ())
        return any(self._is_role_allowed(first, last, role, reads=reads) for first, last in places)

    def _is_role_allowed(self, first: int, last: int, role: str, *, reads: bool) -> bool:
        """The role of what is at these parts allows this use of it."""
        given = self._role(first, last)
        if given == FROM:
            return role == FROM or reads or self._goes_back
        if given == TOPIC:
            return role != TO or reads or self._goes_back
        return given != NOT and not (given == TO and role == FROM)

    def _is_telling(self, first: int, last: int, role: str, *, reads: bool) -> bool:
        places = [place for place in range(first, last) if self._parts[place][0].isalnum()]
        words = [self._parts[place] for place in places]
        if not self._is_role_allowed(first, last, role, reads=reads):
            return False
        if self._is_quoted(first, last):
            return True
        if all(word.isdecimal() for word in words):
            return self._is_number_of_something(first, "".join(words))
        nouns = [self._parts[place] for place in places if not self._is_verb_at(place)]
        telling = sum(map(is_telling, nouns))
        if role != TO or telling > 1:
            return not all(map(is_common, nouns))
        return self._is_addressed(first, last, named=telling > 0)

    def _is_number_of_something(self, first: int, digits: str) -> bool:
        """It is the number of a thing, such as mail 7, and no count, such as the 7 newest mails."""
        before = self._parts[first - 1] if first else ""
        if len(digits) >= _LONG_NUMBER or before == "#" or self._inside[first]:
            return True
        if not before[:1].isalpha() or is_common(before) or before in _RANKS:
            return False
        return not self._is_verb_at(first - 1)

    def _is_verb_at(self, place: int) -> bool:
        return is_verb(self._parts[place], self._parts[place - 1] if place else ".")

    def _is_addressed(self, first: int, last: int, *, named: bool) -> bool:
        """The user makes it a person or a place: by a capital, a sign, or the words next to it."""
        if named and (self._is_capital(first, last) or self._role(first, last) == FROM):
            return True  # a source that gets an answer
        before, behind = self._neighbors(first, last)
        if before in ("@", "#"):
            return True
        return named and (
            before in _PEOPLE_VERBS or before in _PLACES or behind in _PLACES or self._role(first, last) == TO
        )

    def _neighbors(self, first: int, last: int) -> tuple[str, str]:
        before = first - 1
        while before >= 0 and self._parts[before] in ("the", "our", "my", "a"):
            before -= 1
        behind = self._parts[last] if last < len(self._parts) else ""
        return (self._parts[before] if before >= 0 else ""), behind

    def _is_reply_to_source(self) -> bool:
        """It says what a source gets back: "send them the difference", "refund", "reply"; not "send them to Ann"."""
        for place, part in enumerate(self._parts):
            one, other = (*self._parts[place + 1 : place + 3], "", "")[:2]
            if part in _TOLD and one in _THEY and other != "to":
                return True
            if part in _BACK and (one != "to" or other in _MENTIONED):
                return True
        return False

    # --- names of records ---------------------------------------------------------------------------------------

    def has_name(self, name: str) -> bool:
        """True when the user has used this as the name of something: in quotes, capitalised, or two telling words."""
        return any(self._is_name(first, last) for first, last in self._find_occurrences(normalize_phrase(name).split()))

    def name_phrases(self) -> tuple[str, ...]:
        """Two words in a row that name something anywhere in a record: "Dental check-up", "grocery list"."""
        if self._phrases is None:
            places = [place for place in self._places if not self._inside[place]]
            found = [
                normalize_phrase(self._text[self._starts[one] : self._ends[other]])
                for one, other in itertools.pairwise(places)
                if other <= one + 2 and self._is_telling_at(one) and self._is_name(one, other + 1)
            ]
            self._phrases = tuple(dict.fromkeys(found))
        return self._phrases

    def prefixes(self) -> Iterator[str]:
        """How a name begins that the user did not write in full: "the channel starting with External"."""
        for place, part in enumerate(self._parts[1:-1], 1):
            if part == "with" and self._parts[place - 1] in _BEGINS and is_telling(self._parts[place + 1]):
                yield self._parts[place + 1]

    def points_to_mail_at(self, canonical: str) -> bool:
        """True when the user says that a mail address is at this one: "her e-mail is on www.ann.example"."""
        for first, _ in self.addresses.get(canonical, ()):
            before = [part for part in self._parts[max(0, first - 12) : first] if part != "-"]
            for place, part in enumerate(before):
                words = "".join(before[place : place + 2])
                if part in _WHOSE and (words[len(part) :] in ("e", "email", "mail")) and _AT & set(before[place:]):
                    return True
        return False

    def names_field(self, name: str, fields: Sequence[str]) -> bool:
        """True when the user means this field of the record that they quote: "the participants of 'Kick-off'"."""
        wanted = set(fields) | {f"{field}s" for field in fields} | {field.removesuffix("s") for field in fields}
        if not wanted.isdisjoint(("sender", "from", "author")):
            wanted |= {"reply", "respond"}
        for first, last in self._find_occurrences(normalize_phrase(name).split()):
            if not self._is_quoted(first, last):
                continue
            before: list[str] = []
            for place in range(first - 1, -1, -1):
                part = self._parts[place]
                if part in wanted:
                    return True
                if part in _STOPS or part == "," or len(before) >= _CLOSE:
                    break
                if part[0].isalnum() and (is_telling(part) or self._is_verb_at(place)):
                    break
                before.append(part)
        return False

    def _is_name(self, first: int, last: int) -> bool:
        if self._is_quoted(first, last):
            return True
        if self._inside[first] or not self._is_english:
            return False
        count = sum(map(self._is_telling_at, range(first, last)))
        if count == 1 and not self._is_capital(first, last):
            return self._parts[last - 1] in _THINGS or self._parts[last : last + 1] in _ONE_OF_THINGS
        return count > 0

    def _is_telling_at(self, place: int) -> bool:
        """A word that tells, or the first part of a compound that does: check-up."""
        part = self._parts[place]
        if not part[0].isalpha():
            return part.isdecimal() and len(part) >= _LONG_NUMBER
        joined = self._parts[place + 1 : place + 2] == ["-"] and self._ends[place] == self._starts[place + 1]
        return (is_telling(part) and not self._is_verb_at(place)) or (joined and not is_common(part))

    def _is_quoted(self, first: int, last: int) -> bool:
        """Exactly this is in quotes, as far as words go."""
        start, end = self._starts[first], self._ends[last - 1]
        text = self._text
        while end < len(text) and text[end] in ".,!?:;" and text[end + 1 : end + 2] and text[end + 1] in _CLOSES:
            end += 1
        opened = start > 0 and text[start - 1] in _OPENS and (start == 1 or not text[start - 2].isalnum())
        return opened and end < len(text) and text[end] in _CLOSES and not text[end + 1 : end + 2].isalnum()

    def _is_capital(self, first: int, last: int) -> bool:
        """All words that tell begin with a capital, which says something: not at the start of a sentence."""
        if self._is_cased or not self._is_english:
            return False
        telling = [place for place in range(first, last) if is_telling(self._parts[place])]
        starts = first == 0 or self._parts[first - 1] in (".", "!", "?", ":", "\n", "-", "*")
        return (
            bool(telling)
            and all(self._raw[place][0].isupper() for place in telling)
            and not (starts and telling == [first])
        )

    # --- roles --------------------------------------------------------------------------------------------------

    def _find_occurrences(self, words: list[str]) -> Iterator[tuple[int, int]]:
        for number in self._at.get(words[0], ()) if words else ():
            places = self._places[number : number + len(words)]
            if [self._parts[place] for place in places] == words:
                yield places[0], places[-1] + 1

    def _role(self, first: int, last: int) -> str:
        """The role of what is at these parts: `to`, `from`, `not`, `topic`, or empty when the user gives it none."""
        if self._is_source(last):
            return FROM
        role, is_behind_verb = "", False
        for place in range(first - 1, max(first - _BEHIND, 0) - 1, -1):
            part = self._parts[place]
            if self._inside[place]:
                continue
            if part in _STOPS or (is_behind_verb and (part == "," or part in _TURNS)):
                break
            if part in _NEGATIONS and _NOT_NEGATED.isdisjoint(self._parts[place + 1 : place + 5]):
                return NOT
            if not role:
                role = self._preposition(place)
            if self._is_verb_at(place):
                role, is_behind_verb = role or (TOPIC if is_reading(part) else "-"), True
        return role.removeprefix("-")

    def _preposition(self, place: int) -> str:
        part = self._parts[place]
        if part in _SOURCES or (part == "of" and place and self._parts[place - 1] in _MESSAGES):
            return FROM
        if part in _DESTINATIONS:
            return TO
        if part in _TOPICS:
            return TOPIC
        return "-" if part in _OTHER_PLACES else ""

    def _is_source(self, last: int) -> bool:
        """What follows makes it a source: "eve wrote", "eve's mail"."""
        behind = self._parts[last : last + 3]
        if behind[:1] and behind[0] in _CLOSES:
            if behind[1:2] == ["s"]:
                return behind[2:3] != [] and (behind[2] in _MESSAGES or is_generic(behind[2]))
            behind = behind[1:]
        return bool(behind) and behind[0] in _HAS_SAID
