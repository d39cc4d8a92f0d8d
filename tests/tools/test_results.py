"""From what a tool returned to what the model reads."""

import collections
import enum
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import PurePosixPath

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from glidepath.errors import ToolError
from glidepath.messages import ImageBlock, TextBlock
from glidepath.tools import ToolResult, as_result

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 10


@dataclass
class Row:
    name: str
    price: Decimal


class Model(pydantic.BaseModel):
    a: int
    b: list[str] = []


class Colour(enum.Enum):
    RED = "red"


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("hello", "hello"),
        ("", "(no output)"),
        (None, "(no output)"),
        (Name("n"), "n"),
        (3, "3"),
        (True, "true"),
        ([], "[]"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Row("tea", Decimal("1.50")), '{"name":"tea","price":"1.50"}'),
        ([Row("tea", Decimal(1))], '[{"name":"tea","price":"1"}]'),
        (Model(a=1), '{"a":1,"b":[]}'),
        ({"m": Model(a=1)}, '{"m":{"a":1,"b":[]}}'),
        (Colour.RED, '"red"'),
        (datetime(2026, 1, 2), '"2026-01-02T00:00:00"'),  # noqa: DTZ001
        ({3}, "[3]"),
        (PurePosixPath("/a"), '"/a"'),
        ({"k": 1}.keys(), '["k"]'),
        (collections.deque([1]), "[1]"),
        ({1: Name("x")}, '{"1":"x"}'),
        (10**30, str(10**30)),
    ],
)
def test_what_can_be_written_becomes_text(value, text):
    assert as_result(value) == ToolResult(text)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff123", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF1234WEBPVP8 ", "image/webp"),
        (bytearray(PNG), "image/png"),
    ],
)
def test_image_bytes_become_an_image(data, kind):
    assert as_result(data).content == (ImageBlock(media_type=kind, data=bytes(data)),)


def test_other_bytes_are_refused_with_what_to_return():
    with pytest.raises(ToolError, match=r"5 bytes.*decode them to str"):
        as_result(b"12345")


def test_blocks_and_sequences_of_blocks_pass():
    picture, text = ImageBlock(media_type="image/png", data=PNG), TextBlock("t")
    assert as_result(text).content == (text,)
    assert as_result([text, picture]).content == (text, picture)
    assert as_result(["caption", picture, PNG]).content == (TextBlock("caption"), picture, picture)


def test_a_tool_result_passes_untouched():
    result = ToolResult("x", is_error=True, narration="n", terminate=True, kind="K")
    assert as_result(result) is result


def test_a_tool_results_content_and_details_become_plain():
    row = Row("tea", Decimal(1))
    result = as_result(ToolResult(row, details={"row": row}, narration="\ud800"))
    assert result.content == '{"name":"tea","price":"1"}'
    assert result.details == {"row": {"name": "tea", "price": "1"}}
    assert result.narration == "\ufffd"


def test_details_are_detached_from_what_the_tool_keeps():
    kept = {"list": [1]}
    result = as_result(ToolResult("x", details=kept))
    kept["list"].append(2)
    assert result.details == {"list": [1]}


def test_details_that_cannot_be_written_are_kept_as_text():
    assert as_result(ToolResult("x", details=object())).details == "<object object>\n[shown as text: object]"
    assert (
        as_result(ToolResult("x", details={(1, 2): 3})).details == '{"(1, 2)":3}\n[shown as text: keys of type tuple]'
    )


def looped():
    data = []
    data.append(data)
    return data


def nested():
    data = []
    for _ in range(100_000):
        data = [data]
    return data


async def coroutine(): ...


class Array:
    """As numpy has it."""

    dtype = "float64"

    def __init__(self, values):
        self.values = values
        self.size = len(values)

    def tolist(self):
        return self.values

    def __len__(self):
        return self.size

    def __iter__(self):
        return iter(self.values)

    def __contains__(self, value):
        return value in self.values

    def __str__(self):
        return f"[{self.values[0]} ... {self.values[-1]}]"


class Scalar:
    dtype = "float32"

    def item(self):
        return 2.5


class Rude:
    def __str__(self):
        raise SystemExit(3)

    __repr__ = __str__


@dataclass
class Odd:
    what: object
    price: float = 1.5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "<object object>\n[shown as text: object]"),
        (looped(), '["[this list again]"]\n[shown as text: a list that refers to itself]'),
        ({(1, 2): 3, "a": [4]}, '{"(1, 2)":3,"a":[4]}\n[shown as text: keys of type tuple]'),
        (iter([1]), "<list_iterator object>\n[shown as text: list_iterator]"),
        (coroutine, "<function coroutine>\n[shown as text: function]"),
        (ValueError("x"), "ValueError: x\n[shown as text: ValueError]"),
        (float("inf"), '"Infinity"\n[shown as text: Infinity]'),
        ([1.5, float("-inf"), None], '[1.5,"-Infinity",null]\n[shown as text: Infinity]'),
        ({"a": float("nan")}, '{"a":"NaN"}\n[shown as text: NaN]'),
        (Odd(object()), '{"what":"<object object>","price":1.5}\n[shown as text: object]'),
        (Odd("x", float("inf")), '{"what":"x","price":"Infinity"}\n[shown as text: Infinity]'),
        (Array([1.0, 2.0]), "[1.0,2.0]"),
        ({"a": Array([1.0])}, '{"a":[1.0]}'),
        (Scalar(), "2.5"),
        ({"rows": [Scalar(), 3j]}, '{"rows":[2.5,"3j"]}\n[shown as text: complex]'),
        ({datetime: 1}, "{\"<class 'datetime.datetime'>\":1}\n[shown as text: keys of type type]"),
        ({frozenset({1}), "a"} - {"a"}, "[[1]]"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_not_json_becomes_its_best_text_with_a_marker(value, text):
    assert as_result(value) == ToolResult(text)


def test_what_cannot_be_shown_at_all_says_so():
    named = f"{__name__}.Rude"
    assert as_result(Rude()).content == f"<an object of type {named} that cannot be shown>\n[shown as text: {named}]"


def test_what_is_nested_too_deeply_is_cut():
    text = as_result(nested()).content
    assert len(text) < 1_000
    assert "nested too deeply" in text


def test_a_large_array_shows_itself_in_its_own_words():
    assert as_result(Array([0.5] * 20_000)).content.startswith("[0.5 ... 0.5]\n[shown as text: ")


def test_a_collection_without_end_is_cut():
    class Endless(collections.abc.Collection):
        def __iter__(self):
            return iter(int, 1)

        def __len__(self):
            return 1

        def __contains__(self, value):
            return False

    assert len(as_result(Endless()).content) < 1_000_000


@given(
    st.recursive(
        st.none() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.tuples(st.integers()) | st.text(), inner),
    )
)
def test_only_bytes_are_refused(value):
    try:
        result = as_result(value)
    except ToolError:
        assert isinstance(value, bytes)
    else:
        assert not result.is_error


def test_lone_surrogates_are_replaced_wherever_they_are():
    half = "\ud800"
    for value in (half, {"k": [half]}, TextBlock(half), [TextBlock(half)], Row(half, Decimal(1)), ToolResult(half)):
        msgspec.json.encode(as_result(value))


DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | st.text(alphabet=st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(DATA)
def test_any_plain_data_becomes_a_result_that_can_be_stored(value):
    try:
        result = as_result(value)
    except ToolError:
        assert isinstance(value, bytes)
    else:
        assert result.content
        msgspec.json.encode(result)
