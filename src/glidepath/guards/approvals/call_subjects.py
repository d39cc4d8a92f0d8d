"""What a call is about, for a rule: the command it runs, the file it touches, or only its tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from glidepath.tools.workspace_marks import root_of

Subject = Literal["command", "path", ""]
_HARMLESS = ("integer", "number", "boolean", "null")
_USUAL: Mapping[str, Subject] = {
    "shell": "command", "read": "path", "write": "path", "edit": "path", "list": "path"
}  # fmt: skip


def subject_of(tool: object) -> Subject:
    """What a rule in parentheses is about: a tool's `command` or its `path`; empty when it has neither alone.

    A tool that takes other texts beside it may do anything with them, so that no rule about one of them is enough.
    """
    if root_of(tool) is not None:
        return "path"
    schema = getattr(tool, "parameters", None)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return ""
    for subject in ("command", "path"):
        if _is_text(properties.get(subject)):
            others = [one for name, one in properties.items() if name != subject]
            return subject if all(map(_is_harmless, others)) else ""
    return ""


def usual_subject(name: str, arguments: Mapping[str, object] | None = None) -> Subject:
    """The same for a tool of which only the name is known, as in a file, or one call, as in a store."""
    if name in _USUAL or arguments is None:
        return _USUAL.get(name, "")
    for subject in ("command", "path"):
        if isinstance(arguments.get(subject), str):
            texts = [
                one for key, one in arguments.items() if key != subject and not isinstance(one, int | float | None)
            ]
            return "" if texts else subject
    return ""


def _is_text(schema: object) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string" and not {"enum", "const"} & schema.keys()


def _is_harmless(schema: object) -> bool:
    """True for a number or a switch, which names nothing."""
    if not isinstance(schema, Mapping):
        return False
    if isinstance(choices := schema.get("anyOf"), list | tuple):
        return all(map(_is_harmless, choices))
    return schema.get("type") in _HARMLESS or "enum" in schema
