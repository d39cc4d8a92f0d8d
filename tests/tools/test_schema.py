"""The JSON Schema of a signature."""

import enum
import functools
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import msgspec
import pydantic
import pytest

from glidepath.errors import ConfigurationError
from glidepath.tools import ToolContext, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Address:
    street: str
    tags: list[str] = field(default_factory=list)


class Options(TypedDict, total=False):
    deep: bool


class Point(NamedTuple):
    x: float
    y: float


class Item(msgspec.Struct):
    name: str
    parts: list["Item"] = []


class Node(pydantic.BaseModel):
    value: int
    children: list["Node"] = []


class Order(pydantic.BaseModel):
    address: "Place"
    amount: int = pydantic.Field(alias="howMany")


class Place(pydantic.BaseModel):
    street: str


def properties(fn):
    return tool(fn).parameters["properties"]


def references(node):
    if isinstance(node, list):
        return {name for item in node for name in references(item)}
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
    return own | {name for value in node.values() for name in references(value)}


def test_plain_types_are_shown_in_order_with_required_and_defaults():
    def f(a: str, b: int, c: float = 1.5, d: bool | None = None): ...

    assert tool(f).parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer"},
            "c": {"type": "number", "default": 1.5},
            "d": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_has_an_empty_object():
    def f(): ...

    assert tool(f).parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_parameter_without_annotation_takes_anything():
    def f(a, b=3): ...

    assert properties(f) == {"a": {}, "b": {"default": 3}}


def test_every_reference_points_at_a_definition():
    def f(*, a: Address, c: Colour, o: Options, p: Point, i: Item, n: Node, d: Order | None = None): ...

    schema = tool(f).parameters
    found = references(schema)
    assert {name.removeprefix("#/$defs/") for name in found} <= schema["$defs"].keys()
    assert len(found) >= 7
    msgspec.json.encode(schema)


def test_literals_and_enums_list_their_values():
    def f(a: Literal["x", "y"], c: Colour = Colour.RED): ...

    schema = tool(f).parameters
    assert schema["properties"]["a"] == {"enum": ["x", "y"]}
    assert schema["properties"]["c"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert schema["$defs"]["Colour"]["enum"] == ["blue", "red"]


def test_a_pydantic_model_shows_its_own_schema_by_alias():
    def f(order: Order): ...

    schema = tool(f).parameters
    assert set(schema["properties"]["order"]["properties"]) == {"address", "howMany"}
    assert schema["$defs"]["Order.Place"]["required"] == ["street"]


def test_two_classes_of_one_name_do_not_share_a_definition():
    @dataclass
    class Place:
        town: str

    mine = Place

    def f(order: Order, place: mine): ...

    schema = tool(f).parameters
    assert list(schema["$defs"]["Place"]["properties"]) == ["town"]
    assert list(schema["$defs"]["Order.Place"]["properties"]) == ["street"]


def test_a_path_is_a_string():
    def f(path: Path): ...

    assert properties(f) == {"path": {"type": "string", "format": "path"}}


class Doc:
    def __init__(self, documentation):
        self.documentation = documentation


def test_a_description_can_stand_in_the_annotation():
    def f(
        a: Annotated[int, "one"],
        b: Annotated[int, msgspec.Meta(description="two", ge=1)],
        c: Annotated[int, pydantic.Field(description="three", le=5)],
        d: Annotated[int, Doc("four")],
    ): ...

    shown = properties(f)
    assert [shown[name]["description"] for name in "abcd"] == ["one", "two", "three", "four"]
    assert (shown["b"]["minimum"], shown["c"]["maximum"]) == (1, 5)


def test_the_annotation_beats_the_docstring():
    def f(a: Annotated[int, "from the annotation"], b: int):
        """Do it.

        Args:
            a: from the docstring
            b: only here
        """

    shown = properties(f)
    assert (shown["a"]["description"], shown["b"]["description"]) == ("from the annotation", "only here")


def test_string_annotations_are_resolved_also_for_local_types():
    @dataclass
    class Local:
        x: int

    def f(a: "Local", b: "Optional[Address]" = None, c: "datetime | None" = None): ...  # noqa: UP045

    assert list(tool(f).parameters["$defs"]["Local"]["properties"]) == ["x"]


def test_an_annotation_that_names_nothing_is_refused_by_parameter():
    def f(a: "Nowhere"): ...  # noqa: F821

    with pytest.raises(ConfigurationError, match=r"tool 'f': parameter 'a'.*Nowhere"):
        tool(f)


def test_a_return_annotation_that_names_nothing_does_no_harm():
    def f(a: int) -> "Nowhere": ...  # noqa: F821

    assert list(properties(f)) == ["a"]


def test_a_context_imported_for_type_checkers_only_is_recognised():
    names: dict[str, Any] = {}
    exec("def f(a: int, context: 'ToolContext'): ...", names)
    assert tool(names["f"]).wants_context


class Opaque: ...


def positional(a, /): ...
def starred(*a): ...
def keywords(**a): ...
def opaque(a: Opaque): ...
def nested(a: list[Opaque]): ...
def two_classes(a: Address | Item): ...
def function(a: functools.partial): ...
def mixed(a: Node | int): ...
def not_finite(a: float = float("nan")): ...
def sentinel(a: Any = object()): ...  # noqa: B008
def misfit(a: int = "auto"): ...


@pytest.mark.parametrize(
    "fn",
    [positional, starred, keywords, opaque, nested, two_classes, function, mixed, not_finite, sentinel, misfit],
)
def test_what_a_model_cannot_give_is_refused_by_parameter(fn):
    with pytest.raises(ConfigurationError, match=rf"tool '{fn.__name__}': parameter 'a'"):
        tool(fn)


def test_a_builtin_without_a_signature_is_refused():
    with pytest.raises(ConfigurationError):
        tool(min, name="min")


def test_the_context_is_never_in_the_schema():
    def f(context: ToolContext, a: int): ...

    assert tool(f).parameters["required"] == ["a"]
