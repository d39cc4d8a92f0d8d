"""Typed answers: the schema, the instructions for the model, and parsing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

from glidepath import _wire
from glidepath.tools import bridge
from glidepath.tools.schema import schema_of
from glidepath.tools.text import clean, shorten
from glidepath.values import ConfigurationError, Texts, describe_error, is_visible

REMINDER = "Give it as one JSON object in the format that is asked for, and nothing else."
_FENCE = "```"
_NOT_JSON = (_wire.WireError, ValueError)  # the second for halves of surrogate pairs
_MAX_PROBLEM = 800
_WRAP = "value"
"""Vendors enforce only objects: any other answer is the only field of one."""


class OutputError(ValueError):
    """An answer does not fit; the text says why, for the model."""


class Output:
    """Parses answers into one type: text, a number, a list, a class with fields, or a union of such types."""

    __slots__ = ("_kind", "_members", "_takes_text", "_wrapped", "instructions", "schema")

    def __init__(self, kind: object) -> None:
        self._kind = kind
        kinds = _list_members(kind)
        self._takes_text = str in kinds
        self._members = [_Member(kind, one) for one in kinds if one is not str]
        self.schema, self._wrapped = _merge_schemas(kind, self._members, text=self._takes_text)
        self.instructions = ""
        if self.schema is not None:
            shape = "one JSON object that fits the JSON Schema below: no other text, no explanation"
            self.instructions = (
                f"Your final answer must be {shape}. "
                f"Messages in which you call tools are not bound by this.\n{_wire.encode(self.schema).decode()}"
            )

    @property
    def reminder(self) -> str:
        """What a notice that asks for an answer says about its format."""
        return REMINDER if self._members else ""

    def read(self, text: str) -> Any:
        """The value in an answer; raises `OutputError` and nothing else.

        The answer may be the JSON alone, or contain it in a fenced block or among other text. Where plain text is an
        answer, too, only JSON that stands alone must fit.
        """
        problem = ""
        if self._members:
            found, value, problem = self._search(text)
            if found:
                return value
        if self._takes_text and not (problem and text.strip()[:1] in ("{", "[")):
            if is_visible(text):
                return text
            problem = "it is empty"
        raise OutputError(problem or f"there is no JSON {'value' if self._wrapped else 'object'} in it")

    def read_partial(self, text: str) -> tuple[bool, Any]:
        """Whether the beginning of an answer is a value already, and that value: what is cut off is left out."""
        if self._takes_text and (not self._members or text.lstrip()[:1] not in ("{", "[", "`", "")):
            return is_visible(text), text
        places = [place for opening in self._openings if (place := text.find(opening)) >= 0]
        if not places:
            return False, None
        from glidepath.tools.partial_json import complete

        for candidate in complete(text[min(places) :]):
            found, value, _ = self._fit(candidate)
            if found:
                return True, value
        return False, None

    def is_value(self, value: object) -> bool:
        """Whether this is certainly a value of the type; of a TypedDict nobody can say."""
        return isinstance(self._kind, type) and type(value) is self._kind

    def complaint(self, problem: str, texts: Texts) -> str:
        """The message for a model whose answer did not fit."""
        return f"{texts.fill('output_repair', problem=problem)} {self.reminder}".rstrip()

    @property
    def _openings(self) -> str:
        return "{[" if self._wrapped else "{"

    def _search(self, text: str) -> tuple[bool, Any, str]:
        """The first part of an answer that fits; else what is wrong with the most likely one."""
        problem = ""
        for candidate in _iterate_candidates(text, self._openings, alone=self._wrapped):
            found, value, why = self._fit(candidate)
            if found:
                return True, value, ""
            problem = problem or why
        return False, None, problem

    def _fit(self, candidate: str) -> tuple[bool, Any, str]:
        """A JSON text as a value of the type: the object that was asked for, or what is inside it."""
        texts: list[bytes | str] = [candidate]
        if self._wrapped and candidate.startswith("{"):
            try:
                fields = _wire.decode(candidate, dict[str, _wire.Raw])
                if fields.keys() == {_WRAP}:
                    texts = [bytes(fields[_WRAP])]
            except _NOT_JSON:
                pass
        problem = ""
        for text in texts:
            for member in self._order(text):
                value, why = member.read(text)
                if not why:
                    return True, value, ""
                problem = problem or why
            if self._takes_text:
                try:
                    return True, _wire.decode(text, str), ""
                except _NOT_JSON as error:
                    problem = problem or _explain_error(error)
        return False, None, problem

    def _order(self, text: bytes | str) -> list[_Member]:
        """Which member of a union to try first: one that knows all the fields, else in the order of the union."""
        if len(self._members) <= 1:
            return self._members
        try:
            names = _wire.decode(text, dict[str, _wire.Raw]).keys()
        except _NOT_JSON:
            return self._members
        return sorted(self._members, key=lambda one: not names <= one.names)


class _Member:
    """One type of a union, or the only one."""

    __slots__ = ("_decode", "definitions", "names", "schema")

    def __init__(self, whole: object, kind: Any) -> None:
        try:
            if isinstance(kind, str | bytes) or kind is None or kind is type(None):
                raise TypeError("it is not a type" if kind is not type(None) else "None cannot be told from no answer")
            root, definitions = schema_of(kind)
            if not root:
                raise TypeError("any value is one")
            self._decode: Callable[[bytes | str], Any] = _wire.decoder(kind, dec_hook=bridge.build)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ConfigurationError(
                f"output_type={whole!r:.100} cannot be requested from a model ({reason}); use str, bool, a number, "
                "a dataclass, a TypedDict, a msgspec Struct, a pydantic model, or a list or union of these"
            ) from None
        self.schema: dict[str, Any] = dict(root)
        self.definitions: dict[str, Any] = definitions
        shown = definitions[root["$ref"].removeprefix("#/$defs/")] if "$ref" in root else root
        self.names = frozenset(shown.get("properties", ()))

    def read(self, text: bytes | str) -> tuple[Any, str]:
        """A value of the type, or what is wrong with the text."""
        try:
            value = self._decode(text)
            bridge.fill(value)
            return value, ""
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a user's own type raises means that this answer does not fit
            return None, _explain_error(error) or "it does not fit"


def _list_members(kind: object) -> list[Any]:
    """The members of a union, each once; any other type by itself."""
    if get_origin(kind) not in (Union, UnionType):
        return [kind]
    return list(dict.fromkeys(one for part in get_args(kind) for one in _list_members(part)))


def _merge_schemas(kind: object, members: list[_Member], *, text: bool) -> tuple[dict[str, Any] | None, bool]:
    """The schema of an answer, and whether it is the one field of an object; None where any text will do."""
    if not members:
        return None, False
    definitions: dict[str, Any] = {}
    for one in members:
        for name, part in one.definitions.items():
            if definitions.setdefault(name, part) != part:
                raise ConfigurationError(
                    f"output_type={kind!r:.100} has two types named {name!r}; give one of them another name"
                )
    if len(members) == 1 and not text and (schema := _as_object(members[0])) is not None:
        return schema, False
    options = [one.schema for one in members] + ([{"type": "string"}] if text else [])
    inner = options[0] if len(options) == 1 else {"anyOf": options}
    schema = {"type": "object", "properties": {_WRAP: inner}, "required": [_WRAP], "additionalProperties": False}
    if definitions:
        schema["$defs"] = definitions
    written: dict[str, Any] = _wire.loads(_wire.encode(schema))
    return written, True


def _as_object(member: _Member) -> dict[str, Any] | None:
    """The schema of a member whose JSON is an object; None for any other."""
    schema, definitions = dict(member.schema), dict(member.definitions)
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        schema = dict(definitions[name])
        others = [part for other, part in definitions.items() if other != name]
        # A type that refers to itself needs its definition.
        if f'"#/$defs/{name}"'.encode() not in _wire.encode([schema, *others]):
            del definitions[name]
    if schema.get("type") != "object":
        return None
    if definitions:
        schema["$defs"] = definitions
    written: dict[str, Any] = _wire.loads(_wire.encode(schema))
    return written


def _iterate_candidates(text: str, openings: str, *, alone: bool) -> Iterator[str]:
    """The parts of an answer that may be its JSON; `alone`: a bare number or word may be all of it."""
    stripped = text.strip().removeprefix("\ufeff")
    if stripped[:1] and (alone or stripped[0] in openings):
        yield stripped
    fenced = [block.partition("\n")[2].strip() for block in text.split(_FENCE)[1::2]]
    yield from [block for block in reversed(fenced) if block[:1] and (alone or block[0] in openings)]
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if opening in openings and 0 <= start < end:
            yield text[start : end + 1]


def _explain_error(error: BaseException) -> str:
    text = str(error) if isinstance(error, _wire.WireError) else describe_error(error)
    return shorten(clean(text), _MAX_PROBLEM).rstrip(".")
