"""Models that go round in circles, and what they may do when told to stop."""

from itertools import count

from glidepath import Agent, Limits, tool
from glidepath.guards import LANDING_NOTICE
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, raw, say, transcript_errors

__all__ = ["ANSWER", "LOOPS", "fly", "looping"]

ANSWER = "here is what I found"


@tool
async def search(query: str) -> str:
    """Search."""
    return "Nothing new."


@tool
async def read(doc: str) -> str:
    """Read."""
    return f"{doc}: the same text as ever"


@tool(read_only=True)
async def fetch(page: int) -> str:
    """Fetch a page."""
    return "Nothing new."


@tool
async def fail(item: int) -> str:
    """Fail."""
    raise PermissionError("token expired")


@tool
async def write(path: str, text: str) -> str:
    """Write a file."""
    return f"wrote {path}"


TOOLS = [search, read, fetch, fail, write]


def broken(number, arguments):
    return raw(
        TextDelta(f"step {number}"),
        ToolCallDelta(index=0, id=f"b{number}", name="search", arguments=arguments),
        StreamEnd(stop_reason="tool_use"),
    )


def cycle(*turns):
    return lambda number: turns[(number - 1) % len(turns)].with_text(f"step {number}")


A, B, C, D = call("search", query="a"), call("read", doc="b"), call("fetch", page=3), call("write", path="p", text="x")

LOOPS = {
    "period 1": cycle(A),
    "period 2": cycle(A, B),
    "period 3": cycle(A, B, C),
    "period 4": cycle(A, B, C, D),
    "period 2 of one tool": cycle(call("read", doc="a"), call("read", doc="b")),
    "period 3 with a repeat inside": cycle(A, A, B),
    "a batch of two": cycle(calls(A, B)),
    "two batches in turn": cycle(calls(A, B), calls(C, D)),
    "a batch in changing order": cycle(calls(A, B), calls(B, A)),
    "keys in changing order": cycle(
        call("write", {"path": "p", "text": "x"}), call("write", {"text": "x", "path": "p"})
    ),
    "incrementing arguments": lambda number: call("fetch", page=number).with_text(f"step {number}"),
    "the same error with varied arguments": lambda number: call("fail", item=number).with_text(f"step {number}"),
    "the same error with the same arguments": cycle(call("fail", item=1)),
    "malformed arguments": lambda number: broken(number, '{"query": "a"'),
    "malformed arguments that vary": lambda number: broken(number, '{"query": ' + "x" * number),
    "missing arguments": cycle(call("search")),
    "wrong arguments that vary": lambda number: call("search", wrong=number).with_text(f"step {number}"),
    "an unknown tool": cycle(call("lookup_db", key="k")),
    "unknown tools that vary": lambda number: call(f"lookup_{number}", key=number).with_text(f"step {number}"),
    "a long argument": cycle(call("search", query="a" * 5_000)),
}


def looping(kind, temper, **options):
    """Goes round until it listens: to the withdrawal of its tools, to the landing call, or to nothing."""
    numbers = count(1)

    def step(request):
        last = [message.text for message in request.messages[-3:]]
        landing = LANDING_NOTICE in last
        withdrawn = any("can no longer be used" in text for text in last)
        if (temper == "listens" and (landing or withdrawn)) or (temper == "lands" and landing):
            return say(ANSWER)
        return LOOPS[kind](next(numbers))

    return ScriptedModel(**options).forever(step)


async def fly(model, limits=None, **more):
    recorder = EventRecorder()
    agent = Agent(
        model=model,
        tools=more.pop("tools", TOOLS),
        limits=limits or Limits(max_iterations=100),
        event_sink=recorder,
        **more,
    )
    result = await agent.run("the task", session=more.pop("session", None))
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    for request in getattr(model, "requests", ()):
        assert transcript_errors(request.messages) == []
    return result, recorder
