"""Bodies of requests: bytes to a dict and back, and looks at fields that may have any type."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from glidepath import _wire
from glidepath.apps.gate.dialects.dialect import BadRequest, Body

_read_fields = _wire.decoder(dict[str, _wire.Raw])
LARGEST_COUNT = 1 << 40
"""No provider writes this many tokens; a larger number would overflow what is stored."""
MOST_PARTS = 500_000
"""Lists and objects in a body: each takes twenty times its bytes in memory, and no model reads so many."""
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def parse_body(raw: bytes) -> Body:
    """The JSON object in these bytes; raises `BadRequest` for anything else, and for a field that occurs twice."""
    if len(raw) > MOST_PARTS and raw.count(b"{") + raw.count(b"[") > MOST_PARTS:
        raise BadRequest("body", f"has more than {MOST_PARTS:,} lists and objects: send a smaller request")
    try:
        fields = _read_fields(raw)
        body = {name: _wire.loads(value) for name, value in fields.items()}
    except (_wire.WireError, RecursionError, ValueError):
        return _parse_leniently(raw)
    if not _is_plain(raw, fields):
        _check_names(raw)
    return body


def write_body(body: Body) -> bytes:
    """JSON bytes of a body, also of one with halves of surrogate pairs, which JavaScript clients send."""
    try:
        return _wire.encode(body)
    except (_wire.WireError, UnicodeError, ValueError, TypeError):
        return json.dumps(body, separators=(",", ":")).encode()


def _is_plain(raw: bytes, fields: dict[str, _wire.Raw]) -> bool:
    """Whether the bytes are exactly these fields, written as JavaScript or Python writes them: no name comes twice."""
    held = sum([len(_wire.encode(name)) + len(memoryview(value)) for name, value in fields.items()])
    separators = max(2 * len(fields) - 1, 0)
    return len(raw.strip()) - held - 2 in (separators, 2 * separators)


def _check_names(raw: bytes) -> None:
    try:
        json.loads(raw, object_pairs_hook=_unique)
    except BadRequest:
        raise
    except (ValueError, RecursionError):
        return  # it was read before


def _parse_leniently(raw: bytes) -> Body:
    """As Python reads JSON: it accepts halves of surrogate pairs."""
    try:
        body = json.loads(raw, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise BadRequest("body", "is nested too deeply: send fewer levels of lists and objects") from None
    except ValueError as error:  # also for bytes that are not UTF-8, and for numbers of thousands of digits
        raise BadRequest("body", f"is not JSON ({str(error)[:120]}): send one JSON object in UTF-8") from None
    if type(body) is not dict:
        raise BadRequest("body", f"is {kind_of(body)}: send one JSON object")
    return body


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadRequest(twice[:80], "occurs twice in one object: send each field once")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


# --- looks at fields ------------------------------------------------------------------------------------------


def kind_of(value: object) -> str:
    """What a value is, for an error text."""
    return _KINDS.get(type(value), "a number")


def body_of(value: object) -> Body:
    """This object; raises `BadRequest` for anything else."""
    if type(value) is dict:
        return value
    raise BadRequest("body", f"is {kind_of(value)}: send one JSON object")


def text_in(body: Body, field: str) -> str:
    """A text, or "" if it is missing or null."""
    value = body.get(field)
    if value is None or type(value) is str:
        return value or ""
    raise BadRequest(field, f"is {kind_of(value)}: send a text")


def model_in(body: Body, field: str = "model") -> str:
    """The name of the model, which every request needs."""
    name = text_in(body, field)
    if name.strip():
        return name
    raise BadRequest(field, "is missing: name the model that should answer")


def flag_in(body: Body, field: str) -> bool:
    """True or false; false if it is missing or null."""
    value = body.get(field)
    if value is None or type(value) is bool:
        return bool(value)
    raise BadRequest(field, f"is {kind_of(value)}: send true or false")


def count_in(body: Body, field: str, least: int = 1) -> int | None:
    """A whole number, or None if it is missing or null."""
    value = body.get(field)
    if value is None:
        return None
    if type(value) is float and value.is_integer() and abs(value) <= LARGEST_COUNT:
        value = int(value)  # as JavaScript sees it, 4e3 and 4000 are the same
    if type(value) is int and least <= value <= LARGEST_COUNT:
        return value
    shown = value if type(value) in (int, float) else kind_of(value)
    raise BadRequest(field, f"is {shown!s:.40}: send a whole number of at least {least}")


def object_in(body: Body, field: str) -> dict[str, Any]:
    """An object, or an empty one if it is missing or null."""
    value = body.get(field)
    if value is None or type(value) is dict:
        return value or {}
    raise BadRequest(field, f"is {kind_of(value)}: send an object")


def objects_in(body: Body, field: str) -> list[dict[str, Any]]:
    """A list of objects, or an empty one if it is missing or null."""
    value = body.get(field)
    if value is None:
        return []
    if type(value) is not list:
        raise BadRequest(field, f"is {kind_of(value)}: send a list of objects")
    for number, item in enumerate(value):
        if type(item) is not dict:
            raise BadRequest(f"{field}[{number}]", f"is {kind_of(item)}: send an object")
    return value


def messages_in(body: Body, field: str) -> list[dict[str, Any]]:
    """A list of objects, which every request needs."""
    if body.get(field) is None:
        raise BadRequest(field, "is missing: send a list of objects")
    return objects_in(body, field)


def as_text(value: object) -> str:
    """This text, or "" for anything else: for fields that the provider checks, not the gate."""
    return value if type(value) is str else ""


def as_objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list, or nothing: for fields that the provider checks, not the gate."""
    return [item for item in value if type(item) is dict] if type(value) is list else []
