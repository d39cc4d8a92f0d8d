"""Reads a repository's configuration: whether it names commands, and where else git looks for them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

MOST_CONFIG = 65_536
"""How many bytes of a configuration are read."""

_HARMLESS = re.compile(
    r"""(?ix) core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)
    | user\.(name|email) | init\.defaultbranch | extensions\.(objectformat|refstorage)
    | remote\.[^.]*\.(url|fetch) | branch\..*\.(remote|merge)"""
)
_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"([^"\\]*)")?\s*\]')
_KEY = re.compile(r"([\w-]+)\s*=\s*(.*)")


def is_harmless(text: str) -> bool:
    """True if every line is one that `git init` or `git clone` writes; an unreadable line may be anything."""
    for key, value in _pairs(text):
        if key is None or "\\" in value or "::" in value or not _HARMLESS.fullmatch(key):
            return False
    return True


def find_command_places(text: str, top: str) -> list[str]:
    """Files and folders from which git takes commands because this configuration says so, as paths.

    `top` is the folder the repository is for: hooks are looked for from there, included files from its `.git`.
    """
    places = []
    for key, value in _pairs(text):
        kind = "" if key is None else key.lower()
        plain = value.strip().strip('"')
        if not plain or plain.startswith("~"):
            continue
        if kind == "core.hookspath":
            places.append(os.path.normpath(os.path.join(top, plain)))  # noqa: PTH118 - `..` is not followed, as in git
        elif kind.startswith(("include.", "includeif.")) and kind.endswith(".path"):
            places.append(os.path.normpath(os.path.join(top, ".git", plain)))  # noqa: PTH118
    return places


def _pairs(text: str) -> Iterator[tuple[str | None, str]]:
    """Every `section.key` and its value; None for a line that is not understood."""
    section = ""
    for raw in text.split("\n"):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        found = _SECTION.match(line)
        if found:
            section = f"{found[1]}.{found[2]}." if found[2] is not None else f"{found[1]}."
            line = line[found.end() :].strip()  # a key may follow on the same line
            if not line:
                continue
        pair = _KEY.fullmatch(line)
        yield (section + pair[1], pair[2]) if pair else (None, line)
