"""What a builder has been told so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from glidepath.errors import BuilderError


class Said:
    """The values of settings, by field; single limits and guardrails separate from whole ones."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._parts: dict[str, dict[str, Any]] = {"limits": {}, "guardrails": {}}

    def _set(self, field: str, value: object) -> Self:
        self._values[field] = value
        return self

    def _set_all(self, field: str, value: object) -> Self:
        said = self._parts[field]
        if said:
            first = next(iter(said))
            raise BuilderError(
                f"{field}(...) would overwrite {first}({said[first]!r}): call {field}() before {first}()"
            )
        return self._set(field, value)

    def _part(self, field: str, name: str, value: object) -> Self:
        self._parts[field][name] = value
        return self

    def _list(self, field: str, value: object) -> Self:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise BuilderError(f"{field} must be a list or tuple, not {value!r:.100}")
        return self._set(field, tuple(value))

    def _add(self, field: str, value: object) -> Self:
        before = self._values.get(field, ())
        self._list(field, value)
        return self._set(field, (*before, *self._values[field]))
