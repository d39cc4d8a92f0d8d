"""Answers that fit a JSON Schema from a file: `glidepath run --json-schema FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glidepath.mcp.schema_check import schema_problems
from glidepath.values import ConfigurationError

_MOST = 1_000_000


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
            problems = schema_problems(schema, value)
            if problems or not isinstance(value, dict):
                raise ValueError("; ".join(problems))
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
