"""Types that msgspec does not know but tools use: pydantic models (by duck typing, never imported) and paths."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from glidepath import _wire
from glidepath.values import describe_error


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _is_path(kind: type) -> bool:
    paths = sys.modules.get("pathlib")  # a program with a path has imported it
    return paths is not None and issubclass(kind, paths.PurePath)


def build(kind: Any, value: object) -> Any:
    """Make a `kind` from plain data; raises `ValueError` or `TypeError` with a text for the model."""
    if _is_model(kind):
        try:
            return kind.model_validate(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ValueError(_describe_error(error)) from error
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    if "\0" in value:
        raise ValueError("a path cannot contain a NUL byte")
    return kind(value)


def dump(value: object) -> Any:
    """Plain data from which `build` makes an equal value."""
    if _is_model(type(value)):
        # By alias, as in the schema, so that the journal reads like what the model sent.
        return value.model_dump(mode="json", by_alias=True)  # type: ignore[attr-defined]
    if _is_path(type(value)):
        return str(value)
    if isinstance(value, Mapping):  # from a hook that replaced arguments
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} has no plain form")


encode = _wire.encoder(enc_hook=dump)
"""JSON bytes of a value that may contain such types."""


def fill(value: object) -> None:
    """Write the defaults of every dataclass inside `value` into the instance.

    msgspec leaves them on the class, where neither an encoder nor `vars()` finds them.
    """
    if isinstance(value, dict):
        below: Iterable[Any] = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        below = value
    elif hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields

        names = [field.name for field in fields(value)]  # type: ignore[arg-type]
        below = [getattr(value, name) for name in names]
        if (own := getattr(value, "__dict__", None)) is not None:
            own.update(zip(names, below, strict=True))
    else:
        below = [getattr(value, name) for name in getattr(value, "__struct_fields__", ())]
    for item in below:
        fill(item)


def describe(kind: Any) -> dict[str, Any]:
    """JSON Schema of such a type; its `$defs` are still inside. Raises `NotImplementedError` for any other type."""
    if _is_model(kind):
        schema: dict[str, Any] = kind.model_json_schema()
        return schema
    if isinstance(kind, type) and _is_path(kind):
        return {"type": "string", "format": "path"}
    raise NotImplementedError(f"{getattr(kind, '__name__', kind)} has no JSON Schema")


def _describe_error(error: BaseException) -> str:
    """A pydantic error without its links and repeated input; any other error as type and text."""
    try:
        faults = error.errors()  # type: ignore[attr-defined]
        return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'value'}: {fault['msg']}" for fault in faults[:10])
    except KeyboardInterrupt:
        raise
    except BaseException:
        return describe_error(error)
