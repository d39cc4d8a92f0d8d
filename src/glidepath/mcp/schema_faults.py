"""Finds invalid JSON Schemas: a provider refuses every request that has a tool with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from glidepath.values import short_repr

_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """The first fault of a schema, and where; None when it is valid. The caller bounds its depth."""
    return next(_find_faults(schema, schema, "$"), None)


def _find_faults(node: object, root: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(node, bool):
        return
    if not isinstance(node, Mapping):
        yield f"{where} is {short_repr(node, 40)} and not a schema"
        return
    yield from _find_own_faults(node, root, where)
    for word in _BY_NAME:
        inner = node.get(word, {})
        if not isinstance(inner, Mapping):
            yield f"{where}.{word} is {short_repr(inner, 40)} and not an object"
            return
        for name, part in inner.items():
            yield from _find_faults(part, root, f"{where}.{str(name)[:40]}")
    for word in _LISTS:
        parts = node.get(word, [True])
        if not isinstance(parts, list) or not parts:
            yield f"{where}.{word} is {short_repr(parts, 40)} and not a list of schemas"
            return
        for number, part in enumerate(parts):
            yield from _find_faults(part, root, f"{where}.{word}[{number}]")
    for word in _SINGLE:
        yield from _find_faults(node.get(word, True), root, f"{where}.{word}")


def _find_own_faults(node: Mapping[str, Any], root: Mapping[str, Any], where: str) -> Iterator[str]:
    """What is wrong with those keywords of a schema that hold no other schema."""
    if "type" in node:
        kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
        if not kinds or any(kind not in _TYPES for kind in kinds):
            yield f"{where} has the type {short_repr(node['type'], 40)}; the types are {', '.join(_TYPES)}"
    if not isinstance(node.get("enum", []), list):
        yield f"{where}.enum is {short_repr(node['enum'], 40)} and not a list"
    required = node.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f"{where}.required is {short_repr(required, 40)} and not a list of names"
    reference = node.get("$ref")
    if isinstance(reference, str) and not _is_resolvable(reference, root):
        yield f"{where} refers to {short_repr(reference, 80)}, which is not in it"


def _is_resolvable(reference: str, root: Mapping[str, Any]) -> bool:
    node: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        elif isinstance(node, Mapping) and key in node:
            node = node[key]
        else:
            return False
    return reference in ("#", "#/") or reference.startswith("#/")
