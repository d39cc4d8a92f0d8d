"""Tool names that providers accept: an MCP server may call its tool `files/read.text`, which most refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2s

_LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""What every provider accepts."""
_MADE = re.compile(r"_[0-9a-f]{8}\Z")
"""The ending of a name made here. A tool with such a name is renamed: it could be mistaken for another tool."""
_TAIL = 8


@lru_cache(maxsize=4096)
def make_legal_name(name: str) -> str:
    """The name to send: the name itself if it is legal, else a legal name that is unique to it.

    It depends only on the name, so that a call in the history keeps it in every request.
    """
    if _LEGAL.fullmatch(name) and not _MADE.search(name):
        return name
    letters = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if not letters or not (letters[0].isalpha() or letters[0] == "_"):
        letters = f"_{letters}"
    tail = blake2s(name.encode("utf-8", "surrogatepass"), digest_size=_TAIL // 2).hexdigest()
    return f"{letters[: 64 - _TAIL - 1]}_{tail}"


class ToolNames:
    """Finds the tool behind a name that a provider has sent back."""

    __slots__ = ("_ours",)

    def __init__(self, names: Iterable[str]) -> None:
        self._ours = {sent: name for name in names if (sent := make_legal_name(name)) != name}

    def ours(self, name: str) -> str:
        """Our own name for a tool the model called."""
        return self._ours.get(name, name) if self._ours else name
