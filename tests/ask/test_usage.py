"""What a call cost: the provider's figures when they can be true, else ours, flagged (SPEC 1.4, G12)."""

import pytest

from glidepath import Agent, Budget, Limits, LoopOutcome, Plugin, Usage
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


LEAN = Usage(20, 700)  # for a reply of 4,000 characters: 5.7 a token, as modern tokenizers count prose
SHORT = Usage(20, 490)  # more than eight characters a token: no tokenizer counts that


@pytest.mark.parametrize("limits", [{"max_tokens": 100_000}, {"max_iterations": 5}, {"max_cost": "5"}], ids=str)
@virtual
async def test_g12_a_plausible_report_is_what_is_charged_with_and_without_limits(limits):
    model = ScriptedModel([say("abcd" * 1000, usage=LEAN)] * 3)
    agent = Agent(model=model, limits=Limits(**limits), prices={"scripted": ("3", "15")})
    assert [(await agent.run("go")).usage for _ in range(3)] == [LEAN] * 3


@virtual
async def test_g12_a_report_below_one_token_for_eight_characters_is_replaced_and_flagged():
    model = ScriptedModel([say("word " * 800, usage=SHORT)])
    usage = (await Agent(model=model, limits=Limits(max_iterations=3)).run("go")).usage
    assert (usage.input, usage.output, usage.estimated) == (20, 1000, True)


@virtual
async def test_g12_a_prompt_reported_below_one_token_for_eight_characters_is_charged_at_our_estimate():
    prompt = "a word or two " * 400
    model = ScriptedModel(
        [say("ok", usage=Usage(len(prompt) // 8 - 10, 1)), say("ok", usage=Usage(len(prompt) // 7, 1))]
    )
    agent = Agent(model=model, limits=Limits(max_iterations=3))
    low, plausible = [(await agent.run(prompt)).usage for _ in range(2)]
    assert (low.input >= len(prompt) // 3, low.estimated) == (True, True)
    assert plausible == Usage(len(prompt) // 7, 1)


@virtual
async def test_g12_an_idle_transform_switches_no_check_off():
    class Idle(Plugin):
        def context_transform(self, context):
            return None

    prompt = "a word or two " * 400
    agent = Agent(model=ScriptedModel([say("ok", usage=Usage(100, 1))]), limits=LIMITS, plugins=[Idle()])
    usage = (await agent.run(prompt)).usage
    assert (usage.input >= len(prompt) // 3, usage.estimated) == (True, True)


PRICES = {"scripted": ("3", "15", "0.3", "3.75")}


@virtual
async def test_a_cached_share_that_was_never_sent_before_is_charged_as_fresh():
    prompt = "a word or two " * 4_000
    says_cached = Usage(14_000, 1, cache_read=14_000)
    agent = Agent(model=ScriptedModel([say("ok", usage=says_cached)] * 2), prices=PRICES, limits=Limits(max_cost="5"))
    first, again = [(await agent.run(prompt)).usage for _ in range(2)]
    assert first.cache_read < 1_000
    assert first.estimated
    assert again == says_cached  # this model object has been sent as much


@virtual
async def test_a_cached_share_of_the_system_prompt_may_come_from_another_process():
    usage = Usage(6_000, 1, cache_read=5_500)
    agent = Agent(model=ScriptedModel([say("ok", usage=usage)]), system_prompt="a rule or two " * 1_500, limits=LIMITS)
    assert (await agent.run("go")).usage == usage


@virtual
async def test_a_vendors_cached_share_is_believed():
    class Billed(ScriptedModel):
        usage_is_billed = True

    usage = Usage(14_000, 1, cache_read=14_000)
    agent = Agent(model=Billed([say("ok", usage=usage)]), limits=LIMITS)
    assert (await agent.run("a word or two " * 4_000)).usage == usage


@virtual
async def test_a_model_whose_reports_are_its_bill_is_believed():
    class Billed(ScriptedModel):
        usage_is_billed = True

    agent = Agent(model=Billed([say("abcd" * 1000, usage=LEAN)] * 2), limits=Limits(max_tokens=100_000))
    budget = Budget(Limits(max_tokens=100_000))
    assert [(await agent.run("go", parent=budget)).usage for _ in range(2)] == [LEAN, LEAN]
