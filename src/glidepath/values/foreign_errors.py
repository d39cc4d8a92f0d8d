"""Errors of other people's code: where they were raised, their traceback, and their line in the log.

Whatever their shape, and in bounded time.

The standard library follows a chain of errors to its end and groups to their depth: ten thousand links hold the event
loop for seconds, and a deep group ends in RecursionError. Attributes are read by the slots of BaseException: a class of
somebody else's may have made properties of them, and those may raise anything.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from glidepath.values.errors import ToolError, describe_error, inner_errors, message_of

_log = logging.getLogger("glidepath")

MOST_LINKS = 10  # errors of a chain, the last ones
MOST_MEMBERS = 10  # errors of a group
DEEPEST = 3  # groups within groups
MOST_FRAMES = 40  # of one error, the innermost ones
LONGEST = 20_000  # characters
_STANDARD = os.__file__.removesuffix("os.py")
_INSTALLED = ("site-packages", "dist-packages")
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


class ChildError(ToolError):
    """A function raised an error in its process; the cause has the traceback as text."""

    def __init__(self, error_type: str, message: str, place: str = "") -> None:
        super().__init__(f"{error_type}: {message}" if message else error_type)
        self.error_type = error_type
        self.place = place


def log_raised(what: str, error: BaseException, then: str = "", *, did: str = "", debug: bool = False) -> None:
    """Log at ERROR that somebody else's code raised: its type, its place, and what happens then.

    The text of an error and its traceback may hold what users said: they are written with `debug`, and to a terminal.
    """
    place = place_of(error)
    did = did or f"raised {type(error).__name__}{f' at {place}' if place else ''}"
    line = f"{what} {did}{f': {then}' if then else ''}"
    try:
        _log.error("%s", f"{line}\n{format_error(error)}" if debug or _is_seen() else line)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a handler of the program's own: it must not hurt a run
        return


def log_first(known: set[tuple[str, str]], what: str, error: BaseException, then: str) -> None:
    """The same, unless it is `known`: of the same type, and from the same place."""
    key = (type(error).__name__, place_of(error))
    if key not in known:
        known.add(key)
        log_raised(what, error, then)


def _is_seen() -> bool:
    """True when the log goes to a terminal, and nowhere else: nobody has set up logging."""
    return not _log.hasHandlers() and sys.stderr is not None and sys.stderr.isatty()


def format_error(error: BaseException) -> str:
    """The traceback of an error as text, with its causes and, of a group, its errors; never raises."""
    try:
        return "".join(_iterate_chain(error, 0))[-LONGEST:]
    except KeyboardInterrupt:
        raise
    except BaseException:  # its class, or the code that it points to, is stranger than we thought
        return describe_error(error)


def place_of(error: BaseException) -> str:
    """The module and line that raised it, such as `app.tools:42`: the innermost line that is not a library's."""
    found = ""
    step: Any = _read_slot(error, "__traceback__")
    while step is not None:
        frame = step.tb_frame
        module = frame.f_globals.get("__name__")
        if not isinstance(module, str):
            module = frame.f_code.co_filename
        if not found or not _is_library(frame.f_code.co_filename, module):
            found = f"{module}:{step.tb_lineno}"
        step = step.tb_next
    return found


def _is_library(path: str, module: str) -> bool:
    library = path.startswith((_STANDARD, "<frozen ")) or any(name in path for name in _INSTALLED)
    return library or module.partition(".")[0] == "glidepath"


def _iterate_chain(error: BaseException, depth: int) -> Iterator[str]:
    """The texts of an error and of what led to it, the oldest first."""
    links: list[tuple[BaseException, str]] = []
    after, seen = "", set[int]()
    one: Any = error
    while one is not None and id(one) not in seen and len(links) <= MOST_LINKS:
        links.append((one, after))
        seen.add(id(one))
        cause = _read_slot(one, "__cause__")
        after = _CONTEXT if cause is None else _CAUSE
        one = cause if cause is not None or _read_slot(one, "__suppress_context__") else _read_slot(one, "__context__")
    if len(links) > MOST_LINKS:
        yield "[earlier errors are left out]\n"
        links.pop()
    for link, then in reversed(links):
        yield from _describe_one_error(link, depth)
        yield then


def _describe_one_error(error: BaseException, depth: int) -> Iterator[str]:
    """The frames, the text and the notes of one error; of a group, its errors."""
    frames = _read_slot(error, "__traceback__")
    if frames is not None:
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(frames, limit=-MOST_FRAMES)
    kind = type(error)
    home = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    yield f"{home}{kind.__qualname__}: {message_of(error)}".removesuffix(": ") + "\n"
    notes = vars(error).get("__notes__")
    yield from [f"{note}\n" for note in notes[:MOST_MEMBERS] if type(note) is str] if type(notes) is list else ()
    if isinstance(error, BaseExceptionGroup) and depth < DEEPEST:
        members = inner_errors(error)
        for number, member in enumerate(members[:MOST_MEMBERS], 1):
            yield f"  +---------------- {number} of {len(members)}\n"
            yield from [f"  | {line}\n" for line in "".join(_iterate_chain(member, depth + 1)).splitlines()]


def _read_slot(error: BaseException, name: str) -> Any:
    return BaseException.__dict__[name].__get__(error)
