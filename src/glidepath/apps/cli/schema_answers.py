"""Answers that fit a JSON Schema from a file: `glidepath run --json-schema FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glidepath.mcp import make_schema_type
from glidepath.values import ConfigurationError

_MOST = 1_000_000


def answer_type(path: Path) -> type:
    """A type whose values are plain JSON objects that fit the schema in a file; raises `ConfigurationError`."""
    return make_schema_type(_schema_in(path))


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
