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
from hypothesis import given
from hypothesis import strategies as st

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


def test_details_that_cannot_be_written_are_refused():
    with pytest.raises(ToolError, match="object"):
        as_result(ToolResult("x", details=object()))


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


@pytest.mark.parametrize("value", [object(), looped(), nested(), {(1, 2): 3}, iter([1]), coroutine, ValueError("x")])
def test_what_cannot_be_written_is_refused_by_type(value):
    with pytest.raises(ToolError, match=f"returned a .*{type(value).__name__}"):
        as_result(value)


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
