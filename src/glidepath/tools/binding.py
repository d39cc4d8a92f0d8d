"""Turns the arguments a model sent into what the tool receives, or into a text that says what was wrong."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeGuard

from glidepath import _wire
from glidepath.tools import bridge
from glidepath.tools.advice import find_closest
from glidepath.tools.schema import accepts_null, describe_usage, nests_defaults, parameters_schema, scalar_type
from glidepath.tools.signature import REQUIRED, Parameter
from glidepath.tools.text import shorten
from glidepath.values import ToolError, describe_error

_asdict, _encode, _Raw = _wire.asdict, bridge.encode, _wire.Raw  # module names: faster, and every call passes here

_MAX_PROBLEMS = 12
_MAX_PROBLEM = 400
_PYTHON_TYPES: Mapping[str, Any] = {"integer": int, "number": float, "boolean": bool}
_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list, tuple),
    "object": (dict,),
}


class ArgumentsError(ToolError):
    """The arguments of a call do not fit its tool; the message tells the model what is wrong and how to resend."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class Bound(_wire.Record, eq=False):
    """Arguments that fit: `values` is what the function receives, `arguments` the same as plain data.

    Both hold every argument, defaults and coerced values included, and share nothing with each other or the input.
    """

    values: dict[str, Any]
    data: bytes
    """The plain data as JSON."""
    _arguments: dict[str, Any] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The plain data that hooks, events and journal see; read on demand."""
        arguments = self._arguments
        if arguments is None:
            self._arguments = arguments = _wire.loads(self.data)
        return arguments

    def read(self) -> dict[str, Any]:
        """A private copy of the same data."""
        return _wire.loads(self.data)  # type: ignore[no-any-return]

    def as_json(self) -> Any:
        """The same as immutable JSON; a `ToolCall` accepts it as arguments."""
        return _wire.Raw(self.data)

    def is_intact(self) -> bool:
        """False when `arguments` were changed in place; they are then restored."""
        if self._arguments is None:
            return True
        try:
            if _wire.encode(self._arguments) == self.data:  # faster than parsing them again to compare
                return True
            shown, self._arguments = self._arguments, _wire.loads(self.data)
            return bool(shown == self._arguments)
        except KeyboardInterrupt:
            raise
        except BaseException:  # anything may have been put in there
            self._arguments = _wire.loads(self.data)
            return False


class Binder:
    """Checks the arguments of one tool against `schema`."""

    schema: dict[str, Any]
    _name: str

    def bind(self, arguments: Mapping[str, Any] | _wire.Raw) -> Bound:
        """The arguments, as plain data or as JSON, checked; raises `ArgumentsError` and nothing else."""
        raise NotImplementedError

    def with_name(self, name: str) -> Self:
        """The same for a tool of another name."""
        other = copy.copy(self)
        other._name = name  # noqa: SLF001 - a copy of this object
        return other


class SignatureBinder(Binder):
    """Checks arguments against the types of a function's parameters, in one pass."""

    def __init__(self, name: str, parameters: Sequence[Parameter]) -> None:
        self._name = name
        self._kinds = {parameter.name: parameter.kind for parameter in parameters}
        struct = _wire.define("Arguments", [parameter.field() for parameter in parameters])
        self.schema = schema = parameters_schema(struct, parameters)
        self._decode = _wire.decoder(struct, dec_hook=bridge.build)
        self._fills = nests_defaults(_definitions(schema))
        optional = [parameter.name for parameter in parameters if parameter.default is not REQUIRED]
        self._repair = Repair(schema, optional)

    def bind(self, arguments: Mapping[str, Any] | _wire.Raw) -> Bound:
        """The arguments, checked; repaired where that is safe; raises `ArgumentsError` and nothing else."""
        try:
            # In and out through JSON: cheaper than converting objects, nothing is shared with the transcript, and what
            # hooks, events and journal could not write fails here.
            checked = self._decode(arguments if arguments.__class__ is _Raw else _encode_arguments(arguments))
            if self._fills:
                bridge.fill(checked)
            return Bound(_asdict(checked), _encode(checked))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a user's own type raises means that these arguments do not fit
            first = error
        arguments = _plain(arguments)
        try:
            if isinstance(arguments, Mapping) and (repaired := self._repair(arguments)) is not None:
                arguments = repaired
                checked = self._decode(_encode_arguments(arguments))
                if self._fills:
                    bridge.fill(checked)
                return Bound(_wire.asdict(checked), bridge.encode(checked))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            first = error
        raise _arguments_error(self._name, self._problems(arguments, first), self.schema) from None

    def _problems(self, arguments: object, error: BaseException) -> list[str]:
        if not isinstance(arguments, Mapping):
            return [_explain_not_an_object(arguments)]
        problems = _find_wrong_names(arguments, self._kinds, self.schema.get("required", ()))
        for name in [name for name in self._kinds if name in arguments]:
            only = _wire.define("Argument", [(name, self._kinds[name])])
            try:
                _wire.decoder(only, dec_hook=bridge.build)(_encode_arguments({name: arguments[name]}))
            except KeyboardInterrupt:
                raise
            except BaseException as fault:
                problems.append(_explain_error(fault))
        return problems or [_explain_error(error)]


class SchemaBinder(Binder):
    """Checks arguments against the top level of a JSON Schema, for tools that have no signature.

    Checked: that they are an object, that required keys are there, that no unknown key is (unless the schema has no
    `properties`, or allows more by `additionalProperties` or `patternProperties`), and the `type` of each value. What
    is deeper, the tool itself must check. A `default` in the schema is not filled in.
    """

    def __init__(self, name: str, schema: dict[str, Any]) -> None:
        self._name = name
        self.schema = schema
        self._properties: Mapping[str, Any] = schema.get("properties", {})
        self._required: Sequence[str] = schema.get("required", ())
        self._closed = "properties" in schema and not schema.get("additionalProperties", "patternProperties" in schema)
        self._repair = Repair(schema, [name for name in self._properties if name not in self._required])

    def bind(self, arguments: Mapping[str, Any] | _wire.Raw) -> Bound:
        """The arguments, checked at their top level; raises `ArgumentsError` and nothing else."""
        arguments = _plain(arguments)
        try:
            problems = self._problems(arguments)
            if problems and isinstance(arguments, Mapping) and (repaired := self._repair(arguments)) is not None:
                arguments = repaired
                problems = self._problems(arguments)
            if not problems:
                data = _encode_arguments(arguments)
                return Bound(_wire.loads(data), data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            problems = [_explain_error(error)]
        raise _arguments_error(self._name, problems, self.schema)

    def _problems(self, arguments: object) -> list[str]:
        if not isinstance(arguments, Mapping):
            return [_explain_not_an_object(arguments)]
        problems = _find_wrong_names(arguments, self._properties if self._closed else arguments, self._required)
        for name, shown in self._properties.items():
            if name in arguments and not _has_type(arguments[name], shown):
                got = type(arguments[name]).__name__
                problems.append(f"Expected `{shown['type']}`, got `{got}` - at `$.{name}`")
        return problems


class Repair:
    """Repairs arguments before they are refused, at the top level only.

    A null for an optional field that does not accept null is dropped. A string is read as int, float or bool where
    that is the one scalar type of the field.
    """

    def __init__(self, schema: Mapping[str, Any], optional: Sequence[str]) -> None:
        properties: Mapping[str, Any] = schema.get("properties", {})
        definitions = _definitions(schema)
        shown = {name: part for name, part in properties.items() if _is_schema(part)}
        scalars = {name: scalar_type(part, definitions) or "" for name, part in shown.items()}
        self._kinds = {name: _PYTHON_TYPES[said] for name, said in scalars.items() if said in _PYTHON_TYPES}
        self._droppable = {name for name in optional if name in shown and not accepts_null(shown[name], definitions)}

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The repaired arguments, or None if there is nothing to repair."""
        mended = {}
        changed = False
        for name, value in arguments.items():
            if value is None and name in self._droppable:
                changed = True
                continue
            mended[name] = value
            if isinstance(value, str) and (kind := self._kinds.get(name)) is not None:
                try:
                    mended[name] = _wire.convert(value.strip(), kind, strict=False)
                    changed = True
                except _wire.WireError:
                    continue  # the next check reports what is wrong with it
        return mended if changed else None


def _definitions(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    definitions = schema.get("$defs", {})
    return definitions if isinstance(definitions, Mapping) else {}


def _is_schema(shown: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(shown, Mapping)


def _has_type(value: object, shown: object) -> bool:
    said = shown.get("type") if _is_schema(shown) else None
    names = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    known = [name for name in names if name in _JSON_TYPES]
    if not known:
        return True
    if isinstance(value, bool):  # which is an int in Python
        return "boolean" in known
    return any(isinstance(value, _JSON_TYPES[name]) for name in known)


def _plain(arguments: object) -> Any:
    return _wire.loads(arguments) if type(arguments) is _wire.Raw else arguments


def _encode_arguments(arguments: object) -> bytes:
    """The arguments as JSON; raises if JSON cannot express them."""
    data = bridge.encode(arguments)
    # NaN and infinity are also written as null: the tool would see something else.
    waiting = [arguments] if b"null" in data else []
    while waiting:
        item = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError("NaN and Infinity are not JSON numbers")
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
    return data


# --- saying what is wrong ---------------------------------------------------------------------------------------


def _explain_not_an_object(arguments: object) -> str:
    return f"Expected one JSON object, got `{type(arguments).__name__}`"


def _find_wrong_names(arguments: Mapping[Any, Any], known: Mapping[str, Any], required: Sequence[str]) -> list[str]:
    problems = [f"missing required field {name!r}" for name in required if name not in arguments]
    for name in [name for name in arguments if name not in known][:_MAX_PROBLEMS]:
        shown = repr(shorten(str(name), 80))
        meant = find_closest(str(name), known)
        problems.append(f"unknown field {shown}" + (f" (did you mean {meant!r}?)" if meant else ""))
    return problems


def _explain_error(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "the arguments are nested too deeply"
    if isinstance(error, UnicodeError):
        return "the arguments contain a lone surrogate: send complete characters"
    if isinstance(error, (_wire.WireError, ValueError)):
        return str(error)
    return describe_error(error)


def _arguments_error(name: str, problems: Sequence[str], schema: Mapping[str, Any]) -> ArgumentsError:
    shown = [shorten(problem, _MAX_PROBLEM) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    lines = "".join(f"\n- {problem}" for problem in shown)
    again = f"Call {name} again with one JSON object: {shorten(describe_usage(schema), 2000)}"
    return ArgumentsError(f"The arguments of {name} are not valid, so it did not run:{lines}\n{again}", shown)
