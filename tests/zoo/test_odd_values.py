"""Values that nobody expects, from tools, models and callers: the run takes them, says so, and stays in its time."""

import asyncio
import collections
import datetime as dt
import decimal
import enum
import fractions
import itertools
import time
import types
import uuid
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.events import StreamChunk
from glidepath.models import StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.testing import ScriptedModel, call, raw, say, transcript_errors
from glidepath.values.events import codec

LIMITS = Limits(max_iterations=6, timeout=20)
MOST_SECONDS = 5  # a mock took half a minute


def fly(*turns, tools=(), prompt="go", model=None, **keywords):
    """A run of this script, in real time: a value that holds the loop shows in the clock."""
    agent = Agent(model=model or ScriptedModel([*turns, say("ANSWER")]), tools=tools, limits=LIMITS, **keywords)
    began = time.monotonic()
    result = asyncio.run(agent.run(prompt))
    assert time.monotonic() - began < MOST_SECONDS
    assert transcript_errors(result.messages) == []
    return result


class Slots:
    __slots__ = ("a",)


class Lies(dict):
    def __len__(self):
        return -1  # noqa: PLE0303 - a lie


class Endless(collections.abc.Sequence):
    def __len__(self):
        return 2**62

    def __getitem__(self, place):
        return place


class Hydra:
    """Has every attribute, and each is another hydra."""

    def __getattr__(self, name):
        return Hydra()

    def __call__(self, *_, **__):
        return Hydra()


class Dumps:
    """Looks like a pydantic model, and gives itself."""

    def model_dump(self, **_):
        return self


class NoRepr:
    def __repr__(self):
        raise SystemExit("no")


class Cut(str):  # noqa: SLOT000 - as people write it
    def __str__(self):
        raise ValueError("no")

    def __len__(self):
        return 10**12


def ring():
    one = []
    one.append({"one": one})
    return one


def deep(levels=100_000):
    one = []
    for _ in range(levels):
        one = [one]
    return one


VALUES = {
    "a huge number": 10**6000,
    "a signalling nan": decimal.Decimal("sNaN"),
    "a fraction": fractions.Fraction(1, 3),
    "a complex number": 1j,
    "a range without end": range(10**18),
    "a generator without end": itertools.count(),
    "a sequence without end": Endless(),
    "a ring": ring(),
    "a very deep list": deep(),
    "odd keys": {(1, 2): 3, None: 4, 1.5: 5},
    "a mixed set": {1, "a", None},
    "a module": types,
    "a class": Slots,
    "an object with unset slots": Slots(),
    "a mapping that lies": Lies(a=1),
    "a hydra": Hydra(),
    "a model that dumps itself": Dumps(),
    "no repr": NoRepr(),
    "a string that lies": Cut("text"),
    "a lone surrogate": "a \ud83e b",
    "a nul": "a\0b",
    "an uuid and a date": [uuid.UUID(int=1), dt.datetime.max.replace(tzinfo=dt.UTC), dt.timedelta.max],
    "an enum": enum.Enum("E", "a b").a,
    "a proxy": types.MappingProxyType({"a": 1}),
    "a namespace": types.SimpleNamespace(a=1),
    "a Mock": Mock(),
    "a MagicMock": MagicMock(),
    "an AsyncMock": AsyncMock(),
    "a mock in a list": [{"answer": MagicMock()}],
    "a million zeros": [0] * 1_000_000,
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_a_tool_may_return_it(name, isolation):
    if isolation == "inline":

        @tool
        async def give() -> object:
            """Give."""
            return VALUES[name]
    else:

        @tool
        def give() -> object:
            """Give."""
            return VALUES[name]

    result = fly(call("give"), tools=[give])
    assert result.outcome is LoopOutcome.DONE
    shown = next(message.text for message in result.messages if message.role == "tool_result")
    shown.encode()


def selfish():
    error = ValueError("cause of itself")
    error.__cause__ = error.__context__ = error
    return error


def nested(depth):
    error = ValueError("leaf")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


def chain(length):
    error = None
    for number in range(length):
        link = ValueError(f"link {number}")
        link.__context__ = error
        error = link
    return error


class Mute(Exception):  # noqa: N818 - what it is
    def __str__(self):
        return 3  # noqa: PLE0307 - what it is about


class Trap(Exception):  # noqa: N818 - what it is
    @property
    def __traceback__(self):
        raise SystemExit("no")

    @property
    def __cause__(self):
        raise KeyboardInterrupt

    @property
    def __notes__(self):
        raise SystemExit("no")


def noted():
    error = ValueError("noted")
    error.__notes__ = [3, "\ud83e", MagicMock()]
    return error


ERRORS = {
    "its own cause": selfish,
    "a text that is a number": Mute,
    "attributes that raise": Trap,
    "odd notes": noted,
    "a megabyte of text": lambda: ValueError("x" * 1_000_000),
    "a surrogate": lambda: ValueError("\ud83e"),
    "a group 1,000 deep": lambda: nested(1_000),
    "a chain of 20,000": lambda: chain(20_000),
    "a wide group": lambda: ExceptionGroup("wide", [ValueError(str(number)) for number in range(20_000)]),
    "a wide and deep group": lambda: ExceptionGroup("g", [nested(100) for _ in range(100)]),
    "no arguments": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "a syntax error with odd fields": lambda: SyntaxError("bad", ("file", 10**9, -4, "text")),
}


def make_error(name):
    return ERRORS[name]()


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_a_tool_may_raise_it(name, isolation):
    if isolation == "inline":

        @tool
        async def fails() -> str:
            """Fail."""
            raise make_error(name)
    else:

        @tool
        def fails() -> str:
            """Fail."""
            raise make_error(name)

    result = fly(call("fails"), tools=[fails])
    assert result.outcome is LoopOutcome.DONE
    assert next(message for message in result.messages if message.role == "tool_result").is_error


@pytest.mark.parametrize("name", ERRORS)
def test_a_model_may_raise_it(name):
    class Fails:
        name = "fails"

        async def stream(self, request):
            raise make_error(name)
            yield

    result = fly(model=Fails(), max_retries=0)
    assert (result.outcome, result.cause.source) == (LoopOutcome.FAILED, "provider")


PROMPTS = {
    "a megabyte": "word " * 200_000,
    "a string that lies": Cut("text"),
    "right to left": "\u202eolleh",
}


@pytest.mark.parametrize("name", PROMPTS)
def test_a_caller_may_ask_it(name):
    assert fly(prompt=PROMPTS[name]).outcome is LoopOutcome.DONE


ARGUMENTS = {
    "a huge number": '{"n": 1' + "0" * 5000 + "}",
    "very deep": '{"n": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "twice": '{"n": 1, "n": 2}',
    "not a number": '{"n": NaN}',
    "a surrogate": '{"n": "\\ud83e"}',
    "an array": "[1]",
    "a megabyte": '{"n": "' + "x" * 1_000_000 + '"}',
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_model_may_write_such_arguments(name):
    @tool
    async def take(n: int) -> str:
        """Take a number."""
        return str(n)

    result = fly(raw(ToolCallDelta(0, "c1", "take", ARGUMENTS[name]), StreamEnd("tool_use")), tools=[take])
    assert result.outcome is LoopOutcome.DONE


def test_a_mock_is_no_model_and_the_error_says_so():
    from glidepath import ConfigurationError

    for mock in (MagicMock(), Mock(), AsyncMock()):
        try:
            result = fly(model=mock, max_retries=0)
        except ConfigurationError:
            continue
        assert result.outcome is LoopOutcome.FAILED


HALVES = {
    "a pair": ["robot ", "\ud83e", "\udd16", "."],
    "a pair and its neighbors": ["a\ud83e", "\udd16b"],
    "one half": ["a \ud83e", "."],
    "one half at the end": ["a ", "\ud83e"],
    "the wrong way round": ["\udd16", "\ud83e", "b"],
    "other languages": ["fünf ", "\u72d7", "\ud83e", "", "\udd16"],
}


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize("name", HALVES)
def test_a_gateway_may_split_a_character_over_two_pieces(name, pause):
    class Gateway:
        name = "gateway"

        async def stream(self, request):
            for piece in HALVES[key]:
                yield ThinkingDelta(piece)
            for piece in HALVES[key]:
                yield TextDelta(piece)
                if pause:
                    await asyncio.sleep(0)
            yield StreamEnd("end_turn")

    async def main():
        async with Agent(model=Gateway(), limits=LIMITS).stream("x") as stream:
            chunks = [event async for event in stream if isinstance(event, StreamChunk)]
        for chunk in chunks:
            codec().encode(chunk)
        assert "".join(chunk.text for chunk in chunks if not chunk.thinking) == stream.result.text

    key = name
    asyncio.run(main())


def test_a_gateway_may_split_a_character_of_an_argument():
    @tool
    async def take(words: str) -> str:
        """Take words."""
        return words

    pieces = ['{"words": "a ', "\ud83e", "\udd16", '"}']
    first, *rest = [ToolCallDelta(0, "", "", piece) for piece in pieces]
    first = ToolCallDelta(0, "c1", "take", first.arguments)
    result = fly(raw(first, *rest, StreamEnd("tool_use")), tools=[take])
    assert next(message.text for message in result.messages if message.role == "tool_result") == "a \U0001f916"
