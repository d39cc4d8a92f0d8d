"""What one rule covers: a command by its words, or a file by its path. *Always* and the rules share these.

There are two questions. `covers` is narrow, for what allows: in doubt it says no. `touches` is wide, for what denies or
asks: in doubt it says yes.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath

from glidepath._wire import Value
from glidepath.guards.approvals.commands import (
    brings_options,
    fetches_code,
    lacks_subcommand,
    list_hidden_words,
    list_pairs,
    simple_words,
    starts_other_programs,
)
from glidepath.run import escape_invisible
from glidepath.values import ConfigurationError

_STAR = "*"
_ODD = re.compile(r"[;&|<>()$`\\{}\[\]?~!#\n\r\t]")


class CommandPattern(Value, frozen=True):
    """A command, word by word. A lone `*` stands for any words but options.

    Without one it is exactly these words. With one, the options of the pattern may stand anywhere and are needed; no
    others are covered, and a word behind an option, which may be its value, only as the pattern shows it.
    """

    words: tuple[str, ...]

    def covers(self, words: Sequence[str]) -> bool:
        """True when this simple command is one of those that are meant, and surely no other."""
        if _STAR not in self.words:
            return len(words) == len(self.words) and all(map(_fits, words, self.words))
        if words[0] != self.words[0] or fetches_code(list(words)):
            return False
        options = tuple(word for word in self.words if word.startswith("-"))
        pairs = list_pairs(self.words)
        plain, found, values = [], set(), iter(range(len(words)))
        for place in values:
            word = words[place]
            if not word.startswith("-"):
                plain.append(word)
                continue
            known = [option for option in options if _fits(word, option)]
            if not known:
                return False
            found.update(known)
            behind = words[place + 1] if place + 1 < len(words) else "-"
            if behind.startswith("-"):
                continue
            if not any(option in known and _fits_value(behind, value) for option, value in pairs):
                return False
            next(values)
        return found == set(options) and _fits_row(tuple(plain), self._plain)

    @property
    def _plain(self) -> tuple[str, ...]:
        """The pattern without its options and their values; a `*` behind an option stands for more words, too."""
        kept: list[str] = []
        behind = False
        for word in self.words:
            if not word.startswith("-") and (not behind or word == _STAR):
                kept.append(word)
            behind = word.startswith("-")
        return tuple(kept)

    def touches(self, command: object) -> bool:
        """True when this may be, or may contain, a command that is meant."""
        if not isinstance(command, str):
            return True
        words = simple_words(command)
        if words is not None:
            return self._begins(words, 0)
        return any(self._begins(words, place) for words in list_hidden_words(command) for place in range(len(words)))

    def _begins(self, words: Sequence[str], place: int) -> bool:
        program, *rest = self.words
        if not fnmatchcase(PurePosixPath(words[place]).name.lower() or words[place], program.lower()):
            return False
        behind = iter(words[place + 1 :])
        return all(any(fnmatchcase(word, wanted) for word in behind) for wanted in rest if wanted != _STAR)


class PathPattern(Value, frozen=True):
    """A file by its path below the workspace: `*` within one name, `**` for any folders."""

    parts: tuple[str, ...]

    def covers(self, paths: Sequence[str] | None) -> bool:
        """True when each way to write this path is meant."""
        return bool(paths) and all(_fits_parts(_split_path(path), self.parts) for path in paths or ())

    def touches(self, paths: Sequence[str] | None) -> bool:
        """True when one way to write this path, or a folder above it, is meant."""
        if paths is None:
            return True
        for path in paths:
            for parts in (_split_path(path), _split_path(path.casefold())):
                wanted = tuple(self.parts), tuple(part.casefold() for part in self.parts)
                if any(_fits_parts(parts[:size], one) for one in wanted for size in range(1, len(parts) + 1)):
                    return True
        return not all(map(_split_path, paths))


def read_command(text: str, *, field: str, allows: bool) -> CommandPattern:
    """The pattern of a rule about commands; raises `ConfigurationError` for one that could never do what it says."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigurationError(f"{field} is not a command: {error}") from None
    if not words:
        raise ConfigurationError(f"{field} names no command; write the program, such as shell(npm test *)")
    if not allows:
        return CommandPattern(words)
    if odd := _ODD.search(text):
        raise ConfigurationError(
            f"{field} has {odd[0]!r}: rules match one simple command; write its words, and * for any further ones"
        )
    if not words[0] or words[0].startswith("-") or any(sign in words[0] for sign in "*=/"):
        raise ConfigurationError(
            f"{field} must begin with the name of a program, without * and without a path; got {words[0]!r}"
        )
    literal = tuple(word for word in words if _STAR not in word)
    if starts_other_programs(list(words)):
        raise ConfigurationError(
            f"{field} can never allow anything: {' '.join(literal[:2])!r} starts other programs, so that nobody can "
            "tell from its words what runs"
        )
    if lacks_subcommand(words):
        raise ConfigurationError(
            f"{field} would allow whatever {words[0]} can do; name its subcommand, as in git status *"
        )
    if _STAR in "".join(words[1:]) and fetches_code(list(words)):
        raise ConfigurationError(
            f"{field} can never allow anything: {' '.join(words[:2])!r} fetches or runs what its words name; write "
            "each command in full, without *"
        )
    for word in words[1:]:
        if word.startswith("-") and _STAR in word.partition("=")[0]:
            raise ConfigurationError(f"{field}: name each option; * may stand only for a value, as in --reporter=*")
    return CommandPattern(words)


def read_path(text: str, *, field: str) -> PathPattern:
    """The pattern of a rule about files."""
    parts = _split_path(text.strip().removesuffix("/") + ("/**" if text.strip().endswith("/") else ""))
    if not parts or ".." in parts or text.strip().startswith(("/", "~")):
        raise ConfigurationError(f"{field} must be a path below the workspace, such as src/**; got {text!r:.80}")
    return PathPattern(parts)


def list_paths(path: object, root: object = None) -> tuple[str, ...] | None:
    """A path as it is written, and below `root` where it leads to; None for one that cannot be told."""
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    if root is None:
        return (path,)
    place = Path(str(root)) / path
    lexical = os.path.relpath(os.path.normpath(place), str(root))
    real = os.path.relpath(os.path.realpath(place), os.path.realpath(str(root)))
    return tuple(dict.fromkeys((path, lexical, real)))


def _split_path(path: str) -> tuple[str, ...]:
    """The names in a relative path; nothing for one that leads outside, or that hides what it is."""
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts or escape_invisible(path) != path:
        return ()
    return place.parts or (".",)


def _fits(word: str, pattern: str) -> bool:
    """True for the word itself, or one that the pattern's `*` stands for; a `*` never leads out of a folder."""
    if _STAR not in pattern or pattern == _STAR:
        return word == pattern
    if brings_options(word) and not brings_options(pattern):
        return False
    return _glob(pattern).fullmatch(word) is not None and ".." not in word.split("/")


def _fits_value(word: str, pattern: str) -> bool:
    return pattern == _STAR or _fits(word, pattern)


def _fits_row(words: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Each `*` of its own stands for any number of words, but not for a file of options."""
    ends = {0}
    for wanted in pattern:
        if wanted == _STAR:
            for end, word in enumerate(words):
                if end in ends and not brings_options(word):
                    ends.add(end + 1)
        else:
            ends = {end + 1 for end in ends if end < len(words) and _fits(words[end], wanted)}
        if not ends:
            return False
    return len(words) in ends


def _fits_parts(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """As `_fits_row`, where `**` stands for any folders."""
    if not parts:
        return False
    ends = {0}
    for wanted in pattern:
        if wanted == "**":
            ends = set(range(min(ends), len(parts) + 1))
        else:
            ends = {end + 1 for end in ends if end < len(parts) and fnmatchcase(parts[end], wanted)}
        if not ends:
            return False
    return len(parts) in ends


@lru_cache(256)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile("".join("[^/]*" if sign == _STAR else re.escape(sign) for sign in pattern))
