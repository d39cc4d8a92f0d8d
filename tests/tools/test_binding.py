"""From what a model sent to what a tool receives."""

import enum
import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from glidepath.tools import ArgumentsError, Tool, tool


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Range:
    start: int
    end: int = 10


class Flags(TypedDict, total=False):
    deep: bool


class Point(NamedTuple):
    x: int
    y: int


ORIGIN = Point(0, 0)


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(1, alias="howMany", ge=1)


@tool
async def everything(
    *,
    text: str,
    count: int = 3,
    ratio: float = 0.5,
    on: bool = False,
    level: Level = Level.LOW,
    mode: Literal["a", "b"] = "a",
    span: Range | None = None,
    flags: Flags = {},  # noqa: B006
    point: Point = ORIGIN,
    order: Order | None = None,
    when: date | None = None,
    price: Decimal = Decimal("1.50"),
    names: set[str] = frozenset(),
    by_number: dict[int, str] = {},  # noqa: B006
    where: Path = Path("x"),
    anything: Any = None,
) -> str:
    return text


@tool
async def lookup(query: str, limit: int, tags: list[str], strict: bool = False, page: int = 1) -> str:
    return query


GOOD = {"query": "q", "limit": 3, "tags": ["a"]}


def refusal(made, arguments):
    with pytest.raises(ArgumentsError) as caught:
        made.bind(arguments)
    return str(caught.value)


def test_good_arguments_are_bound_with_their_defaults():
    bound = lookup.bind(GOOD)
    assert bound.values == bound.arguments == {**GOOD, "strict": False, "page": 1}


def test_values_are_typed_and_arguments_are_plain():
    sent = {
        "text": "t",
        "level": 2,
        "span": {"start": 1},
        "point": [1, 2],
        "order": {"item": "tea", "howMany": "2"},
        "when": "2026-01-02",
        "price": "2.5",
        "names": ["n"],
        "by_number": {"1": "one"},
        "where": "/tmp",
    }
    bound = everything.bind(sent)
    assert bound.values["level"] is Level.HIGH
    assert bound.values["span"] == Range(1, 10)
    assert bound.values["point"] == Point(1, 2)
    assert bound.values["order"] == Order(item="tea", howMany=2)
    assert bound.values["when"] == date(2026, 1, 2)
    assert bound.values["price"] == Decimal("2.5")
    assert bound.values["names"] == {"n"}
    assert bound.values["by_number"] == {1: "one"}
    assert bound.values["where"] == Path("/tmp")
    plain = {**sent, "span": {"start": 1, "end": 10}, "order": {"item": "tea", "howMany": 2}}
    assert {name: bound.arguments[name] for name in sent} == plain
    assert list(bound.arguments) == list(everything.parameters["properties"])


def test_binding_what_was_bound_changes_nothing():
    first = everything.bind({"text": "t", "span": {"start": 1}, "order": {"item": "tea"}, "anything": [1, {"a": None}]})
    again = everything.bind(first.arguments)
    assert (again.values, again.arguments) == (first.values, first.arguments)


def test_a_tool_that_changes_its_arguments_changes_nothing_else():
    sent = {"text": "t", "anything": {"list": [1]}, "flags": {"deep": True}}
    bound = everything.bind(sent)
    bound.values["anything"]["list"].append(2)
    bound.values["flags"]["deep"] = False
    assert sent == {"text": "t", "anything": {"list": [1]}, "flags": {"deep": True}}
    assert bound.arguments["anything"] == {"list": [1]}
    assert bound.arguments["flags"] == {"deep": True}


def test_a_changed_default_is_fresh_in_the_next_call():
    everything.bind({"text": "t"}).values["flags"]["deep"] = True
    assert everything.bind({"text": "t"}).values["flags"] == {}


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ({"limit": "3"}, {"limit": 3}),
        ({"limit": " 3 "}, {"limit": 3}),
        ({"strict": "true"}, {"strict": True}),
        ({"page": None}, {"page": 1}),
        ({"strict": None, "limit": "7"}, {"strict": False, "limit": 7}),
    ],
)
def test_string_scalars_are_coerced_and_nulls_of_optional_fields_dropped(sent, seen):
    bound = lookup.bind({**GOOD, **sent})
    assert {name: bound.values[name] for name in seen} == seen
    assert bound.arguments == bound.values


def test_an_integer_enum_and_a_float_are_coerced_too():
    bound = everything.bind({"text": "t", "level": "2", "ratio": "1e-3", "on": "False"})
    assert (bound.values["level"], bound.values["ratio"], bound.values["on"]) == (Level.HIGH, 0.001, False)


def test_a_null_that_the_field_accepts_is_kept_while_another_field_is_mended():
    @tool
    async def f(count: int, limit: int | None = 5): ...

    assert f.bind({"count": "1", "limit": None}).values == {"count": 1, "limit": None}


def test_a_null_for_a_default_of_none_is_dropped():
    @tool
    async def f(name: str = None): ...  # noqa: RUF013

    assert f.bind({"name": None}).values == {"name": None}


@pytest.mark.parametrize("sent", [{"query": 3}, {"tags": "a"}, {"tags": ["1", 2]}, {"limit": 2.5}, {"query": None}])
def test_nothing_else_is_coerced(sent):
    refusal(lookup, {**GOOD, **sent})


def test_a_field_of_two_scalar_types_is_not_coerced():
    @tool
    async def f(x: int | str, y: int | bool | None = None): ...

    assert f.bind({"x": "3"}).values["x"] == "3"
    refusal(f, {"x": 1, "y": "3"})


def test_the_refusal_names_every_problem_and_how_to_resend():
    message = refusal(lookup, {"qury": "q", "limit": "many", "tags": ["a", 1]})
    assert "missing required field 'query'" in message
    assert "unknown field 'qury' (did you mean 'query'?)" in message
    assert "Expected `int`, got `str` - at `$.limit`" in message
    assert "`$.tags[1]`" in message
    assert 'Call lookup again with one JSON object: {"query": string, "limit": integer' in message


def test_a_refused_enum_shows_its_values():
    assert '"mode": "a" | "b" (optional)' in refusal(everything, {"text": "t", "mode": "c"})


def test_a_pydantic_refusal_is_readable():
    message = refusal(everything, {"text": "t", "order": {"howMany": 0}})
    assert "item: Field required; howMany: Input should be greater than or equal to 1 - at `$.order`" in message
    assert "https://" not in message


def test_bounds_in_annotations_are_checked():
    @tool
    async def f(a: Annotated[int, msgspec.Meta(ge=1)], b: Annotated[int, pydantic.Field(le=5)] = 0): ...

    refusal(f, {"a": 0})
    refusal(f, {"a": 1, "b": 6})
    assert f.bind({"a": 1, "b": 5}).values == {"a": 1, "b": 5}


def test_whatever_a_users_type_raises_is_a_refusal():
    @dataclass
    class Picky:
        x: int

        def __post_init__(self):
            raise KeyError("no")

    picky = Picky

    async def f(a: picky): ...

    assert "KeyError" in refusal(tool(f), {"a": {"x": 1}})


@pytest.mark.parametrize("sent", [None, [], "text", 3, True])
def test_what_is_not_an_object_is_refused(sent):
    assert "one JSON object" in refusal(lookup, sent)


def test_a_read_only_mapping_is_bound():
    assert lookup.bind(MappingProxyType(GOOD)).values["query"] == "q"


def deep(levels):
    data: Any = []
    for _ in range(levels):
        data = [data]
    return data


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"text": "\ud800"}, "surrogate"),
        ({"text": "t", "\ud800": 1}, "unknown field"),
        ({"text": "t", "ratio": math.nan}, "NaN"),
        ({"text": "t", "ratio": "inf"}, "NaN and Infinity"),
        ({"text": "t", "anything": {"x": [math.inf]}}, "NaN and Infinity"),
        ({"text": "t", "anything": deep(100_000)}, "too deeply"),
        ({"text": "t", "span": deep(100_000)}, "too deeply"),
        ({"text": "t", "anything": {"x": 10**5000}}, "digits"),
        ({"text": "t", "where": "a\0b"}, "NUL"),
        ({"text": "t", "anything": object()}, "object"),
        ({3: 4}, "unknown field '3'"),
    ],
)
def test_hostile_arguments_are_refused_clearly(sent, says):
    message = refusal(everything, sent)
    assert says in message
    message.encode()


def test_big_integers_and_nul_bytes_in_text_are_fine():
    assert everything.bind({"text": "a\0b", "count": 10**30}).arguments["count"] == 10**30


def test_a_refusal_stays_short_whatever_was_sent():
    message = refusal(lookup, {"x" * 100_000: 1, **{f"y{n}": 1 for n in range(1000)}, "limit": "z" * 100_000})
    assert len(message) < 6000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(list(everything.parameters["properties"])) | st.text(max_size=4)
ARGUMENTS = st.dictionaries(NAMES, JSON | st.sampled_from(["3", "true", "a", "2026-01-02"]), max_size=6)
custom = Tool(
    name="custom",
    description="",
    parameters={
        "properties": {"text": {"type": "string"}, "count": {"type": ["integer", "null"]}, "level": True, "mode": {}},
        "required": ["text"],
    },
    fn=lambda **kwargs: kwargs,
)


@given(ARGUMENTS.map(lambda some: {"text": "t", **some}) | JSON)
def test_any_json_is_bound_or_refused_and_nothing_else(arguments):
    for made in (everything, custom):
        try:
            bound = made.bind(arguments)
        except ArgumentsError as refused:
            str(refused).encode()
        else:
            again = made.bind(bound.arguments)
            assert again.values == bound.values
            assert msgspec.json.decode(msgspec.json.encode(bound.arguments)) == bound.arguments


@given(
    st.fixed_dictionaries(
        {"query": st.text(), "limit": st.integers(-(2**70), 2**70), "tags": st.lists(st.text())},
        optional={"strict": st.booleans(), "page": st.integers(0, 9)},
    )
)
def test_what_the_tool_sees_is_what_everybody_sees(arguments):
    bound = lookup.bind(arguments)
    assert bound.values == bound.arguments == {"strict": False, "page": 1, **arguments}


def test_a_schema_tool_checks_keys_and_top_level_types():
    assert "missing required field 'text'" in refusal(custom, {})
    assert "unknown field 'txt' (did you mean 'text'?)" in refusal(custom, {"text": "t", "txt": 1})
    assert "Expected `string`, got `int` - at `$.text`" in refusal(custom, {"text": 1})
    assert "count" in refusal(custom, {"text": "t", "count": True})


def test_a_schema_tool_coerces_like_any_other():
    assert custom.bind({"text": "t", "count": "4"}).values == {"text": "t", "count": 4}


@pytest.mark.parametrize(
    "parameters",
    [{}, {"properties": {}, "additionalProperties": True}, {"properties": {}, "patternProperties": {"x": {}}}],
)
def test_a_schema_tool_takes_more_keys_where_its_schema_does(parameters):
    made = Tool(name="t", description="", parameters=parameters, fn=dict)
    assert made.bind({"more": 1}).values == {"more": 1}


def test_a_schema_tools_values_are_its_own():
    sent = {"text": "t", "level": [1]}
    bound = custom.bind(sent)
    bound.values["level"].append(2)
    assert (sent["level"], bound.arguments["level"]) == ([1], [1])
