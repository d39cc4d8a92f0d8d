"""JSON Schema of a tool's parameters, and what can be derived from it in advance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.tools import bridge
from glidepath.tools.signature import REQUIRED, Parameter
from glidepath.values import ConfigurationError

_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_MAX_FIELDS = 20
_MAX_VALUES = 8


def parameters_schema(struct: type, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The schema of the object that holds all arguments, in the order of the signature."""
    for parameter in parameters:
        _check(parameter)
    reference, definitions = schema_of(struct)
    own = definitions.pop(reference["$ref"].removeprefix("#/$defs/"))
    properties = own.get("properties", {})
    for parameter in parameters:
        _complete_property(properties[parameter.name], parameter)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [parameter.name for parameter in parameters if parameter.default is REQUIRED]:
        schema["required"] = required
    schema["additionalProperties"] = False
    if definitions:
        schema["$defs"] = definitions
    if _wire.loads(_wire.encode(schema)) != schema:
        raise ConfigurationError("a default inside one of the parameter types is not plain JSON (NaN or infinity?)")
    return schema


def _check(parameter: Parameter) -> None:
    """Reject a type that cannot be checked, naming its parameter."""
    try:
        _wire.schema(parameter.kind, schema_hook=bridge.describe)
    except Exception as error:
        first, _, more = str(error).partition("\n")
        reason = "" if more else f" ({first})"  # longer texts tell how to write a hook for msgspec
        raise ConfigurationError(
            f"parameter {parameter.name!r}: the type {parameter.kind!r} cannot be shown to a model{reason}; "
            "use plain types, Literal, Enum, a dataclass, a TypedDict, a msgspec Struct or a pydantic model, "
            "and at most one class per union"
        ) from error


def _complete_property(shown: dict[str, Any], parameter: Parameter) -> None:
    shown.pop("default", None)
    if parameter.default is not REQUIRED:
        shown["default"] = _wire.loads(bridge.encode(parameter.default))
    if parameter.description and "description" not in shown:
        shown["description"] = parameter.description


def schema_of(kind: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schema for a type, and the definitions that it refers to."""
    hoisted: dict[str, Any] = {}

    def hook(part: type) -> dict[str, Any]:
        return _hoist_definitions(bridge.describe(part), part.__name__, hoisted)

    (root,), components = _wire.schema_components(kind, schema_hook=hook)
    return root, {**components, **hoisted}


def _hoist_definitions(schema: dict[str, Any], name: str, hoisted: dict[str, Any]) -> dict[str, Any]:
    """Move a foreign schema's own `$defs` to the root, under names that cannot collide with ours."""
    definitions = schema.pop("$defs", {})
    for key, definition in definitions.items():
        hoisted[f"{name}.{key}"] = move_references(definition, "#/$defs/", f"#/$defs/{name}.")
    shown: dict[str, Any] = move_references(schema, "#/$defs/", f"#/$defs/{name}.")
    return shown


def move_references(node: object, before: str, after: str) -> Any:
    """A schema in which references that began with `before` begin with `after`."""
    if isinstance(node, list | tuple):
        return [move_references(item, before, after) for item in node]
    if not isinstance(node, Mapping):
        return node
    shown = {key: move_references(value, before, after) for key, value in node.items()}
    if isinstance(reference := shown.get("$ref"), str) and reference.startswith(before):
        shown["$ref"] = after + reference.removeprefix(before)
    return shown


# --- reading a schema -------------------------------------------------------------------------------------------


def _types(shown: Mapping[str, Any], definitions: Mapping[str, Any]) -> set[str]:
    """The JSON types a property may have; "any" if the schema does not say."""
    if isinstance(reference := shown.get("$ref"), str):
        target = definitions.get(reference.removeprefix("#/$defs/"), {})
        return _types(target, {}) if isinstance(target, Mapping) else {"any"}
    if said := shown.get("type"):
        return {str(item) for item in (said if isinstance(said, list) else [said])}
    values = [shown["const"]] if "const" in shown else shown.get("enum")
    if isinstance(values, list):
        names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", list: "array"}
        return {names.get(type(value), "object") for value in values}
    options = shown.get("anyOf") or shown.get("oneOf")
    if isinstance(options, list) and all(isinstance(option, Mapping) for option in options):
        return set().union(*(_types(option, definitions) for option in options))
    return {"any"}


def scalar_type(shown: Mapping[str, Any], definitions: Mapping[str, Any]) -> str | None:
    """The only scalar type of a property, apart from null; None if it has several, or others."""
    types = _types(shown, definitions) - {"null"}
    return next(iter(types)) if len(types) == 1 and types <= _SCALARS else None


def accepts_null(shown: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    """True when null is a value of the property."""
    return not _types(shown, definitions).isdisjoint({"null", "any"})


def nests_defaults(definitions: Mapping[str, Any]) -> bool:
    """True when a type below the top level has fields with defaults."""
    shown = [part for definition in definitions.values() for part in definition.get("properties", {}).values()]
    return any(isinstance(part, Mapping) and "default" in part for part in shown)


def describe_usage(schema: Mapping[str, Any]) -> str:
    """One line that shows a model which fields to send."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    required = schema.get("required", ())
    fields = []
    for name, shown in list(properties.items())[:_MAX_FIELDS]:
        values = shown.get("enum") if isinstance(shown, Mapping) else None
        if isinstance(values, list) and len(values) <= _MAX_VALUES:
            said = " | ".join(_wire.encode(value).decode() for value in values)
        else:
            said = " | ".join(sorted(_types(shown, definitions))) if isinstance(shown, Mapping) else "any"
        fields.append(f'"{name}": {said}' + ("" if name in required else " (optional)"))
    more = len(properties) - len(fields)
    return "{" + ", ".join(fields) + (f", and {more} more" if more > 0 else "") + "}"
