"""What a server says about a tool, made fit for a model: cleaned, clipped, and free of what providers refuse."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.mcp.schema_faults import schema_fault

if TYPE_CHECKING:
    from mcp.types import Tool as Definition

__all__ = ["clean_text", "digest_of", "make_legal_name", "make_legal_schema", "plain_definition"]

LONGEST_DESCRIPTION = 2_000
LONGEST_NOTE = 500  # characters of a description inside a schema
LARGEST_SCHEMA = 64 << 10  # bytes
DEEPEST_SCHEMA = 32
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]")
_UNSEEN = frozenset(map(chr, [0x034F, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_./:-]")
_DROPPED = frozenset({"$schema", "$id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "examples"})
_NOT_FLAGS = ("required", "exclusiveMinimum", "exclusiveMaximum")
_COMBINATORS = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const")


def clean_text(text: str, limit: int = LONGEST_DESCRIPTION) -> str:
    """The text as a person would see it: no control signs, zero-width or bidirectional marks, no HTML comments.

    No variation selectors either: a row of them is a text that a model can read and nobody sees.
    """
    text = _COMMENT.sub("", text[: limit * 8])
    text = _ESCAPES.sub("", text)
    kept = [
        letter
        for letter in text
        if letter in "\n\t"
        or (letter not in _UNSEEN and unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
    ]
    text = "".join(kept).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def plain_definition(tool: Definition) -> dict[str, Any]:
    """Everything a pin covers: what the server says about a tool, as plain data."""
    said = tool.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {
        name: said[name]
        for name in ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
        if name in said
    }


def digest_of(definition: Mapping[str, Any]) -> str:
    """The digest of a definition: SHA-256 over its JSON with sorted keys."""
    return sha256(_canonical(definition)).hexdigest()


def _canonical(data: object) -> bytes:
    return _wire.encode(_sort_keys(data))


def _sort_keys(data: object) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _sort_keys(data[key]) for key in sorted(data, key=str)}
    return [_sort_keys(item) for item in data] if isinstance(data, (list, tuple)) else data


def make_legal_name(name: str) -> str:
    """A name that we and providers can use; the server still gets its own."""
    return _ILLEGAL.sub("_", name)[:128] or "_"


def make_legal_schema(schema: object) -> tuple[dict[str, Any], str | None]:
    """The schema for the model, and what makes it unusable, if anything does."""
    try:
        shown = _check_schema(schema)
    except _Unusable as error:
        return {}, str(error)
    for _ in range(DEEPEST_SCHEMA):
        if not isinstance(reference := shown.pop("$ref", None), str):
            break
        shown = {**_follow_reference(shown, reference), **shown}
    shown["type"] = "object"
    for word in _COMBINATORS:  # no vendor accepts them at the top level; arguments are still checked against them
        shown.pop(word, None)
    return shown, _unusable_names(shown)


def _check_schema(schema: object) -> dict[str, Any]:
    """The schema without what providers refuse; raises `_Unusable`."""
    if not isinstance(schema, Mapping):
        raise _Unusable(f"its input schema must be an object, not {type(schema).__name__}")
    try:
        size = len(_wire.encode(dict(schema)))
    except Exception as error:
        raise _Unusable(f"its input schema cannot be written as JSON ({error})") from None
    if size > LARGEST_SCHEMA:
        raise _Unusable(f"its input schema is larger than {LARGEST_SCHEMA} bytes")
    shown: dict[str, Any] = _copy_accepted_parts(schema, 0)
    if shown.get("type", "object") != "object":
        raise _Unusable(f"its input schema must have type 'object', not {shown['type']!r}")
    if wrong := schema_fault(shown):
        raise _Unusable(f"its input schema is not valid: {wrong}")
    return shown


def _unusable_names(shown: Mapping[str, Any]) -> str | None:
    """What is wrong with the names of the parameters; None when nothing is."""
    for key in shown.get("properties", {}):
        if not _KEY.fullmatch(key):
            return f"its parameter {key[:80]!r} has a name that providers refuse (letters, digits, _ . - only)"
    return None


def _follow_reference(schema: Mapping[str, Any], reference: str) -> dict[str, Any]:
    node: Any = schema
    for part in reference.removeprefix("#").split("/")[1:]:
        node = node.get(part) if isinstance(node, Mapping) else None
    return dict(node) if isinstance(node, Mapping) else {}


class _Unusable(Exception):  # noqa: N818 - never leaves this module
    """No model can be given this schema."""


def _copy_accepted_parts(node: object, depth: int, *, names: bool = False) -> Any:
    """A copy without what providers refuse. `names`: the keys are names of properties, not words of a schema."""
    if depth > DEEPEST_SCHEMA:
        raise _Unusable(f"its input schema is nested more than {DEEPEST_SCHEMA} levels deep")
    if isinstance(node, list):
        return [_copy_accepted_parts(item, depth + 1) for item in node]
    if not isinstance(node, Mapping):
        return node
    if names:
        return {str(key): _copy_accepted_parts(value, depth + 1) for key, value in node.items()}
    shown: dict[str, Any] = {}
    for key, value in node.items():
        if key in _DROPPED or key.startswith("x-"):
            continue
        if isinstance(value, bool) and key in _NOT_FLAGS and depth:
            continue  # as drafts 3 and 4 of JSON Schema had it
        if key == "$ref" and not (isinstance(value, str) and value.startswith("#")):
            continue  # elsewhere: nothing is fetched
        if key in ("description", "title") and isinstance(value, str):
            shown[key] = clean_text(value, LONGEST_NOTE)
        else:
            named = key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
            shown[key] = _copy_accepted_parts(value, depth + 1, names=named)
    return shown
