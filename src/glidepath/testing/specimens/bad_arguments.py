"""Arguments that fit a JSON Schema, so that a stand-in of any tool can be called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DEEPEST = 8


def arguments_for(schema: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Arguments that fit the schema of an object; other numbers give other arguments where the schema allows."""
    value = _value(schema, number, "", schema.get("$defs", {}), 0)
    return value if isinstance(value, dict) else {}


def _value(schema: object, number: int, name: str, definitions: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return f"{name or 'item'} {number}"
    if "$ref" in schema:
        return _value(definitions.get(str(schema["$ref"]).rsplit("/", 1)[-1]), number, name, definitions, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][number % len(schema["enum"])]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _value(schema[key][0], number, name, definitions, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _make_typed_value(kind[0] if isinstance(kind, list) else kind, schema, number, name, definitions, depth)


def _make_typed_value(
    kind: str, schema: Mapping[str, Any], number: int, name: str, definitions: Mapping[str, Any], depth: int
) -> Any:
    if kind == "object":
        wanted = schema.get("required", ())
        properties = schema.get("properties", {})
        return {key: _value(properties.get(key), number, key, definitions, depth + 1) for key in wanted}
    if kind == "array":
        items = max(1, int(schema.get("minItems", 1)))
        return [_value(schema.get("items"), number + item, name, definitions, depth + 1) for item in range(items)]
    if kind in ("integer", "number"):
        return _number(schema, number)
    if kind == "boolean":
        return number % 2 == 0
    if kind == "null":
        return None
    return _text(schema, f"{name or 'item'} {number}")


def _number(schema: Mapping[str, Any], number: int) -> int | float:
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most = schema.get("maximum", schema.get("exclusiveMaximum", least + 10**6))
    least += 1 if "exclusiveMinimum" in schema else 0
    most -= 1 if "exclusiveMaximum" in schema else 0
    step = schema.get("multipleOf", 1)
    value = least + (number * step) % max(step, most - least + step)
    return min(value, most)  # type: ignore[no-any-return]


def _text(schema: Mapping[str, Any], text: str) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    text = text.ljust(least, "x")
    return text if most is None else text[-most:] if most else ""
