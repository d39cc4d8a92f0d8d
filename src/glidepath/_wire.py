"""The one place that knows msgspec: how values are built, written and read back.

Everything that is stored or sent is a frozen `Value`. Unknown fields are ignored when a value is read,
and an unknown kind survives a round trip as its raw bytes (`Codec`), so that an older reader never loses
what a newer writer wrote.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar, dataclass_transform

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WireError = msgspec.MsgspecError
Raw = msgspec.Raw
Struct = msgspec.Struct
UNSET = msgspec.UNSET
UnsetType = msgspec.UnsetType
Meta = msgspec.Meta
field = msgspec.field
replace = msgspec.structs.replace
asdict = msgspec.structs.asdict
astuple = msgspec.structs.astuple
settle_field = msgspec.structs.force_setattr
"""Set a field of a frozen value, in its `__post_init__` only: to normalize what was given."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True):
    """A frozen value: built fast, compared by content, written as JSON."""


class Declaration(NamedTuple):
    """In the place of a field's default: the default, `UNSET` if there is not one, and what is known of the field."""

    default: Any
    about: Any


class _Suggesting(msgspec.StructMeta):
    """The kind of a class of settings: it keeps what its fields declare, and an unknown keyword gets its own error."""

    if not TYPE_CHECKING:  # a type checker reads the fields

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: object) -> Any:
            fields = {field: one for field, one in body.items() if one.__class__ is Declaration}
            defaults = {field: one.default for field, one in fields.items() if one.default is not UNSET}
            plain = {field: value for field, value in body.items() if field not in fields}
            made = super().__new__(cls, name, bases, {**plain, **defaults}, **options)
            made.__declared__ = {field: one.about for field, one in fields.items()}
            return made

        def __call__(self, *args: object, **fields: object) -> Any:
            try:
                return super().__call__(*args, **fields)
            except TypeError:
                for name in fields:
                    if name not in self.__struct_fields__:
                        raise self.no_such_setting(name) from None
                if args:
                    first = f"{self.__name__}({next(iter(self.__struct_fields__))}=...)"
                    raise TypeError(f"{self.__name__} takes keywords, such as {first}, not {args[0]!r:.80}") from None
                raise


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Settings(msgspec.Struct, frozen=True, kw_only=True, metaclass=_Suggesting):
    """A frozen value that people write by hand: a keyword it does not know gets `no_such_setting(name)`."""

    @classmethod
    def no_such_setting(cls, name: str) -> Exception:
        """The error for a keyword that is not a field."""
        return TypeError(f"{cls.__name__} has no field {name!r}")


@dataclass_transform(field_specifiers=(msgspec.field,))
class Record(msgspec.Struct):
    """A mutable record for what lives only while something happens: made quickly, never written."""


def is_frozen(value: object) -> bool:
    """True for one of our values that nobody can change."""
    return isinstance(value, msgspec.Struct) and value.__struct_config__.frozen


def dump_foreign_model(value: object) -> Any:
    """The plain data of another library's model, by duck typing; raises `TypeError` for anything else."""
    dump = getattr(type(value), "model_dump", None)
    try:
        if dump is not None:
            return dump(value, mode="json", by_alias=True)
    except Exception as error:
        raise TypeError(f"{type(value).__name__} cannot be written as JSON: {error}") from error
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_encoder = msgspec.json.Encoder(decimal_format="string", enc_hook=dump_foreign_model)


def encode(value: object) -> bytes:
    """JSON bytes of one of our values, or of plain data."""
    return _encoder.encode(value)


def decode(data: bytes | str, kind: object = Any) -> Any:
    """Read JSON, checked against `kind`; raises `WireError` with the path of what is wrong."""
    return msgspec.json.decode(data, type=kind)


def decoder(kind: object, *, dec_hook: Callable[[type, Any], Any] | None = None) -> Callable[[bytes | str], Any]:
    """A reusable `decode` for one type; `dec_hook` builds foreign types."""
    return msgspec.json.Decoder(kind, dec_hook=dec_hook).decode


canonical = msgspec.json.Encoder(order="deterministic", decimal_format="string").encode
"""JSON bytes with sorted keys: equal for equal data."""

loads = msgspec.json.Decoder().decode
"""JSON to plain Python data."""


def convert(data: object, kind: Any, *, strict: bool = True) -> Any:
    """Check plain data against `kind` and build it; raises `WireError`."""
    return msgspec.convert(data, kind, strict=strict)


def digest(value: object) -> str:
    """A digest of plain data: the same for the same data, in whatever order its keys are."""
    import hashlib
    import json

    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def format_json(value: object) -> bytes:
    """JSON for people: indented, one item a line."""
    return msgspec.json.format(encode(value), indent=2)


def encoder(*, enc_hook: Callable[[Any], Any] | None = None) -> Callable[[object], bytes]:
    """A reusable `encode` that asks `enc_hook` about foreign types."""
    return msgspec.json.Encoder(decimal_format="string", enc_hook=enc_hook).encode


def to_plain_data(value: object, *, enc_hook: Callable[[Any], Any] | None = None) -> Any:
    """The plain-data form (dict, list, str, number, bool, None) of a value."""

    def read(unknown: object) -> Any:
        if type(unknown) is Raw:
            return loads(unknown)
        if enc_hook is None:
            raise TypeError(f"{type(unknown).__name__} has no plain form")
        return enc_hook(unknown)

    return msgspec.to_builtins(value, enc_hook=read)


class _Frozen:
    """Refuses every change. A copy, also an unpickled one, is plain data again."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this is shared by every run and cannot be changed; change a copy.deepcopy() of it")

    __setitem__ = __delitem__ = __ior__ = __iadd__ = __imul__ = _refuse
    clear = pop = popitem = setdefault = update = append = extend = insert = remove = reverse = sort = _refuse

    def __deepcopy__(self, _: object) -> Any:
        return thaw(self)

    def __copy__(self) -> Any:
        return self.copy()  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[Any, ...]:
        return thaw, (thaw(self),)


class _FrozenDict(_Frozen, dict):  # type: ignore[type-arg]
    __slots__ = ()


class _FrozenList(_Frozen, list):  # type: ignore[type-arg]
    __slots__ = ()


def freeze(data: object) -> Any:
    """A deep copy of plain data that cannot be changed; a dict is still a dict and a list a list, for every encoder."""
    if isinstance(data, dict):
        return _FrozenDict((key, freeze(value)) for key, value in data.items())
    return _FrozenList(freeze(item) for item in data) if isinstance(data, list) else data


def thaw(data: object) -> Any:
    """A deep copy of plain data, dicts and lists all the way down, that is the reader's own."""
    if isinstance(data, dict):
        return {key: thaw(value) for key, value in data.items()}
    return [thaw(item) for item in data] if isinstance(data, list) else data


schema = msgspec.json.schema
"""The JSON Schema for one type."""


def schema_components(kind: object, *, schema_hook: Callable[[type], dict[str, Any]] | None = None) -> Any:
    """The JSON Schema for one type and the named types it refers to."""
    return msgspec.json.schema_components([kind], schema_hook=schema_hook, ref_template="#/$defs/{name}")


def schemas_of(kinds: Iterable[Any], ref_template: str) -> dict[str, Any]:
    """JSON Schemas of several named types and of all that they refer to, by name."""
    return msgspec.json.schema_components(tuple(kinds), ref_template=ref_template)[1]


def define(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    """Make a keyword-only struct class from (name, type[, default]) triples."""
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


class Codec(Generic[T, U]):
    """Reads and writes one tagged union; a kind it does not know becomes `unknown(tag, raw)`, unharmed."""

    def __init__(
        self, union: object, *, tag_field: str, tags: frozenset[str], unknown: Callable[[str, bytes], U]
    ) -> None:
        self._union = union
        self._tag_field = tag_field
        self._tags = tags
        self._unknown = unknown

    @cached_property
    def _decode(self) -> Callable[[bytes], T]:
        """Made when something is read for the first time: it looks at every type of the union."""
        return msgspec.json.Decoder(self._union).decode

    @cached_property
    def _tag(self) -> type[Any]:
        return msgspec.defstruct("Tag", [("tag", str, msgspec.field(name=self._tag_field))])

    def decode(self, data: bytes) -> T | U:
        """Read one value; raises `WireError` when a known kind is malformed."""
        try:
            return self._decode(data)
        except msgspec.ValidationError:
            tag: str = msgspec.json.decode(data, type=self._tag).tag
            if tag in self._tags:
                raise
            return self._unknown(tag, bytes(data))

    def encode(self, value: object) -> bytes:
        """Write one value; an unknown kind is written as it was read."""
        raw = getattr(value, "raw", None)
        return raw if type(raw) is bytes else _encoder.encode(value)
