"""What the result of a call tells people of the skill behind it: which text was read, or whose script was run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from glidepath.values import ToolResultMessage

READ, RUN = "read_skill", "run_skill_script"
TOOL_NAMES = (READ, RUN)


class UsedSkill(NamedTuple):
    """A skill that a call read, or whose script it ran, as it was then."""

    name: str
    digest: str
    file: str
    trusted: bool


def find_used_skill(message: ToolResultMessage) -> UsedSkill | None:
    """The skill behind the result of a call; None for the result of any other tool."""
    details = message.details
    if message.tool_name not in TOOL_NAMES or not isinstance(details, Mapping):
        return None
    name, digest, file = details.get("skill"), details.get("digest"), details.get("file", "")
    if not isinstance(name, str) or not isinstance(digest, str) or not isinstance(file, str):
        return None
    return UsedSkill(name, digest, file, details.get("trusted") is True)
