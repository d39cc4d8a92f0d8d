"""What a call cost: the provider's figures when they can be true, else ours, flagged (SPEC 1.4, G12)."""

import pytest

from glidepath import Agent, Budget, Limits, LoopOutcome, Usage
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta
from glidepath.testing import ScriptedModel, hang, raw, say, virtual

LIMITS = Limits(max_iterations=5)
NAN, INF = float("nan"), float("inf")
TEXT = "four words of text"


async def usage_of(turn, **settings):
    result = await Agent(model=ScriptedModel([turn]), limits=LIMITS, **settings).run("a prompt of some length")
    assert result.outcome is LoopOutcome.DONE
    return result.usage


@virtual
async def test_plausible_figures_are_believed():
    told = Usage(20, 5, 10, 3, 2)
    assert await usage_of(say(TEXT, usage=told)) == told


IMPOSSIBLE = [
    Usage(0, 0),
    Usage(20, 0),
    Usage(0, 5),
    Usage(-1, 5),
    Usage(20, -5),
    Usage(NAN, 5),
    Usage(20, NAN),
    Usage(INF, 5),
    Usage(10**15, 5),
    Usage(20, 10**15),
    Usage("20", "5"),
    Usage(None, None),
    Usage(20, None),
    Usage(True, True),
    Usage(20, 5, -1),
    Usage(20, 5, 21),
    Usage(20, 5, 0, NAN),
    Usage(20, 5, 0, 0, 6),
    Usage(20, 5, "x"),
    {"input": 20, "output": 5},
    "20 tokens",
    None,
]


@pytest.mark.parametrize("reported", IMPOSSIBLE, ids=repr)
@virtual
async def test_impossible_figures_are_replaced_by_ours_and_flagged(reported):
    usage = await usage_of(raw(*[TextDelta(f"{word} ") for word in TEXT.split()], StreamEnd("end_turn", reported)))
    assert usage.estimated
    assert 4 <= usage.output <= 20
    assert 5 <= usage.input <= 100
    parts = (usage.cache_read, usage.cache_write, usage.reasoning)
    assert all(type(part) is int and 0 <= part <= usage.total for part in parts)


@virtual
async def test_what_is_true_of_an_impossible_report_is_kept():
    usage = await usage_of(say(TEXT, usage=Usage(21, 0, 7)))
    assert (usage.input, usage.cache_read, usage.estimated) == (21, 7, True)


@virtual
async def test_tool_calls_count_as_output():
    turn = raw(ToolCallDelta(0, "a", "nothing", '{"text": "' + "x" * 400 + '"}'), StreamEnd("tool_use", Usage(20, 0)))
    model = ScriptedModel([turn, say("done", usage=Usage(20, 5))])
    result = await Agent(model=model, limits=LIMITS).run("go")
    assert result.usage.estimated
    assert result.usage.output > 100


@virtual
async def test_text_that_is_not_ascii_is_counted_in_bytes():
    text = "漢字" * 100
    usage = await usage_of(raw(TextDelta(text), StreamEnd("end_turn")))
    assert usage.output >= 150


@virtual
async def test_a_stream_that_was_cut_is_charged_at_what_was_streamed():
    result = await Agent(model=ScriptedModel([hang("word " * 50)]), limits=Limits(timeout=5), landing="off").run("go")
    assert result.usage.estimated
    assert result.usage.output >= 50


@virtual
async def test_estimated_usage_still_ends_a_run_at_its_limit():
    """A model that reports no usage is stopped all the same."""
    from glidepath import tool
    from glidepath.testing import call

    @tool
    async def more(n: int) -> str:
        return f"{n} " * 500

    script = [call("more", n=n).with_usage("missing") for n in range(30)]
    result = await Agent(
        model=ScriptedModel(script).forever(say("landed", usage="missing")),
        tools=[more],
        limits=Limits(max_tokens=20_000),
    ).run("go")
    assert result.cause.source == "TokenBudgetConstraint"
    assert result.usage.total <= 20_000
    assert result.iterations < 30


SHORT = Usage(20, 500)  # half of what a reply of 4,000 characters is by our count: no single call gives that away


@virtual
async def test_a_little_too_little_in_every_call_is_charged_at_our_count_once_it_adds_up():
    model = ScriptedModel([say("abcd" * 250, usage=Usage(20, 250)), *[say("abcd" * 1000, usage=SHORT)] * 2])
    agent = Agent(model=model, limits=Limits(max_tokens=100_000))
    budget = Budget(Limits(max_tokens=100_000))
    honest, first, second = [(await agent.run("go", parent=budget)).usage for _ in range(3)]
    assert (honest.output, honest.estimated) == (250, False)
    assert (first.output, first.estimated) == (1000, True)
    assert (second.output, second.estimated) == (1000, True)


@virtual
async def test_a_report_within_the_tolerance_is_believed_until_it_is_used_up():
    replies = [say("abcd" * 100, usage=Usage(20, 50))] * 7
    agent = Agent(model=ScriptedModel(replies), limits=Limits(max_tokens=100_000))
    budget = Budget(Limits(max_tokens=100_000))
    charged = [(await agent.run("go", parent=budget)).usage.output for _ in range(7)]
    assert charged == [50, 50, 50, 50, 50, 100, 100]  # 4,096 tokens are reserved for each: 5 x 50 is a sixteenth of it


@virtual
async def test_a_model_whose_reports_are_its_bill_is_believed():
    class Billed(ScriptedModel):
        usage_is_billed = True

    agent = Agent(model=Billed([say("abcd" * 1000, usage=SHORT)] * 2), limits=Limits(max_tokens=100_000))
    budget = Budget(Limits(max_tokens=100_000))
    assert [(await agent.run("go", parent=budget)).usage for _ in range(2)] == [SHORT, SHORT]
