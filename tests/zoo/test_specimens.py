"""Runaways of every kind under one modest budget: contained, typed, landed, transcript whole, nothing left running.

Ten turns, ten thousand tokens, ten cents, twelve seconds, and every other protection at its default.
"""

import asyncio
import math
from decimal import Decimal
from itertools import count

import pytest

from glidepath import Agent, AgentState, ConfigurationError, Limits, LoopOutcome, Usage, tool
from glidepath.errors import ContextOverflowError, RateLimitedError, RejectedError, TransientError
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    call,
    calls,
    empty,
    fail,
    hang,
    no_end,
    no_leftovers,
    raw,
    refuse,
    say,
    thinking,
    transcript_errors,
    truncated,
    virtual,
)

ABSURD = Usage(input=10**15, output=10**15)
LIMITS = {"max_iterations": 10, "max_tokens": 10_000, "max_cost": "0.10", "timeout": 12, "max_tool_calls": 20}
ANSWER = "ANSWER: partial report from what was found so far."
effects = []


@tool
async def search(query: str) -> str:
    """Search."""
    return "Nothing new."


@tool
async def fetch(page: int) -> str:
    """Fetch a page."""
    return f"page {page}"


@tool
async def kbdint(x: int) -> str:
    """Interrupt."""
    raise KeyboardInterrupt


@tool
async def sysexit(x: int) -> str:
    """Exit."""
    raise SystemExit(3)


@tool
async def genexit(x: int) -> str:
    """Close."""
    raise GeneratorExit


@tool
async def cancels(x: int) -> str:
    """Cancel itself."""
    raise asyncio.CancelledError


@tool
async def hangs(x: int) -> str:
    """Hang."""
    await asyncio.sleep(3600)
    return "never"


@tool
async def stubborn(x: int) -> str:
    """Swallow every cancellation."""
    loop = asyncio.get_running_loop()
    until = loop.time() + 60
    while loop.time() < until:
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            continue
    return "late"


@tool
async def big(kb: int) -> str:
    """Return a lot."""
    return "lorem ipsum " * 85 * kb


@tool
async def effect(n: int) -> str:
    """Send invoice n."""
    effects.append(n)
    await asyncio.sleep(0.1)
    return f"invoice {n} sent"


@tool
async def recursive(x: int) -> str:
    """Recurse without end."""
    return await recursive.invoke({"x": x}, None)


TOOLS = [search, fetch, kbdint, sysexit, genexit, cancels, hangs, stubborn, big, effect, recursive]


def told(request):
    words = ("final answer", "no longer be used")
    last = [message.text for message in request.messages[-4:] if message.role in ("user", "tool_result")]
    return not request.tools or any(word in text for text in last for word in words)


def until_told(step):
    """Goes on like this until it is told to stop, then answers."""
    numbers = count(1)
    return lambda: ScriptedModel(price=(10, 10)).forever(
        lambda request: say(ANSWER) if told(request) else step(next(numbers))
    )


def script(*turns, then=None):
    def make():
        model = ScriptedModel(turns, price=(10, 10))
        return model if then is None else model.forever(then)

    return make


def once(name, **arguments):
    return script(call(name, **arguments).with_text("fact-1. "), say(ANSWER))


def burning(usage):
    def step(number):
        turn = call("fetch", page=number).with_text(f"fact-{number}. " + "word " * 1600)
        return turn if usage is None else turn.with_usage(usage(number))

    return until_told(step)


def cycle(*names):
    turns = {"a": call("search", query="a"), "b": call("fetch", page=1), "c": call("search", query="c")}
    turns["d"] = call("big", kb=1)
    return until_told(lambda n: turns[names[(n - 1) % len(names)]].with_text(f"fact-{n}. "))


def dripping():
    return raw(*[TextDelta("drip ")] * 400, StreamEnd(), delay=0.5)


def endless_call(fragments):
    first = ToolCallDelta(index=0, id="long", name="search", arguments='{"query": "')
    return raw(first, *[ToolCallDelta(index=0, arguments="x" * 40)] * fragments, StreamEnd("tool_use"))


# specimen -> (model, whether an answer written by the model must be handed over)
SPECIMENS = {
    "a tool that raises KeyboardInterrupt": (once("kbdint", x=1), ANSWER),
    "a tool that raises SystemExit": (once("sysexit", x=1), ANSWER),
    "a tool that raises GeneratorExit": (once("genexit", x=1), ANSWER),
    "a tool that raises CancelledError": (once("cancels", x=1), ANSWER),
    "a tool that recurses without end": (once("recursive", x=1), ANSWER),
    "two poisonous tools at once": (
        script(calls(call("kbdint", x=1), call("sysexit", x=1), call("effect", n=1)), say(ANSWER)),
        ANSWER,
    ),
    "a tool that hangs": (once("hangs", x=1), ANSWER),
    "a tool that swallows cancellation": (once("stubborn", x=1), ANSWER),
    "a tool that swallows cancellation beside one that works": (
        script(calls(call("stubborn", x=1), call("effect", n=1)), say(ANSWER)),
        ANSWER,
    ),
    "50 MB of result": (once("big", kb=50 * 1024), ANSWER),
    "five hundred calls in one turn": (
        script(calls(*[call("fetch", page=n) for n in range(500)]), then=say(ANSWER)),
        ANSWER,
    ),
    "period 1": (cycle("a"), ANSWER),
    "period 2": (cycle("a", "b"), ANSWER),
    "period 3": (cycle("a", "b", "c"), ANSWER),
    "period 4": (cycle("a", "b", "c", "d"), ANSWER),
    "incrementing arguments": (until_told(lambda n: call("search", query=f"q{n}")), ANSWER),
    "malformed arguments": (
        until_told(
            lambda n: raw(ToolCallDelta(index=0, id=f"m{n}", name="search", arguments='{"query'), StreamEnd("tool_use"))
        ),
        ANSWER,
    ),
    "arguments that are no object": (
        until_told(
            lambda n: raw(ToolCallDelta(index=0, id=f"m{n}", name="search", arguments="[1]"), StreamEnd("tool_use"))
        ),
        ANSWER,
    ),
    "cut calls": (script(then=truncated(call("search", query="abcdef").with_text("so far"))), "so far"),
    "unknown tools": (until_told(lambda n: call(f"lookup_{n}")), ANSWER),
    "one reply of 100k tokens": (script(say("word " * 80_000), then=say(ANSWER)), ANSWER),
    "one call of 100k tokens": (script(endless_call(10_000), then=say(ANSWER)), ANSWER),
    "one thought of 100k tokens": (script(thinking("hm " * 130_000, "x"), then=say(ANSWER)), ANSWER),
    "blank replies": (script(then=say("  \n ")), None),
    "empty streams": (script(then=empty()), None),
    "a missing terminal event": (script(then=no_end("ANSWER: half")), "ANSWER: half"),
    "a missing terminal event after a call": (
        script(then=no_end(call("effect", n=66).with_text("ANSWER: ha"))),
        "ANSWER: ha",
    ),
    "a truncated reply for ever": (script(then=truncated("ANSWER: part ")), "ANSWER: part "),
    "a storm of 429": (script(then=fail(RateLimitedError("slow down"))), None),
    "a 429 that asks for an hour": (script(then=fail(RateLimitedError("slow down", retry_after=3600))), None),
    "429 twice, then fine": (script(*[fail(RateLimitedError("slow", retry_after=1))] * 2, say(ANSWER)), ANSWER),
    "a 500 once": (script(fail(TransientError("500")), say(ANSWER)), ANSWER),
    "500 for ever": (script(then=fail(TransientError("500"))), None),
    "a rejected request": (script(then=fail(RejectedError("400"))), None),
    "an overflow for ever": (script(then=fail(ContextOverflowError("too long"))), None),
    "a stream that raises midway": (script(then=fail(TransientError("reset"), text="ANSWER: half")), "ANSWER: half"),
    "a stream that raises anything": (script(then=fail(ZeroDivisionError("model"))), None),
    "a stream that yields nonsense": (script(then=raw("text")), None),
    "a stream that stalls": (script(then=hang("ANSWER: the first half")), "ANSWER: the first half"),
    "a stream that never begins": (script(hang(), then=say(ANSWER)), ANSWER),
    "a drip": (script(then=dripping()), "drip "),
    "a refusal": (script(refuse("I cannot do that.")), "I cannot do that."),
    "honest burning": (burning(None), ANSWER),
    "usage of zero": (burning(lambda n: Usage()), ANSWER),
    "negative usage": (burning(lambda n: Usage(input=-1_000, output=-1_000)), ANSWER),
    "usage that is no number": (burning(lambda n: Usage(input=math.nan, output=math.nan)), ANSWER),
    "half of the usage": (burning(lambda n: Usage(input=100 * n)), ANSWER),
    "usage that halves the truth": (burning(lambda n: Usage(input=1_000 * n, output=1_000)), ANSWER),
    "missing usage": (burning(lambda n: "missing"), ANSWER),
    "absurd usage": (burning(lambda n: ABSURD), "fact-"),
    "an answer at an absurd price": (script(say(ANSWER, usage=ABSURD)), ANSWER),
    "usage as text": (burning(lambda n: Usage(input="many", output="some")), ANSWER),
    "two effects in parallel": (script(calls(call("effect", n=1), call("effect", n=2)), say(ANSWER)), ANSWER),
    "the same call id twice": (
        script(
            calls(call("effect", n=1), call("effect", n=2)).with_id("x", "x"),
            call("effect", n=3).with_id("x"),
            say(ANSWER),
        ),
        ANSWER,
    ),
}


async def fly(name):
    make, answer = SPECIMENS[name]
    model, recorder = make(), EventRecorder()
    agent = Agent(model=model, tools=TOOLS, tool_timeout=6, limits=Limits(**LIMITS), event_sink=recorder)
    effects.clear()
    before = asyncio.current_task().cancelling()
    async with no_leftovers(abandoned=["glidepath-abandoned", "glidepath-tool-stubborn"]):
        result = await agent.run("Find out about widgets and report.")
    assert asyncio.current_task().cancelling() == before
    recorder.assert_legal()
    return result, model, answer


every = pytest.mark.parametrize("name", SPECIMENS)


@every
@virtual
async def test_it_is_contained(name):
    result, model, _ = await fly(name)
    assert result.elapsed <= 12.1
    assert result.iterations <= 10
    attempts = 4 * (result.iterations + 1)
    assert model.calls <= min(attempts, 15)
    assert result.tool_calls <= 20
    if "absurd" in name:  # it may be the bill: it is charged, nobody could foresee it, and no call comes after it
        assert (model.calls, result.usage) == (1, ABSURD)
        return
    slack = 1 if "halves" not in name else 2  # a plausible lie is believed
    assert result.usage.total <= 10_000 * slack
    assert (result.cost or 0) <= Decimal("0.10") * slack


@every
@virtual
async def test_it_is_typed_and_never_a_silent_success(name):
    result, _, answer = await fly(name)
    done = (result.state, result.outcome) == (AgentState.COMPLETED, LoopOutcome.DONE)
    assert done or result.cause is not None
    if answer != ANSWER:
        assert result.outcome in (LoopOutcome.FAILED, LoopOutcome.CUT_OFF) or result.stop_reason.value == "refusal"
        assert result.cause is not None


@every
@virtual
async def test_what_the_model_wrote_is_handed_over(name):
    result, _, answer = await fly(name)
    if answer is None:
        assert "No answer was written" in result.text
    elif answer == ANSWER:
        assert result.text == ANSWER
        assert not result.partial
    else:
        assert result.text.startswith(answer)


@every
@virtual
async def test_its_transcript_is_whole_and_every_request_was(name):
    result, model, _ = await fly(name)
    assert transcript_errors(result.messages) == []
    assert [error for request in model.requests for error in transcript_errors(request.messages)] == []


@every
@virtual
async def test_what_is_still_running_is_listed(name):
    result, _, _ = await fly(name)
    assert [work.tool_name for work in result.abandoned] == (["stubborn"] if "swallows" in name else [])


@virtual
async def test_effects_happen_once_each():
    await fly("two effects in parallel")
    assert sorted(effects) == [1, 2]
    await fly("the same call id twice")
    assert sorted(effects) == [1, 2, 3]
    await fly("a missing terminal event after a call")
    assert effects == []


@pytest.mark.parametrize("limits", [LIMITS, {"max_cost": "0.10"}])
def test_a_money_limit_on_a_model_nobody_knows_the_price_of_is_a_configuration_error(limits):
    with pytest.raises(ConfigurationError, match="price"):
        Agent(model=ScriptedModel([], name="zoo-unknown-1"), limits=Limits(**limits))
