"""Whatever of yours raises is in the log: once, with its type and its place, and its words only where they may be."""

import asyncio
import json
import logging
import os
import subprocess
import sys

import pytest

from glidepath import Agent, Limits, LoopOutcome, Plugin, ToolError, tool
from glidepath.errors import FatalToolError
from glidepath.events import RunEnded
from glidepath.guards import MaxTokensRecovery, TokenScaling
from glidepath.models import StreamEnd
from glidepath.spi import ProtocolPolicy
from glidepath.testing import ScriptedModel, call, calls, say, truncated

LIMITS = {"max_iterations": 4}


class Bug(Exception):  # noqa: N818 - as people say
    """A mistake in somebody's code."""


def bug(*_, **__):
    raise Bug("words of a user")


async def slow_bug(*_, **__):
    await asyncio.sleep(0)
    raise Bug("words of a user")


def hook(name, raises=bug):
    def method(self, *_):
        return raises()

    return {"plugins": [type("Broken", (Plugin,), {name: method, "events": None})()]}


def observer(raises, events=(RunEnded,)):
    if asyncio.iscoroutinefunction(raises):

        async def method(self, event):
            await raises()
    else:

        def method(self, event):
            raises()

    return {"plugins": [type("Watcher", (Plugin,), {"event_observer": method, "events": events})()]}


@tool
async def look(n: int) -> str:
    """Look."""
    return "seen"


@tool(name="look")
async def long(n: int) -> str:
    """Look at much."""
    return "word " * 600


@tool(name="look")
async def broken(n: int) -> str:
    """Look, and fail."""
    bug()


@tool(name="look")
def broken_in_thread(n: int) -> str:
    """Look, and fail."""
    bug()


class Model:
    name = "own"

    def __init__(self, raises=bug):
        self.raises, self.asked = raises, 0

    async def stream(self, request):
        self.asked += 1
        self.raises()
        yield StreamEnd("end_turn")


class Counting(ScriptedModel):
    count_tokens = staticmethod(bug)


class Strategy:
    name = "own"
    shape = staticmethod(bug)


class Estimator:
    estimate = staticmethod(bug)


class Ladder(MaxTokensRecovery, frozen=True):
    def next_cap(self, cap, attempt):
        bug()


class Guard:
    name = "own"
    before = after = recover = staticmethod(bug)

    def reset(self):
        pass


def policy(name):
    return {"protocol_policy": type("Policy", (ProtocolPolicy,), {name: bug})()}


WORK = [call("look", n=1), say("done")]
PLACES = {
    "a tool": ({"tools": [broken]}, WORK),
    "a tool in a thread": ({"tools": [broken_in_thread]}, WORK),
    "a tool in a batch": ({"tools": [broken]}, [calls(call("look", n=1), call("look", n=2)), say("done")]),
    "a tool, again and again": ({"tools": [broken]}, [call("look", n=1), call("look", n=2), say("done")]),
    "before_tool_call": (hook("before_tool_call"), WORK),
    "before_tool_call, later": (hook("before_tool_call", slow_bug), WORK),
    "after_tool_call": (hook("after_tool_call"), WORK),
    "tool_gate": (hook("tool_gate"), WORK),
    "context_transform": (hook("context_transform"), WORK),
    "steering": (hook("steering"), WORK),
    "follow_up": (hook("follow_up"), WORK),
    "an observer": (observer(bug), WORK),
    "an async observer": (observer(slow_bug), WORK),
    "event_sink": ({"event_sink": bug}, WORK),
    "a constraint": ({"constraints": [bug]}, WORK),
    "an async constraint": ({"constraints": [slow_bug]}, WORK),
    "a guard": ({"guards": [Guard()]}, WORK),
    "normalize_tool_calls": (policy("normalize_tool_calls"), WORK),
    "a message provider": (
        {"graceful_turn_limit_message_provider": bug},
        [*[call("look", n=number) for number in range(3)], say("done")],
    ),
    "a model": ({"model": Model()}, None),
    "a context strategy": (
        {"context_strategy": Strategy(), "context_window": 2_500, "tools": [long], "limits": Limits(max_iterations=12)},
        [*[call("look", n=number) for number in range(9)], say("done")],
    ),
    "count_tokens": ({"model": Counting(WORK), "limits": Limits(max_tokens=3_000)}, WORK),
    "a larger output cap": (
        {"max_output_tokens_recovery": Ladder(max_attempts=2, scaling=TokenScaling.Double()), "max_output_tokens": 300},
        [truncated("a long"), say("done"), say("done")],
    ),
    "a token estimator": ({"token_estimator": Estimator()}, WORK),
}


def fly(name, **more):
    given, script = PLACES[name]
    model = given.get("model") or ScriptedModel(script)
    keywords = {"tools": [look], "limits": Limits(**LIMITS), **given, **more, "model": model}
    return Agent(**keywords).run_sync("go")


def logged(caplog):
    return [one for one in caplog.records if one.levelno == logging.ERROR and one.name == "glidepath"]


@pytest.mark.parametrize("name", PLACES)
def test_it_is_logged_once_with_its_type_and_its_place_and_without_its_words(name, caplog):
    caplog.set_level(logging.ERROR, "glidepath")
    fly(name)
    (record,) = logged(caplog)
    text = record.getMessage()
    assert f"raised Bug at {__name__}:" in text
    assert "words of a user" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("name", [name for name in PLACES if name not in ("a context strategy", "a token estimator")])
def test_debug_shows_its_words_and_its_traceback(name, caplog):
    fly(name, debug=True)
    (record,) = logged(caplog)
    assert "Bug: words of a user" in record.getMessage()
    assert "Traceback (most recent call last)" in record.getMessage()
    assert __file__ in record.getMessage()


PROGRAM = """
from glidepath import Agent, Limits, tool
from glidepath.testing import ScriptedModel, call, say

@tool
async def look() -> str:
    "Look."
    raise KeyError("words of a user")

Agent(model=ScriptedModel([call("look"), say("done")]), tools=[look], limits=Limits(max_iterations=4)).run_sync("go")
"""


def test_a_terminal_shows_them_and_a_pipe_does_not():
    piped = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert "tool 'look' raised KeyError at __main__:8" in piped.stderr
    assert "words of a user" not in piped.stderr
    screen, terminal = os.openpty()
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=terminal, check=True, timeout=60)
    os.close(terminal)
    assert "words of a user" in os.read(screen, 100_000).decode()
    os.close(screen)


def test_tool_errors_lists_each_call_whose_tool_raised():
    @tool
    async def picky(n: int) -> str:
        """Take one."""
        if n == 1:
            raise ToolError("not one, please")
        if n == 2:
            {}["nope"]
        return "fine"

    script = [call("picky", n=1), call("picky", n=2), call("picky", n=3), say("done")]
    result = Agent(model=ScriptedModel(script), tools=[picky], limits=Limits(max_iterations=9)).run_sync("go")
    assert [(one.kind, one.text) for one in result.tool_errors] == [
        ("ToolError", "not one, please"),
        ("KeyError", "KeyError: 'nope'"),
    ]
    line = picky.fn.__code__.co_firstlineno + 6
    assert result.tool_errors[1].raised_at == f"{__name__}:{line}"


@pytest.mark.parametrize("error", [ToolError("try another page"), FatalToolError("the disk is gone")])
def test_what_a_tool_tells_the_model_on_purpose_is_no_bug(error, caplog):
    @tool(name="look")
    async def says(n: int) -> str:
        """Look."""
        raise error

    Agent(model=ScriptedModel(WORK), tools=[says], limits=Limits(**LIMITS)).run_sync("go")
    assert logged(caplog) == []


MISTAKES = [TypeError("x"), AttributeError("x"), NameError("x"), UnboundLocalError("x"), ValueError("x"), KeyError("x")]
PASSING = [
    json.JSONDecodeError("x", "{", 0),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
    IndexError("x"),
    OSError("x"),
    ConnectionResetError("x"),
    RuntimeError("x"),
]


@pytest.mark.parametrize("error", [*MISTAKES, *PASSING], ids=lambda error: type(error).__name__)
def test_a_mistake_in_a_model_is_not_tried_again_and_a_fault_of_the_transport_is(error, caplog):
    def raises():
        raise error

    model = Model(raises)
    result = Agent(model=model, limits=Limits(**LIMITS), max_retries=1).run_sync("go")
    assert result.outcome is LoopOutcome.FAILED
    assert model.asked == (1 if error in MISTAKES else 2)
    assert len(logged(caplog)) == 1
