"""Typed answers: the schema, the instructions for the model, and parsing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glidepath import _wire
from glidepath.tools import bridge
from glidepath.tools.schema import schema_of
from glidepath.tools.text import clean, shorten
from glidepath.values import ConfigurationError, Texts, describe_error

REMINDER = "Give it as one JSON object in the format that is asked for, and nothing else."
_FENCE = "```"
_MAX_PROBLEM = 800


class OutputError(ValueError):
    """An answer does not fit; the text says why, for the model."""


class Output:
    """Parses answers into one type: a msgspec Struct, dataclass, TypedDict or pydantic model."""

    __slots__ = ("_kind", "_read", "instructions", "schema")

    def __init__(self, kind: object) -> None:
        self._kind = kind
        self.schema = _schema(kind)
        self._read = _wire.decoder(kind, dec_hook=bridge.build)
        self.instructions = (
            "Your final answer must be one JSON object that fits the JSON Schema below: no other text, no explanation. "
            f"Messages in which you call tools are not bound by this.\n{_wire.encode(self.schema).decode()}"
        )

    def read(self, text: str) -> Any:
        """The value in an answer; raises `OutputError` and nothing else.

        The answer may be the JSON alone, or contain it in a fenced block or among other text.
        """
        problem = ""
        for candidate in _iterate_candidates(text):
            try:
                value = self._read(candidate)
                bridge.fill(value)
                return value
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever a user's own type raises means that this answer does not fit
                problem = problem or _explain_error(error)
        raise OutputError(problem or "there is no JSON object in it")

    def is_value(self, value: object) -> bool:
        """Whether this is certainly a value of the type; of a TypedDict nobody can say."""
        return isinstance(self._kind, type) and type(value) is self._kind

    def complaint(self, problem: str, texts: Texts) -> str:
        """The message for a model whose answer did not fit."""
        return f"{texts.fill('output_repair', problem=problem)} {REMINDER}"


def _schema(kind: Any) -> dict[str, Any]:
    try:
        if isinstance(kind, str | bytes) or kind is None:
            raise TypeError("it is not a type")
        root, definitions = schema_of(kind)
        _wire.decoder(kind, dec_hook=bridge.build)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"output_type={kind!r:.100} cannot be requested from a model ({reason}); use a dataclass, a TypedDict, "
            "a msgspec Struct or a pydantic model"
        ) from None
    schema = dict(root)
    if "$ref" in root:
        name = root["$ref"].removeprefix("#/$defs/")
        schema = dict(definitions[name])
        others = [part for other, part in definitions.items() if other != name]
        # A type that refers to itself needs its definition.
        if f'"#/$defs/{name}"'.encode() not in _wire.encode([schema, *others]):
            del definitions[name]
    if schema.get("type") != "object":
        raise ConfigurationError(
            f"output_type={kind!r:.100} must be a JSON object: wrap it in a dataclass, for instance"
        )
    if definitions:
        schema["$defs"] = definitions
    written: dict[str, Any] = _wire.loads(_wire.encode(schema))
    return written


def _iterate_candidates(text: str) -> Iterator[str]:
    stripped = text.strip().removeprefix("\ufeff")
    if stripped.startswith("{"):
        yield stripped
    fenced = [block.partition("\n")[2].strip() for block in text.split(_FENCE)[1::2]]
    yield from [block for block in reversed(fenced) if block.startswith("{")]
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        yield text[start : end + 1]


def _explain_error(error: BaseException) -> str:
    text = str(error) if isinstance(error, _wire.WireError) else describe_error(error)
    return shorten(clean(text), _MAX_PROBLEM).rstrip(".")
