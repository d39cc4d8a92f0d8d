"""Text made comparable: words without spelling, and the addresses in a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator


def word_set(words: str) -> frozenset[str]:
    """The words of a line."""
    return frozenset(words.split())


_HIDDEN = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]")
_WORD = re.compile(r"[^\W_]+")
_MOMENT = re.compile(
    r"(?<![\w.-])(?:\d{4}-\d\d?-\d\d?(?:[t ]\d\d?:\d\d(?::\d\d(?:\.\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?|\d\d?:\d\d(?::\d\d)?|"
    r"\d\d?[./]\d\d?[./]\d{2,4})(?![\w-])",
    re.IGNORECASE,
)
_DOT = re.compile(
    r"(?<=\w)\u3002(?=[a-z0-9-]{2,}|\u4e2d[\u56fd\u570b]|\u516c\u53f8|\u7f51\u7edc|\u9999\u6e2f)", re.IGNORECASE
)
"""An ideographic full stop in front of what can end a host's name."""
_RUN_ON = re.compile(r"(?<=\w)([.!?])(?=[A-Z][a-z])")
_ADDRESS = re.compile(
    r"(?P<url>[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`\]]+|(?:mailto|tel|sms|data|javascript|callto):[^\s<>\"'`]+)"
    r"|(?P<mail>(?<![\w.+%&*=?^{|}~-])[\w.+%&*=?^{|}~-]{1,80}@[\w-]+(?:\.[\w-]+)*)"
    r"|(?P<ip6>(?<![\w:])(?=[0-9a-f:]*::|(?:[0-9a-f]+:){7})(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:]))"
    r"|(?P<ip>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?:/[^\s<>\"'`]*)?)"
    r"|(?P<host>(?<![\w@.-])(?:[\w-]+\.)+[^\W\d_]{2,24}(?::\d+)?(?:[/?#][^\s<>\"'`]*)?)"
    r"|(?P<spelled>(?<!\w)[\w-]+(?:\s*[\[({]\s*(?:dot|punkt|\.)\s*[\])}]\s*[^\W\d_]{2,}|\s+dot\s+(?:[\w-]+\s+dot\s+)*"
    r"(?:ai|app|at|biz|cc|ch|cn|co|com|de|dev|eu|example|fr|info|io|me|net|online|onion|org|ru|shop|site|uk|us|xyz))"
    r"(?!\w)|(?<!\w)www\s+[\w-]+\s+[^\W\d_]{2,24}(?!\w))"
    r"|(?P<account>(?<![\w-])[a-z]{2}\d{2}(?:[a-z0-9]{8,30}|"
    r"(?: (?=[a-z]{0,3}\d)[a-z0-9]{4}){2,7}(?: \d{1,4})?)(?![\w-]))"
    r"|(?P<number>(?<![\w.-])\+?\d(?:[ ()./-]{0,2}\d){7,}(?![\w-])|(?<![\w.-])\d{3}[-.]\d{4}(?![\w-]))"
    r"|(?P<opaque>(?<![\w/+=-])(?=[\w/+=-]*\d)(?=[\w/+=-]*[a-z])[\w/+=-]{24,})"
    r"|(?P<handle>(?<![\w.])@[\w-]{2,})",
    re.IGNORECASE,
)
_ADDRESSES_HAVE = re.compile(r"[\d.:@]|[^\x00-\x7f]|dot|punkt|www", re.IGNORECASE)
"""What every address has one of: most words need no closer look."""
_FILES = word_set(
    "bmp c cfg conf cpp css csv doc docx gif go h html ics ini java jpeg jpg js json lock log mp3 mp4 odt pdf png "
    "ppt pptx rb rst rtf sql svg tar tex toml ts tsv txt wav xls xlsx xml yaml yml"
)
"""Suffixes that make a name without a path count as a file: none that is a domain as well, such as md, py, rs or sh."""
_COMMON = word_set(
    "a about above after again all almost already also although always am an and another any anybody anyone "
    "anything are as at be because been before being below between both but by can cannot could did do does doing "
    "done during each either else enough even ever every everybody everyone everything few for from further had "
    "has have having he hello her here hers hey hi him his how however i if in into is it its itself just least "
    "less let lets like many may maybe me might mine more most much must my myself neither never no nobody none "
    "nor not nothing now of off often on once one only onto or other others ought our ours out over own per "
    "perhaps please quite rather really same shall she should since so some somebody someone something soon still "
    "such than thank thanks that the their theirs them then there these they thing things this those though "
    "through thus till to together too under until up upon us very via was way we well were what whatever when "
    "where whether which while who whole whom whose why will with within without would yes yet you your yours "
    "yourself"
)
_GENERIC = word_set(
    "account accounts action actions address addresses agenda amount answer app appointment appointments article "
    "articles attachment attachments bill bills bookmark calendar calendars call calls channel channels chat "
    "chats client clients code colleague colleagues comment comments company contact contacts content contents "
    "conversation copy customer customers data database date dates day days deadline description detail details "
    "document documents draft drafts drive email emails entry entries event events feedback file files folder "
    "folders following friend friends group home hour hours id image images important inbox info information "
    "instruction instructions internet invoice invoices issue issues item items job last latest letter letters "
    "line link links list lists location mail mailbox mails meeting meetings member members memo message messages "
    "minute minutes money month months morning name names new newest news newsletter next note notes number "
    "numbers office old oldest online order orders page pages password payment payments people person photo "
    "photos picture pictures post posts price prices project question questions recent recipient recipients "
    "record records reminder reply report reports request response result results review reviews row sender "
    "server site sites slack status subject summary system table task tasks team text texts thread ticket tickets "
    "time times title today todo tomorrow tonight topic transaction transactions transfer unread update updates "
    "urgent user users value web webpage website websites week weekend weeks work world year years yesterday "
    "monday tuesday wednesday thursday friday saturday sunday january february march april june july august "
    "september october november december"
)
"""Words for the things that people ask about every day: none of them says which one is meant."""
_EVERYDAY = _COMMON | _GENERIC
_HARMLESS = re.compile(r"[\s\w.,:'\"()#@&!\u2018-\u201f-]*")
"""What a value may consist of without its symbols being the user's."""
_TRICK = re.compile(r"^\s*(?:[-/~\\]|\.\.?[/\\]?(?:\s|$))|\.\.(?:\W|$)")
"""Symbols that lead elsewhere: out of a folder, to its root, or into a program's options."""


def normalize_text(text: str) -> str:
    """The text in one spelling: no invisible characters, no compatibility forms, no case."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))
    return text.casefold()


def normalize_phrase(text: str) -> str:
    """The words of a text between blanks, with a blank at either end: a phrase is in a text when its words are."""
    found = _WORD.findall(normalize_text(text))
    return f" {' '.join(found)} " if found else ""


def normalize_with_symbols(text: str) -> str:
    """The text in one spelling with its symbols, single blanks in it and none around it."""
    return " ".join(normalize_text(text).split())


def has_loose_symbols(value: str, text: str) -> bool:
    """True when a value has symbols that can mean something (`..`, `*`, `/`, `$`), and a literal text lacks them."""
    spelled = normalize_text(value)
    if _HARMLESS.fullmatch(spelled) and not _TRICK.search(spelled):
        return False
    return normalize_with_symbols(value) not in text


def is_telling(word: str) -> bool:
    """True for a word that can tell one thing from another: nothing that most sentences contain."""
    return (len(word) > 2 or not word.isalpha() or not word.isascii()) and word not in _EVERYDAY  # noqa: PLR2004


def is_common(word: str) -> bool:
    """True for a word of nearly every English sentence."""
    return word in _COMMON


def is_generic(word: str) -> bool:
    """True for a word such as mail, meeting or today."""
    return word in _GENERIC


def list_meaningful_words(words: str) -> list[str]:
    """The meaningful words of a phrase."""
    return [word for word in words.split() if word not in _COMMON and len(word) > 2]  # noqa: PLR2004


def is_moment(text: str) -> bool:
    """True for a date, a time, or both."""
    return _MOMENT.fullmatch(normalize_text(text).strip()) is not None


def find_addresses(text: str) -> dict[str, str]:
    """What can reach someone or names an account: links, mail addresses, numbers, handles; and how each is written."""
    if _ADDRESSES_HAVE.search(text) is None:
        return {}
    return {canonical: written for canonical, written, _, _ in addresses_at(normalize_spelling(text))}


def addresses_at(text: str) -> Iterator[tuple[str, str, int, int]]:
    """The addresses of a `spelled` text with where they begin and end."""
    for match in _ADDRESS.finditer(_MOMENT.sub(lambda found: " " * len(found[0]), text)):
        kind, written = str(match.lastgroup), match.group().rstrip(".,;:!?)]}'\"*_")
        if kind == "host" and _is_file(written):
            continue
        canonical = _canonical(kind, written.casefold())
        if canonical:
            yield canonical, written, match.start(), match.end()


def list_text_around_addresses(text: str) -> list[str]:
    """What is around the addresses of a text, where there are words in it."""
    kept, end, text = [], 0, normalize_spelling(text)
    for _, _, start, behind in addresses_at(text):
        kept.append(text[end:start])
        end = behind
    return [part for part in (*kept, text[end:]) if normalize_phrase(part)]


def normalize_spelling(text: str) -> str:
    """The text in which addresses are looked for: in one spelling, and sentences apart."""
    if not text.isascii():
        text = _DOT.sub(".", unicodedata.normalize("NFKC", _HIDDEN.sub("", text)))
    return _RUN_ON.sub(r"\1 ", text)


def _is_file(written: str) -> bool:
    """True for the name of a file: it looks like a host's."""
    return "/" not in written and not written.startswith("www.") and written.rpartition(".")[2].casefold() in _FILES


def _canonical(kind: str, written: str) -> str:
    if kind in ("account", "number"):
        return re.sub(r"[^a-z0-9]", "", written)
    if kind == "spelled":
        return re.sub(r"[\s\[\](){}]+", "", re.sub(r"\W(?:dot|punkt)\W|^www\s", ".", written)).strip(".")
    if kind in ("url", "host", "ip"):
        return re.sub(r"^https?://", "", written).rstrip("/")
    return written


def longest_copy(words: str, text: str, least: int) -> str:
    """The first run of at least `least` words of one phrase that is in another, as long as it goes; else empty."""
    parts = words.split()
    for start in range(len(parts) - least + 1):
        end = start + least
        if f" {' '.join(parts[start:end])} " not in text:
            continue
        while end < len(parts) and f" {' '.join(parts[start : end + 1])} " in text:
            end += 1
        return " ".join(parts[start:end])
    return ""
