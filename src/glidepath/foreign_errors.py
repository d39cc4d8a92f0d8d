"""Where an error was raised, and its traceback: of any exception, whatever its shape, and in bounded time.

The standard library follows a chain of errors to its end and groups to their depth: ten thousand links hold the event
loop for seconds, and a deep group ends in RecursionError. Attributes are read by the slots of BaseException: a class of
somebody else's may have made properties of them, and those may raise anything.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from typing import Any

from glidepath.errors import inner_errors, told, words

MOST_LINKS = 10  # errors of a chain, the last ones
MOST_MEMBERS = 10  # errors of a group
DEEPEST = 3  # groups within groups
MOST_FRAMES = 40  # of one error, the innermost ones
LONGEST = 20_000  # characters
_LIBRARY = os.path.dirname(os.__file__) + os.sep  # the standard library, and below it what is installed
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def format_error(error: BaseException) -> str:
    """The traceback of an error as text, with its causes and, of a group, its errors; never raises."""
    try:
        return "".join(_chain(error, 0))[-LONGEST:]
    except KeyboardInterrupt:
        raise
    except BaseException:  # its class, or the code that it points to, is stranger than we thought
        return told(error)


def place_of(error: BaseException) -> str:
    """The module and line that raised it, such as `app.tools:42`: the innermost line that is not a library's."""
    found = ""
    step: Any = _slot(error, "__traceback__")
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
    return path.startswith((_LIBRARY, "<frozen ")) or module.partition(".")[0] == "glidepath"


def _chain(error: BaseException, depth: int) -> Iterator[str]:
    """The texts of an error and of what led to it, the oldest first."""
    links: list[tuple[BaseException, str]] = []
    after, seen = "", set[int]()
    one: Any = error
    while one is not None and id(one) not in seen and len(links) <= MOST_LINKS:
        links.append((one, after))
        seen.add(id(one))
        cause = _slot(one, "__cause__")
        after = _CONTEXT if cause is None else _CAUSE
        one = cause if cause is not None or _slot(one, "__suppress_context__") else _slot(one, "__context__")
    if len(links) > MOST_LINKS:
        yield "[earlier errors are left out]\n"
        links.pop()
    for link, then in reversed(links):
        yield from _single(link, depth)
        yield then


def _single(error: BaseException, depth: int) -> Iterator[str]:
    """The frames, the text and the notes of one error; of a group, its errors."""
    frames = _slot(error, "__traceback__")
    if frames is not None:
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(frames, limit=-MOST_FRAMES)
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    yield f"{name}: {words(error)}".removesuffix(": ") + "\n"
    notes = vars(error).get("__notes__")
    yield from [f"{note}\n" for note in notes[:MOST_MEMBERS] if type(note) is str] if type(notes) is list else ()
    if isinstance(error, BaseExceptionGroup) and depth < DEEPEST:
        members = inner_errors(error)
        for number, member in enumerate(members[:MOST_MEMBERS], 1):
            yield f"  +---------------- {number} of {len(members)}\n"
            yield from [f"  | {line}\n" for line in "".join(_chain(member, depth + 1)).splitlines()]


def _slot(error: BaseException, name: str) -> Any:
    return BaseException.__dict__[name].__get__(error)
