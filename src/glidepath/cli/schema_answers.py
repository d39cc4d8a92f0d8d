"""Answers that fit a JSON Schema from a file: `glidepath run --json-schema FILE`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from glidepath.errors import ConfigurationError

_MOST = 1_000_000
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def answer_type(path: Path) -> type:
    """A type whose values are plain JSON objects that fit the schema in a file; raises `ConfigurationError`."""
    schema = _schema_in(path)

    class Answer(dict):  # type: ignore[type-arg]
        """A JSON object that fits."""

        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return dict(schema)

        @classmethod
        def model_validate(cls, value: object) -> Any:
            problem = next(_problems(value, schema, schema, "the answer"), None)
            if problem is not None or not isinstance(value, dict):
                raise ValueError(problem)
            return cls(value)

        def model_dump(self, **_: object) -> dict[str, Any]:
            return dict(self)

    Answer.__name__ = str(schema.get("title") or "Answer")
    return Answer


def _schema_in(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()[: _MOST + 1]
    except OSError as error:
        raise ConfigurationError(f"--json-schema: {path} cannot be read: {error.strerror or error}") from None
    try:
        schema = json.loads(data)
    except ValueError as error:
        raise ConfigurationError(f"--json-schema: {path} is not JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ConfigurationError(
            f'--json-schema: {path} must describe an object: {{"type": "object", "properties": ...}}'
        )
    return schema


def _problems(value: object, schema: object, root: Mapping[str, Any], place: str) -> Iterator[str]:
    """What does not fit: types, required and unknown keys, enums, bounds, items, and local references."""
    if not isinstance(schema, Mapping):
        return
    if "$ref" in schema:
        yield from _problems(value, _referred(str(schema["$ref"]), root), root, place)
        return
    for group in ("anyOf", "oneOf"):
        choices = schema.get(group)
        if isinstance(choices, list) and all(any(True for _ in _problems(value, c, root, place)) for c in choices):
            yield f"{place}: fits none of its {len(choices)} forms"
    wanted = schema.get("type")
    names = wanted if isinstance(wanted, list) else [wanted] if isinstance(wanted, str) else []
    if names and not any(_is(value, name) for name in names):
        yield f"{place}: expected {' or '.join(names)}, got {type(value).__name__}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: expected one of {json.dumps(schema['enum'])}"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: expected {json.dumps(schema['const'])}"
    yield from _bounds(value, schema, place)
    if isinstance(value, dict):
        yield from _fields(value, schema, root, place)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _problems(item, schema.get("items"), root, f"{place}[{number}]")


def _fields(value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], place: str) -> Iterator[str]:
    known = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{place}: {name!r} is missing"
    for name, item in value.items():
        if name in known:
            yield from _problems(item, known[name], root, f"{place}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{place}: there is no {name!r}"


def _bounds(value: object, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            yield f"{place}: at least {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            yield f"{place}: at most {schema['maximum']}"
    for low, high, kind in (("minLength", "maxLength", str), ("minItems", "maxItems", list)):
        if isinstance(value, kind):
            if low in schema and len(value) < schema[low]:
                yield f"{place}: at least {schema[low]} long"
            if high in schema and len(value) > schema[high]:
                yield f"{place}: at most {schema[high]} long"


def _is(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES.get(name, (object,)))


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for part in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ():
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if reference.startswith("#/") else None
