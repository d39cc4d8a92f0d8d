"""Checks arguments against a server's JSON Schema, all the way down, in bounded time.

A schema comes from a stranger: alternatives that multiply, references that go round and regular expressions that never
end are ways to freeze a process. So every check has a number of steps it may take; `pattern` and `format` are the
server's own to check.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from glidepath.tools import SchemaBinder
from glidepath.tools.text import shorten
from glidepath.values import pluralize

__all__ = ["ServerBinder", "make_schema_type", "schema_problems"]

MOST_STEPS = 20_000
MOST_DEPTH = 48
MOST_PROBLEMS = 12
_LONGEST_NAME = 80
_TYPES: Mapping[str, Any] = {
    "string": str,
    "array": (list, tuple),
    "object": Mapping,
    "null": type(None),
    "boolean": bool,
}


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("minimum", operator.ge),
    ("maximum", operator.le),
    ("exclusiveMinimum", operator.gt),
    ("exclusiveMaximum", operator.lt),
)


class ServerBinder(SchemaBinder):
    """The binder of a server's tool: names and types at the top as for any tool, then everything below."""

    def __init__(self, name: str, schema: dict[str, Any], whole: Mapping[str, Any]) -> None:
        super().__init__(name, schema)
        self._whole = whole

    def _problems(self, arguments: object) -> list[str]:
        return super()._problems(arguments) or schema_problems(self._whole, arguments)


def make_schema_type(schema: Mapping[str, Any]) -> type:
    """A type whose values are plain JSON objects that fit a schema: for `output_type`."""

    class Answer(dict):  # type: ignore[type-arg]
        """A JSON object that fits."""

        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return dict(schema)

        @classmethod
        def model_validate(cls, value: object) -> Any:
            problems = schema_problems(schema, value)
            if problems or not isinstance(value, dict):
                raise ValueError("; ".join(problems))
            return cls(value)

        def model_dump(self, **_: object) -> dict[str, Any]:
            return dict(self)

    title = "".join(sign for sign in str(schema.get("title") or "") if sign.isprintable())
    Answer.__name__ = title[:_LONGEST_NAME] or "Answer"
    return Answer


def schema_problems(schema: Mapping[str, Any], value: object) -> list[str]:
    """What is wrong with a value; empty when nothing is, or when checking it would take too long."""
    checker = _Checker(schema)
    problems: list[str] = []
    try:
        for problem in checker.check(schema, value, "$", 0):
            problems.append(problem)
            if len(problems) >= MOST_PROBLEMS:
                break
    except _TooLong:
        return []
    return problems


class _TooLong(Exception):  # noqa: N818 - never leaves this module
    """The schema asks for more steps than we take."""


class _Checker:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0

    def check(self, schema: object, value: object, where: str, depth: int) -> Iterator[str]:
        self._steps += 1
        if self._steps > MOST_STEPS or depth > MOST_DEPTH:
            raise _TooLong
        if schema is False:
            yield f"nothing is allowed at `{where}`"
        if not isinstance(schema, Mapping):
            return
        if isinstance(reference := schema.get("$ref"), str):
            yield from self.check(self._resolve_reference(reference), value, where, depth + 1)
        if (wrong := _explain_wrong_type(schema.get("type"), value)) is not None:
            yield f"{wrong} - at `{where}`"
            return
        yield from _plain_problems(schema, value, where)
        if isinstance(value, Mapping):
            yield from self._object(schema, value, where, depth)
        elif isinstance(value, (list, tuple)):
            yield from self._array(schema, value, where, depth)
        yield from self._check_combinations(schema, value, where, depth)

    def _resolve_reference(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return True  # elsewhere: nothing is fetched
        node: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            node = node.get(key, True) if isinstance(node, Mapping) else True
        return node

    def _object(self, schema: Mapping[str, Any], value: Mapping[str, Any], where: str, depth: int) -> Iterator[str]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required")
        for name in required if isinstance(required, list) else ():
            if isinstance(name, str) and name not in value:
                yield f"missing required field {shorten(name, 80)!r} - at `{where}`"
        more = schema.get("additionalProperties", True)
        patterned = "patternProperties" in schema
        for name, item in value.items():
            inner = f"{where}.{shorten(str(name), 40)}"
            if name in properties:
                yield from self.check(properties[name], item, inner, depth + 1)
            elif more is False and not patterned and properties:
                yield f"unknown field {shorten(str(name), 80)!r} - at `{where}`"
            elif isinstance(more, Mapping):
                yield from self.check(more, item, inner, depth + 1)

    def _array(self, schema: Mapping[str, Any], value: Sequence[object], where: str, depth: int) -> Iterator[str]:
        for word, wrong in (("minItems", int.__lt__), ("maxItems", int.__gt__)):
            bound = schema.get(word)
            if type(bound) is int and wrong(len(value), bound):
                yield f"{word} is {bound}, got {pluralize(len(value), 'item')} - at `{where}`"
        first = schema.get("prefixItems")
        first = first if isinstance(first, list) else []
        items = schema.get("items")
        for number, item in enumerate(value):
            shape = first[number] if number < len(first) else items
            if shape is not None:
                yield from self.check(shape, item, f"{where}[{number}]", depth + 1)

    def _check_combinations(self, schema: Mapping[str, Any], value: object, where: str, depth: int) -> Iterator[str]:
        for part in _parts(schema, "allOf"):
            yield from self.check(part, value, where, depth + 1)
        for word in ("anyOf", "oneOf"):
            parts = _parts(schema, word)
            if not parts:
                continue
            first: list[str] = []
            fitting = 0
            for part in parts:
                wrong = list(self.check(part, value, where, depth + 1))
                fitting += not wrong
                first = first or wrong
                if fitting and word == "anyOf":
                    break
            if not fitting:
                yield f"fits none of {len(parts)} alternatives (the first: {first[0]}) - at `{where}`"


def _parts(schema: Mapping[str, Any], word: str) -> list[Any]:
    parts = schema.get(word)
    return parts if isinstance(parts, list) else []


def _explain_wrong_type(said: object, value: object) -> str | None:
    names = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    if not names or any(_is_of(name, value) for name in names):
        return None
    return f"Expected `{' | '.join(map(str, names))}`, got `{_type_name(value)}`"


def _is_of(name: object, value: object) -> bool:
    if name in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return name == "number" or isinstance(value, int) or (math.isfinite(value) and value == int(value))
    kind = _TYPES.get(name) if isinstance(name, str) else None
    return kind is None or isinstance(value, kind)


def _type_name(value: object) -> str:
    for name, kind in _TYPES.items():
        if isinstance(value, kind):
            return name
    return "number"


def _plain_problems(schema: Mapping[str, Any], value: object, where: str) -> Iterator[str]:
    """Keywords that concern the value alone."""
    values = schema.get("enum")
    if isinstance(values, list) and not any(_is_same(value, other) for other in values):
        yield f"must be one of {shorten(', '.join(map(repr, values)), 200)} - at `{where}`"
    if "const" in schema and not _is_same(value, schema["const"]):
        yield f"must be {shorten(repr(schema['const']), 100)} - at `{where}`"
    if isinstance(value, str):
        for word, wrong in (("minLength", int.__lt__), ("maxLength", int.__gt__)):
            bound = schema.get(word)
            if type(bound) is int and wrong(len(value), bound):
                yield f"{word} is {bound}, got {pluralize(len(value), 'character')} - at `{where}`"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        for word, fits in _BOUNDS:
            bound = schema.get(word)
            if isinstance(bound, (int, float)) and not isinstance(bound, bool) and not fits(value, bound):
                yield f"{word} is {bound}, got {value} - at `{where}`"


def _is_same(value: object, other: object) -> bool:
    return type(value) is type(other) and bool(value == other)
