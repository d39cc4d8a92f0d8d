"""Parses docstrings: what they say about a function and each of its parameters.

Understands Google, NumPy and Sphinx style. Anything else is part of the description; nothing here raises.
"""

from __future__ import annotations

import inspect
import re

# Compiled when a docstring has more than one line: most have not.
_GOOGLE = r"(?i:(args|arguments|parameters|params)\s*:\s*$)"
_GOOGLE_ENTRY = r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$"
_NUMPY = r"(?i:(other )?parameters\s*$)"
_NUMPY_ENTRY = r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$"
_RULE = r"-{3,}\s*$"
_SPHINX = r":(param|parameter|arg|argument|key|keyword|type)\s+([^:]+):\s*(.*)$"


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description without the parameter sections, and what it says about each parameter."""
    lines = inspect.cleandoc(text or "").splitlines()
    body: list[str] = []
    found: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if line[:1] == ":" and (field := re.match(_SPHINX, line)):
            at = _read_sphinx_field(lines, at, field, found)
        elif at + 1 < len(lines) and re.match(_NUMPY, line) and re.match(_RULE, lines[at + 1]):
            at = _read_numpy_block(lines, at + 2, found)
        # "Parameters:" at the end of an ordinary sentence has no indented block below it.
        elif re.match(_GOOGLE, line) and next((_indent(one) > 0 for one in lines[at + 1 :] if one.strip()), False):
            at = _read_google_block(lines, at + 1, found)
        else:
            body.append(line.rstrip())
            at += 1
    description = "\n".join(body).strip()
    if "\n\n\n" in description:
        description = re.sub(r"\n{3,}", "\n\n", description)
    return description, {name: said for name, said in found.items() if said}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _read_google_block(lines: list[str], at: int, found: dict[str, str]) -> int:
    """Read an indented block of `name (type): text` entries; returns the first line after it."""
    level = next(_indent(line) for line in lines[at:] if line.strip())
    name = ""
    while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > 0):
        text = lines[at].strip()
        entry = re.match(_GOOGLE_ENTRY, text) if _indent(lines[at]) <= level else None
        if entry:
            name = entry[1]
            found[name] = entry[2].strip()
        elif name and text:
            found[name] = f"{found[name]} {text}".strip()
        at += 1
    return at


def _read_numpy_block(lines: list[str], at: int, found: dict[str, str]) -> int:
    """Read `name : type` lines with indented text below each; returns the first line of the next section."""
    names: list[str] = []
    while at < len(lines):
        text = lines[at].strip()
        if text and at + 1 < len(lines) and re.match(_RULE, lines[at + 1]):
            break
        if text and _indent(lines[at]) == 0:
            entry = re.match(_NUMPY_ENTRY, text)
            if not entry:  # ordinary text again
                break
            names = [name.strip().lstrip("*") for name in entry[1].split(",")]
            found.update(dict.fromkeys(names, ""))
        elif text:
            for name in names:
                found[name] = f"{found[name]} {text}".strip()
        at += 1
    return at


def _read_sphinx_field(lines: list[str], at: int, field: re.Match[str], found: dict[str, str]) -> int:
    """Read one `:param type name: text` with its indented continuation; `:type:` is dropped, the schema has it."""
    said = [field[3].strip()]
    at += 1
    while at < len(lines) and lines[at].strip() and _indent(lines[at]) > 0:
        said.append(lines[at].strip())
        at += 1
    if field[1] != "type" and field[2].split():
        found[field[2].split()[-1].lstrip("*")] = " ".join(said).strip()
    return at
