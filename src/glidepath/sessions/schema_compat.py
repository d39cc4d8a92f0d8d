"""Reading what a later release wrote: a value that this one does not know becomes the nearest that it does.

Fields that are unknown are passed over anyway. A value of an enumeration that is unknown becomes None where that is
allowed, else the member of it that promises least; a block or a decision of an unknown kind is left out. Nothing of
this is written back: the journal keeps what it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from glidepath import _wire
from glidepath._version import VERSION, is_newer
from glidepath._wire import WireError
from glidepath.values import (
    AgentState,
    AssistantMessage,
    CustomMessage,
    LoopOutcome,
    Message,
    ResourceAction,
    StopReason,
    StoreError,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
    codec,
)


def make_unreadable_error(what: str, writer: object, error: Exception) -> StoreError:
    """The error for a part that cannot be read: kind `newer` if this writer is a later release, else `damaged`."""
    if isinstance(writer, str) and is_newer(writer):
        said = f"{what} was written by glidepath {writer}, but this is {VERSION}: use a newer glidepath"
        return StoreError(said, kind="newer")
    return StoreError(f"{what} cannot be read: {error}", kind="damaged")


_LEAST: Mapping[type, Enum] = {
    AgentState: AgentState.ERROR,
    LoopOutcome: LoopOutcome.FAILED,
    StopReason: StopReason.OTHER,
    ResourceAction: ResourceAction.GRACEFUL_EXIT,
}
_ROLES = {
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool_result": ToolResultMessage,
    "custom": CustomMessage,
}
_LEFT_OUT: Any = object()
_all_known = _wire.decoder(list[Message])


def decode_leniently(data: bytes, kind: object) -> Any:
    """Read JSON as `kind`, leniently; raises `WireError` for anything else."""
    try:
        return _wire.decode(data, kind)
    except WireError:
        return _wire.convert(_replace_unknown(_wire.loads(data), kind), kind)


def convert_leniently(data: object, kind: object) -> Any:
    """Plain data as `kind`, leniently; raises `WireError`."""
    try:
        return _wire.convert(data, kind)
    except WireError:
        return _wire.convert(_replace_unknown(_wire.to_plain_data(data), kind), kind)


def message_of(data: bytes) -> Any:
    """One message, leniently; one of an unknown role is kept as it is."""
    try:
        return codec.decode(data)
    except WireError:
        plain = _wire.loads(data)
        kind = _ROLES.get(plain.get("role", "")) if isinstance(plain, dict) else None
        if kind is None:
            raise
        return codec.decode(_wire.encode(_replace_unknown(plain, kind)))


def messages_of(written: Sequence[_wire.Raw]) -> list[Any]:
    """Many messages, each as `message_of` reads it; in one go where all are as this release writes them."""
    try:
        return _all_known(b"[" + b",".join(written) + b"]")  # type: ignore[no-any-return]
    except WireError:
        return [message_of(bytes(one)) for one in written]


def _replace_unknown(data: object, kind: Any) -> Any:
    """The data, with every unknown value replaced or left out."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return data if data in inside else _LEFT_OUT
    if origin in (Union, UnionType):
        return _one_of(data, inside)
    if inside and isinstance(data, list) and _is(origin, Sequence):
        return _items(data, inside)
    if inside and isinstance(data, dict) and _is(origin, Mapping):
        found = {key: _replace_unknown(one, inside[1]) for key, one in data.items()}
        return {key: one for key, one in found.items() if one is not _LEFT_OUT}
    if _is(kind, Enum):
        return data if any(one.value == data for one in kind) else _least_value_of(kind)
    return _fields(data, kind) if isinstance(data, dict) and _is(kind, _wire.Struct) else data


def _is(kind: object, of: type | UnionType) -> bool:
    return isinstance(kind, type) and issubclass(kind, of)


def _items(data: list[Any], kinds: tuple[Any, ...]) -> list[Any]:
    each = kinds[:1] * len(data) if len(kinds) == 1 or kinds[1:] == (...,) else kinds
    found = [_replace_unknown(one, kind) for one, kind in zip(data, each, strict=False)]
    return [one for one in found if one is not _LEFT_OUT]


def _fields(data: dict[str, Any], kind: type) -> Any:
    hints = _hints(kind)
    found = {key: _replace_unknown(one, hints.get(key, Any)) for key, one in data.items()}
    return _LEFT_OUT if any(one is _LEFT_OUT for one in found.values()) else found


def _least_value_of(kind: type[Enum]) -> Any:
    found = _LEAST.get(kind)
    return _LEFT_OUT if found is None else found.value


def _one_of(data: object, kinds: tuple[Any, ...]) -> Any:
    """The data as the one kind of these that it can be."""
    if data is None:
        return None
    tagged: dict[Any, Any] = {one.__struct_config__.tag: one for one in kinds if _is(one, _wire.Struct)}
    tagged.pop(None, None)
    if tagged and isinstance(data, dict):
        field = next(iter(tagged.values())).__struct_config__.tag_field
        kind = tagged.get(data.get(field))
        return _LEFT_OUT if kind is None else _replace_unknown(data, kind)
    fitting = [one for one in kinds if one is not NoneType and _may_be(data, one)]
    if not fitting:
        return None if NoneType in kinds else _LEFT_OUT
    known = _replace_unknown(data, fitting[0])
    return None if _is(fitting[0], Enum) and known != data and NoneType in kinds else known


def _may_be(data: object, kind: object) -> bool:
    plain = get_origin(kind) or kind
    if isinstance(data, dict):
        return _is(plain, Mapping | _wire.Struct)
    if isinstance(data, list):
        return _is(plain, Sequence) and plain is not str
    return not _is(plain, Mapping | _wire.Struct | tuple | list)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
