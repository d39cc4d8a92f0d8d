"""Text made comparable: words without spelling, and the addresses in a text."""

from __future__ import annotations

import re
import unicodedata


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
_RUN_ON = re.compile(r"(?<=\w)([.!?])(?=[A-Z][a-z])")
_ADDRESS = re.compile(
    r"(?P<url>[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`\]]+|(?:mailto|tel|sms|data|javascript|callto):[^\s<>\"'`]+)"
    r"|(?P<mail>(?<![\w.+%&*=?^{|}~-])[\w.+%&*=?^{|}~-]{1,80}@[\w-]+(?:\.[\w-]+)*)"
    r"|(?P<ip>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?:/[^\s<>\"'`]*)?)"
    r"|(?P<host>(?<![\w@.-])(?:[\w-]+\.)+[^\W\d_]{2,24}(?::\d+)?(?:[/?#][^\s<>\"'`]*)?)"
    r"|(?P<account>(?<![\w-])[a-z]{2}\d{2}(?:[a-z0-9]{8,30}|"
    r"(?: (?=[a-z]{0,3}\d)[a-z0-9]{4}){2,7}(?: \d{1,4})?)(?![\w-]))"
    r"|(?P<number>(?<![\w.-])\+?\d(?:[ ()./-]{0,2}\d){7,}(?![\w-]))"
    r"|(?P<opaque>(?<![\w/+=-])(?=[\w/+=-]*\d)(?=[\w/+=-]*[a-z])[\w/+=-]{24,})"
    r"|(?P<handle>(?<![\w.])@[\w-]{2,})",
    re.IGNORECASE,
)
_FILES = word_set(
    "bmp c cfg conf cpp css csv doc docx gif go h html ics ini java jpeg jpg js json lock log md mp3 mp4 "
    "odt pdf png ppt pptx py rb rs rst rtf sh sql svg tar tex toml ts tsv txt wav xls xlsx xml yaml yml"
)
"""Suffixes that make a name without a path count as a file."""
_COMMON = word_set(
    "a about after all also an and any are as at be but by can could do for from has have he her his how "
    "i if in into is it its just me my no not of on one or our please she so some than that the their "
    "them then there they this to up us was we were what when where which who will with would you your"
)


def plain(text: str) -> str:
    """The text in one spelling: no invisible characters, no compatibility forms, no case."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))
    return text.casefold()


def phrase(text: str) -> str:
    """The words of a text between blanks, with a blank at either end: a phrase is in a text when its words are."""
    found = _WORD.findall(plain(text))
    return f" {' '.join(found)} " if found else ""


def significant(words: str) -> list[str]:
    """The meaningful words of a phrase."""
    return [word for word in words.split() if word not in _COMMON and len(word) > 2]  # noqa: PLR2004


def is_moment(text: str) -> bool:
    """True for a date, a time, or both."""
    return _MOMENT.fullmatch(plain(text).strip()) is not None


def addresses(text: str) -> dict[str, str]:
    """What can reach someone or names an account: links, mail addresses, numbers, handles; and how each is written."""
    found: dict[str, str] = {}
    for match in _ADDRESS.finditer(_searched(text)):
        kind, written = str(match.lastgroup), match.group().rstrip(".,;:!?)]}'\"*_")
        if kind == "host" and _is_file(written):
            continue
        canonical = _canonical(kind, written.casefold())
        if canonical:
            found[canonical] = written
    return found


def besides(text: str) -> list[str]:
    """The phrases around the addresses of a text."""
    kept, end, text = [], 0, _searched(text)
    for match in _ADDRESS.finditer(text):
        if match.lastgroup == "host" and _is_file(match.group()):
            continue
        kept.append(text[end : match.start()])
        end = match.end()
    return [words for part in (*kept, text[end:]) if (words := phrase(part))]


def _searched(text: str) -> str:
    """The text in which addresses are looked for: one spelling, and no dates."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))
    return _MOMENT.sub(" ", _RUN_ON.sub(r"\1 ", text))


def _is_file(written: str) -> bool:
    """True for the name of a file: it looks like a host's."""
    return "/" not in written and not written.startswith("www.") and written.rpartition(".")[2].casefold() in _FILES


def _canonical(kind: str, written: str) -> str:
    if kind in ("account", "number"):
        return re.sub(r"[^a-z0-9]", "", written)
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
