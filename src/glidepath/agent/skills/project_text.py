"""AGENTS.md: what a project tells every agent that works in it. One rule for the library and the command line."""

from __future__ import annotations

import os
from pathlib import Path

from glidepath.tools import read_regular_file
from glidepath.values import ConfigurationError

AGENTS_MD = "AGENTS.md"
MOST_AGENTS_MD = 64_000
"""Characters that a model is given."""


def read_agents_md(folder: str | os.PathLike[str] = ".") -> str:
    """The AGENTS.md of a folder as a part of a system prompt: `Agent(system_prompt=read_agents_md("."))`.

    It becomes an instruction of yours, so name a folder that you trust. Raises `ConfigurationError` when there is none,
    and when it is longer than what a model is given.
    """
    place = Path(folder)
    place = place if place.name == AGENTS_MD else place / AGENTS_MD
    try:
        data = read_regular_file(place, 4 * MOST_AGENTS_MD)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{place} cannot be read: {error}") from None
    if data is None:
        raise ConfigurationError(f"there is no {place}: name a folder with an {AGENTS_MD}")
    text = decode_agents_md(data)
    if len(text) > MOST_AGENTS_MD:
        raise ConfigurationError(f"{place} has more than {MOST_AGENTS_MD:,} characters; shorten it")
    return introduce_agents_md(text)


def decode_agents_md(data: bytes) -> str:
    """What an AGENTS.md says."""
    return data.decode("utf-8-sig", "replace").strip()


def introduce_agents_md(text: str) -> str:
    """The part of a system prompt for what an AGENTS.md says: its first characters, and where they are from."""
    return f"Instructions of this project, from its {AGENTS_MD}:\n\n{text[:MOST_AGENTS_MD]}" if text else ""
