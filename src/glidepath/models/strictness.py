"""Schemas that a vendor can enforce: every object closed, and only keywords that its grammar supports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.spi import ModelRequest, ToolSpec


def make_strict(schema: object) -> tuple[Any, bool]:
    """The schema with every object closed and every field required, and whether that was possible everywhere.

    The model then fills in fields with defaults, too. A mapping with free keys cannot be closed.
    """
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        parts = [make_strict(part) for part in schema]
        return [part for part, _ in parts], all(closed for _, closed in parts)
    if not isinstance(schema, Mapping):
        return schema, True
    closed, made = True, dict[str, Any]()
    for key, value in schema.items():
        if key == "default":
            continue
        if key in {"properties", "$defs", "definitions"} and isinstance(value, Mapping):
            inner = {name: make_strict(part) for name, part in value.items()}
            made[key] = {name: part for name, (part, _) in inner.items()}
            closed = closed and all(fine for _, fine in inner.values())
        elif key in {"enum", "const", "required", "examples"}:
            made[key] = value
        elif key == "discriminator":
            continue
        else:
            key = "anyOf" if key == "oneOf" else key  # noqa: PLW2901 - the only choice that can be enforced
            made[key], fine = make_strict(value)
            closed = closed and fine
    if schema.get("type") == "object":
        closed = closed and "properties" in schema and schema.get("additionalProperties", False) is False
        if "properties" in schema and schema.get("additionalProperties", False) is False:
            made["required"] = list(schema["properties"])
            made["additionalProperties"] = False
    return made, closed


_UNSTRICT = frozenset(
    {"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "prefixItems"}
)
"""Keywords that no provider enforces."""


def strict_parameters(tool: ToolSpec, request: ModelRequest) -> Any:
    """The parameters of a tool in strict form; None if they should not or cannot be enforced."""
    if not (request.strict_tools if tool.strict is None else tool.strict):
        return None
    closed, fine = make_strict(tool.parameters)
    return closed if fine and not _has_keyword(tool.parameters, _UNSTRICT) else None


def _has_keyword(schema: object, words: frozenset[str]) -> bool:
    if isinstance(schema, Mapping):
        return any(key in words or _has_keyword(value, words) for key, value in schema.items())
    return isinstance(schema, list | tuple) and any(_has_keyword(part, words) for part in schema)


# --- Anthropic ------------------------------------------------------------------------------------------------

MOST_STRICT_TOOLS = 20
MOST_UNIONS = 16
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
)
_UNBINDING = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "contentEncoding",
        "contentMediaType",
        "examples",
    }
)
"""Keywords that Anthropic refuses, at least with some values, in a strict schema: they go into the description."""


class Grammar:
    """The budget of one request at Anthropic: how many strict tools and unions its schemas may have in total.

    A schema that does not fit is sent unchanged and not enforced.
    """

    __slots__ = ("left_out", "tools", "unions")

    def __init__(self) -> None:
        self.tools = MOST_STRICT_TOOLS
        self.unions = MOST_UNIONS
        self.left_out = False
        """Something did not fit and is not enforced."""

    def output(self, schema: Mapping[str, Any]) -> Any:
        """An output schema in strict form; None if it cannot be enforced."""
        closed, fine = make_strict(schema)
        return self._strict_within_limits(closed) if fine and not _has_keyword(schema, _UNSTRICT) else None

    def parameters(self, tool: ToolSpec, request: ModelRequest) -> Any:
        """The parameters of a tool in strict form; None if they are not enforced."""
        closed = strict_parameters(tool, request)
        if closed is None:
            return None
        if not self.tools:
            self.left_out = True
            return None
        bound = self._strict_within_limits(closed)
        self.tools -= bound is not None
        return bound

    def _strict_within_limits(self, schema: dict[str, Any]) -> Any:
        unions = _count_unions(schema)
        if unions > self.unions or _is_recursive(schema):
            self.left_out = True
            return None
        self.unions -= unions
        return _move_keywords_into_text(schema)


def _count_unions(schema: object) -> int:
    if isinstance(schema, Mapping):
        own = "anyOf" in schema or isinstance(schema.get("type"), list | tuple)
        return own + sum([_count_unions(part) for part in schema.values()])
    return sum([_count_unions(part) for part in schema]) if isinstance(schema, list | tuple) else 0


def _is_recursive(schema: Mapping[str, Any]) -> bool:
    """Whether a definition refers to itself, directly or not."""
    definitions = schema.get("$defs") or {}
    reached = {name: _references(part) for name, part in definitions.items()}
    for start in definitions:
        seen, open_ones = set[str](), set(reached[start])
        while open_ones:
            name = open_ones.pop()
            if name == start:
                return True
            if name not in seen:
                seen.add(name)
                open_ones |= reached.get(name, set())
    return "#" in _references(schema)


def _references(schema: object) -> set[str]:
    if isinstance(schema, Mapping):
        own = schema.get("$ref")
        found = {own.removeprefix("#/$defs/")} if isinstance(own, str) else set[str]()
        return found.union(*[_references(part) for part in schema.values()])
    return set[str]().union(*[_references(part) for part in schema]) if isinstance(schema, list | tuple) else set()


def _move_keywords_into_text(schema: object, *, names: bool = False) -> Any:
    """The schema with unsupported keywords moved into descriptions. With `names`, its keys are names of fields."""
    if isinstance(schema, list | tuple):
        return [_move_keywords_into_text(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    if names:
        return {name: _move_keywords_into_text(part) for name, part in schema.items()}
    made, told = dict[str, Any](), list[str]()
    for key, value in schema.items():
        if (
            key in _UNBINDING
            or (key == "format" and value not in _FORMATS)
            or (key == "minItems" and value not in (0, 1))
        ):
            told.append(f"{key}: {_wire.encode(value).decode()}")
        elif key in ("enum", "const", "required"):
            made[key] = value
        else:
            made[key] = _move_keywords_into_text(value, names=key in ("properties", "$defs", "definitions"))
    if told:
        made["description"] = f"{made.get('description', '')} ({', '.join(told)})".strip()
    return made
