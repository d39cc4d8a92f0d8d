"""Reads the front matter of a Markdown file: YAML between two lines of ---, as plain texts, lists and tables.

The parser is PyYAML, of which only the syntax is used: no tags, no anchors and no guessed types, so that `no` is a word
and a file of a few lines cannot unfold into gigabytes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from glidepath.tools import find_closest
from glidepath.values import ConfigurationError, install_line

MOST_BYTES = 32_000
VARIABLE = re.compile(r"\$\{CLAUDE_[A-Z_]+\}")
_RUNS_COMMAND = re.compile(r"(?:^|\s)(?P<one>!`)[^`\n]+`|^\s*(?P<block>```+!)")
_MOST_DEEP, _MOST_PARTS = 8, 2_000
_JOINERS = "\u200c\u200d"  # in words of some scripts, and in emoji
_FIXES = (
    ("mapping values are not allowed", "put a text that contains ': ' in quotes"),
    ("found character '\\t'", "indent with spaces, not with tabs"),
    ("cannot start any token", "put a text that begins with this sign in quotes"),
    ("expected '<document start>'", "there is a second document in it; remove it"),
    ("expected <block end>", "indent lines of one list or table alike, and put texts with signs in quotes"),
    ("while scanning a quoted scalar", "close the quotes"),
)


class FrontMatter(NamedTuple):
    """The fields between the lines, where each field is in the file, and the text behind them."""

    fields: Mapping[str, Any]
    lines: Mapping[str, int]
    body: str
    body_line: int
    """The line of the file on which the text begins."""


class FileFormatError(ConfigurationError):
    """A file that cannot be used; the message names it, the line and the fix."""

    def __init__(self, where: str, line: int | None, what: str) -> None:
        super().__init__(f"{where}, line {line}: {what}" if line else f"{where}: {what}")
        self.line = line


def decode_text(data: bytes, where: str) -> str:
    """The text of a file, without a byte order mark; raises `FileFormatError` for anything but UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileFormatError(where, line, "it is not UTF-8 text; save the file as UTF-8") from None
    if "\0" in text:
        raise FileFormatError(where, text[: text.index("\0")].count("\n") + 1, "it has a NUL character; remove it")
    return text


def read_front_matter(text: str, where: str, *, required: bool = True) -> FrontMatter:
    """Split a file into its front matter and its text; raises `FileFormatError`.

    Unless it is `required`, a file without front matter is all text.
    """
    rows = text.replace("\r\n", "\n").split("\n")
    if rows[0].rstrip() != "---":
        if not required:
            return FrontMatter({}, {}, text, 1)
        raise FileFormatError(
            where, 1, "it must begin with front matter: a line ---, name: and description:, a line ---"
        )
    end = next((number for number, row in enumerate(rows[1:], 1) if row.rstrip() == "---"), None)
    if end is None:
        raise FileFormatError(where, 1, "its front matter has no end: write a line --- after the last field")
    head = "\n".join(rows[1:end])
    if len(head.encode()) > MOST_BYTES:
        raise FileFormatError(where, 1, f"its front matter is larger than {MOST_BYTES:,} bytes; move text below it")
    check_visible(head, where, 2)
    fields, lines = _Parser(where).parse(head)
    return FrontMatter(fields, lines, "\n".join(rows[end + 1 :]).strip("\n"), end + 2)


def check_visible(text: str, where: str, first_line: int) -> None:
    """Raise `FileFormatError` for characters that a person does not see and a model reads."""
    for number, row in enumerate(text.split("\n"), first_line):
        if (sign := find_invisible(row)) is not None:
            raise FileFormatError(where, number, f"it has the invisible character U+{ord(sign):04X}; remove it")


def find_invisible(text: str) -> str | None:
    """The first character that shows nothing, or that turns the text around; None without any."""
    if text.isascii() and text.isprintable():
        return None
    for sign in text:
        kind = unicodedata.category(sign)
        if (kind in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and sign not in "\t\n\r") and sign not in _JOINERS:
            return sign
    return None


class _Parser:
    """One front matter: the events of PyYAML's parser, put together by us."""

    def __init__(self, where: str) -> None:
        self._where = where
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError:
            raise ConfigurationError(
                f"PyYAML is needed to read the front matter of {where}: {install_line('skills')}"
            ) from None
        self._yaml = yaml
        self._parts = 0

    def parse(self, head: str) -> tuple[dict[str, Any], dict[str, int]]:
        yaml = self._yaml
        if not head.strip():
            return {}, {}
        try:
            events = yaml.parse(head, Loader=yaml.SafeLoader)
            next(events), next(events)  # the beginning of the stream and of its document
            first = next(events)
            if isinstance(first, yaml.ScalarEvent) and not first.value:  # only comments
                return {}, {}
            if not isinstance(first, yaml.MappingStartEvent):
                raise self._fault(first, "front matter has lines like name: my-skill")
            self._check(first, 1)
            lines: dict[str, int] = {}
            found = self._mapping(events, 1, lines)
            next(events)
            if not isinstance(last := next(events), yaml.StreamEndEvent):
                raise self._fault(last, "there is a second document in the front matter; remove it")
        except yaml.YAMLError as error:
            raise self._explain(error, head) from None
        except RecursionError:
            raise FileFormatError(self._where, 2, f"it is nested more than {_MOST_DEEP} deep; make it flat") from None
        return found, lines

    def _mapping(self, events: Any, deep: int, lines: dict[str, int] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(events), self._yaml.MappingEndEvent):
            if not isinstance(event, self._yaml.ScalarEvent):
                raise self._fault(event, "a field needs a plain name; put a text that begins with { or [ in quotes")
            self._check(event, deep)
            if event.value in found:
                raise self._fault(event, f"there is a second {event.value[:60]!r}; remove one of them")
            if lines is not None:
                lines[event.value] = event.start_mark.line + 2
            found[event.value] = self._value(next(events), events, deep + 1)
        return found

    def _value(self, event: Any, events: Any, deep: int) -> Any:
        self._check(event, deep)
        if isinstance(event, self._yaml.ScalarEvent):
            return event.value if event.style else _plain(event.value)
        if isinstance(event, self._yaml.MappingStartEvent):
            return self._mapping(events, deep)
        found = []
        while not isinstance(inner := next(events), self._yaml.SequenceEndEvent):
            found.append(self._value(inner, events, deep + 1))
        return found

    def _check(self, event: Any, deep: int) -> None:
        self._parts += 1
        if isinstance(event, self._yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self._fault(event, "anchors and aliases (& and *) are not used here; write the text out, or quote it")
        if getattr(event, "tag", None):
            raise self._fault(event, f"the tag {event.tag[:60]!r} is not used here; remove it, or quote the text")
        if deep > _MOST_DEEP:
            raise self._fault(event, f"it is nested more than {_MOST_DEEP} deep; make it flat")
        if self._parts > _MOST_PARTS:
            raise self._fault(event, f"it has more than {_MOST_PARTS:,} parts; move text below the front matter")

    def _fault(self, event: Any, what: str) -> FileFormatError:
        return FileFormatError(self._where, event.start_mark.line + 2, what)

    def _explain(self, error: Any, head: str) -> FileFormatError:
        mark = getattr(error, "problem_mark", None)
        line = head[: getattr(error, "position", 0)].count("\n") if mark is None else mark.line
        said = " ".join(str(getattr(error, part, None) or "") for part in ("context", "problem")).strip()
        what = said or str(getattr(error, "reason", error))
        fix = next((fix for part, fix in _FIXES if part in what), "put a text with signs such as : # [ { in quotes")
        return FileFormatError(self._where, line + 2, f"it is not valid YAML ({what[:160]}); {fix}")


def _plain(text: str) -> str:
    """A text without quotes; the words for nothing are empty."""
    return "" if text in ("~", "null", "Null", "NULL") else text


# --- fields ---------------------------------------------------------------------------------------------------------


class Fields:
    """The fields of one file, each checked when it is asked for; `list_others` says what nobody asked for."""

    def __init__(self, found: FrontMatter, where: str) -> None:
        self._found, self._where = found, where
        self._asked: set[str] = set()

    def fault(self, name: str, what: str) -> FileFormatError:
        """What is wrong with a field, on its line."""
        return FileFormatError(self._where, self._found.lines.get(name, 1), f"{name}: {what}")

    def text(self, name: str, *, most: int | None = None, required: bool = False) -> str:
        """A text on one line; empty without the field."""
        value = self._ask(name)
        if not isinstance(value, str):
            raise self.fault(name, "it must be a text, not a list or a table; put it in quotes")
        value = " ".join(value.split())
        if required and not value:
            others = [one for one in self._found.fields if one not in ("name", "description")]
            meant = find_closest(name, others) if name not in self._found.fields else None
            hint = f" ({meant!r} is not read as one)" if meant else ""
            raise self.fault(name, f"it is missing{hint}; write {name}: ...")
        if most is not None and len(value) > most:
            raise self.fault(name, f"it has {len(value):,} characters, at most {most:,} are allowed; shorten it")
        return value

    def names(self, name: str, *, separators: str = ",") -> tuple[str, ...] | None:
        """A list of names, or a text of names with separators between them; None without the field.

        What is in parentheses belongs to the name before it: `Bash(git add:*, git status)`.
        """
        if name not in self._found.fields:
            self._asked.add(name)
            return None
        value = self._ask(name)
        if isinstance(value, dict) or (isinstance(value, list) and not all(isinstance(one, str) for one in value)):
            raise self.fault(name, "it must be a list of names, such as: Read, Grep")
        parts = split_names(value, separators) if isinstance(value, str) else [one.strip() for one in value]
        return tuple(dict.fromkeys(one for one in parts if one))

    def number(self, name: str, most: int) -> int | None:
        """A whole number of at least 1; None without the field."""
        value = self._ask(name)
        if value == "":
            return None
        if not (isinstance(value, str) and value.isascii() and value.isdigit() and 1 <= int(value[:12]) <= most):
            raise self.fault(name, f"it must be a whole number from 1 to {most:,}, not {value!r:.60}")
        return int(value)

    def is_set(self, name: str) -> bool:
        """True for a field that says true."""
        value = self._ask(name)
        if not isinstance(value, str) or value.lower() not in ("", "true", "false"):
            raise self.fault(name, f"it must be true or false, not {value!r:.60}")
        return value.lower() == "true"

    def table(self, name: str) -> Mapping[str, Any]:
        """A table; empty without the field."""
        value = self._ask(name)
        if not isinstance(value, dict) and value != "":
            raise self.fault(name, "it must be a table of names and texts")
        return value or {}

    def list_others(self, why: Mapping[str, str]) -> tuple[str, ...]:
        """A line about each field that has no effect here; `why` explains those that are known elsewhere."""
        return tuple(
            f"line {line}: {name} has no effect here{f': {why[name]}' if name in why else ''}"
            for name, line in self._found.lines.items()
            if name not in self._asked
        )

    def _ask(self, name: str) -> Any:
        self._asked.add(name)
        return self._found.fields.get(name, "")


def split_names(text: str, separators: str) -> list[str]:
    """The names in a text; separators inside parentheses separate nothing."""
    parts, deep = [""], 0
    for sign in text:
        deep += (sign == "(") - (sign == ")" and deep > 0)
        if sign in separators and not deep:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def name_inline_command(row: str) -> str | None:
    """The form of a command that other agents would run when they read this line; None without one."""
    found = _RUNS_COMMAND.search(row)
    if found is None:
        return None
    return "!`...`" if found["one"] else found["block"]
