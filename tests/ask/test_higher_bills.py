"""The higher bill is believed: what is charged is never less than what is billed, as far as a report can be true."""

import asyncio
import logging
import math
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import Agent, Budget, Limits, LoopOutcome, Usage, tool
from glidepath.agent import look_up_price
from glidepath.events import BudgetSettled
from glidepath.kernel.model_call import cost_of, is_implausible
from glidepath.messages import ReplyInfo, StreamEnd, TextDelta
from glidepath.models import chat_bill, chat_media, gemini_media
from glidepath.run import Price
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, raw, say, virtual
from glidepath.values import SATURATED, Media

PRICE = ("1.25", "10", "0.125", None)


class Vendor(ScriptedModel):
    usage_is_billed = True


class Whole(int):
    """A number of somebody's own library."""


class Index:
    """Another: an integer that is none of Python's."""

    def __index__(self):
        return 500_000


class Hostile:
    def __index__(self):
        raise RuntimeError("no")


def told(usage, info=None, text="four words of text"):
    return raw(TextDelta(text), StreamEnd("end_turn", usage, info))


@pytest.mark.parametrize("kind", [Vendor, ScriptedModel])
@virtual
async def test_a_report_far_above_ours_is_charged_logged_and_marked(kind, caplog):
    recorder, report = EventRecorder(), Usage(500_000, 20)
    model = kind([told(report)], price=PRICE)
    with caplog.at_level(logging.WARNING, "glidepath"):
        result = await Agent(model=model, limits=Limits(max_cost="5"), event_sink=recorder).run("hi")
    assert (result.usage, result.cost) == (report, Decimal("0.6252"))
    assert recorder.one(BudgetSettled).implausible
    assert "500000 input" in caplog.text


@pytest.mark.parametrize(
    "figure", [Whole(500_000), Index(), Decimal(500_000), Fraction(999_999, 2), 499_999.5], ids=type
)
@virtual
async def test_a_figure_of_another_type_is_charged_too(figure):
    model = Vendor([told(Usage(figure, 20))], price=PRICE)
    result = await Agent(model=model, limits=Limits(max_cost="5")).run("hi")
    assert (result.usage.input, type(result.usage.input)) == (500_000, int)


@pytest.mark.parametrize("figure", [Hostile(), Decimal("NaN"), math.inf, "500000", b"500000", True, [500_000], None])
@virtual
async def test_what_is_no_figure_is_replaced(figure):
    result = await Agent(model=Vendor([told(Usage(figure, 20))]), limits=Limits(max_tokens=9_000)).run("hi")
    assert result.usage.input < 1_000
    assert result.usage.estimated


@virtual
async def test_a_bill_that_cannot_be_worked_out_keeps_nothing_back(monkeypatch):
    """Whatever goes wrong while a call is settled: what it had reserved is charged, and not set aside for ever."""

    def broken(*_):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Price, "cost", broken)
    budget = Budget(Limits(max_tokens=9_000))
    model = Vendor([told(Usage(50, 20))], price=PRICE)
    result = await Agent(model=model, limits=Limits(max_iterations=3)).run("hi", parent=budget)
    assert result.outcome is LoopOutcome.FAILED
    assert budget.meter.reserved_tokens == 0
    assert budget.meter.tokens > 70


@virtual
async def test_a_report_that_the_call_explains_is_not_marked(caplog):
    recorder, model = EventRecorder(), ScriptedModel([told(Usage(90_000, 20))])
    await Agent(model=model, limits=Limits(max_iterations=3), event_sink=recorder).run("x")
    assert not recorder.one(BudgetSettled).implausible
    assert "reports" not in caplog.text


@pytest.mark.parametrize("limit", ["0.10", "0.30", "0.50", "1.00"])
@virtual
async def test_only_the_one_call_that_nobody_could_foresee_goes_over_a_limit(limit):
    """A prompt that the provider keeps is billed with every call, the landing included."""

    @tool
    async def look(page: int) -> str:
        """Look."""
        return f"page {page}"

    report = Usage(500_000, 20, cache_read=499_000)
    model = Vendor(price=PRICE).forever(
        lambda request: (call("look", page=len(request.messages)) if request.tools else say("x")).with_usage(report)
    )
    result = await Agent(model=model, tools=[look], limits=Limits(max_iterations=30, max_cost=limit)).run("go")
    one = Price.per_million(PRICE, field="p").cost(report)
    billed = model.calls * one / 10**12
    assert float(result.cost) == pytest.approx(billed)
    first_alone = one / 10**12  # the first call could not be foreseen; from then on we know
    assert billed <= max(float(limit), first_alone)


@pytest.mark.parametrize("huge", [10**15, SATURATED - 1, 1 << 63, 10**40, 1e300])
@virtual
async def test_figures_stop_at_what_every_meter_and_store_can_count(huge, tmp_path):
    for store in (MemoryStore(), SqliteStore(tmp_path / "wallets.db")):
        budget = Budget(Limits(max_tokens=10**6, max_cost="100"), name="w", store=store)
        for _ in range(2):
            model = ScriptedModel([told(Usage(huge, huge))], price=PRICE)
            agent = Agent(model=model, limits=Limits(max_iterations=3), store=store)
            result = await agent.run("hi", parent=budget)
            assert result.usage.total <= 2 * SATURATED
        (wallet,) = await store.wallets("w")
        assert wallet.tokens < 1_000  # what the calls explain; the rest is a bill that nobody has accepted
        assert 10**6 < wallet.disputed_tokens <= SATURATED
        assert wallet.disputed_money <= SATURATED
        assert (wallet.held_tokens, wallet.held_money) == (0, 0)


@virtual
async def test_a_budget_that_a_bill_has_emptied_starts_nothing_more():
    budget = Budget(Limits(max_tokens=50_000))
    agent = Agent(model=ScriptedModel([told(Usage(10**9, 5))]), limits=Limits(max_iterations=3))
    assert (await agent.run("x", parent=budget)).usage.total == 10**9 + 5
    again = await agent.run("x", parent=budget)
    assert (again.outcome, again.iterations) == (LoopOutcome.CUT_OFF, 0)


# --- what is billed beside the tokens -----------------------------------------------------------------------------


@virtual
async def test_sound_and_pictures_cost_what_the_list_says():
    price = look_up_price("gemini-2.5-flash", "google")
    assert price.audio_input == 1_000_000  # a dollar for a million
    assert cost_of(price, Usage(5_000, 100), ReplyInfo(media=Media(audio_input=4_000))) == 4_550_000_000
    assert cost_of(price, Usage(5_000, 100), ReplyInfo()) == 1_750_000_000


def test_media_counts_that_cannot_be_true_are_left_out():
    price = Price(1, 2, audio_input=10, image_input=20)
    plain = price.cost(Usage(100, 10))
    for nonsense in (-5, 101, math.nan, "9", None, True):
        assert cost_of(price, Usage(100, 10), ReplyInfo(media=Media(audio_input=nonsense))) == plain
    assert cost_of(price, Usage(100, 10), ReplyInfo(media=Media(audio_input=60, image_input=60))) == plain + 60 * 9
    assert cost_of(price, Usage(100, 10), ReplyInfo(media=Media(audio_input=60, image_input=40))) == plain + 540 + 760


@pytest.mark.parametrize(
    ("billed", "charged"),
    [
        (0.0123, 12_300_000_000),
        (1e-9, 10_000),
        (0.0, 10_000),
        (-1.0, 10_000),
        (math.nan, 10_000),
        (math.inf, 10_000),
        (Decimal("0.0123"), 12_300_000_000),
        (Whole(2), 2 * 10**12),
        (10**400, SATURATED),
        (Decimal("1e400"), SATURATED),
        (-(10**400), 10_000),
        (Decimal("sNaN"), 10_000),
        (Decimal("Infinity"), 10_000),
        (True, 10_000),
        ("0.0123", 10_000),
    ],
    ids=lambda one: repr(one)[:20],
)
def test_of_the_bill_and_the_price_list_the_higher_one_is_charged(billed, charged):
    assert cost_of(Price(100, 0), Usage(100, 10), ReplyInfo(billed=billed)) == charged


ODD = [-1, 1.5, math.nan, math.inf, "7", None, True, [], {}]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_the_chat_format_reads_sound_pictures_and_the_bill_and_nothing_odd(odd):
    used = {
        "cost": 0.0123,
        "prompt_tokens_details": {"audio_tokens": 1_800, "image_tokens": 5},
        "completion_tokens_details": {"audio_tokens": 90},
    }
    assert chat_media(used) == Media(audio_input=1_800, audio_output=90, image_input=5)
    assert chat_bill(used) == 0.0123
    own_key = {"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}}
    assert chat_bill(own_key) == pytest.approx(0.021)
    assert chat_bill({"cost_details": odd}) is None
    assert chat_bill({"cost": odd}) in (None, 1.5)
    assert chat_media({"prompt_tokens_details": odd}) == Media()
    strange = chat_media({"prompt_tokens_details": {"audio_tokens": odd}})
    assert cost_of(Price(1, 2, audio_input=10), Usage(100, 10), ReplyInfo(media=strange)) == 120


def test_googles_format_counts_sound_and_pictures_of_the_prompt_the_cache_and_the_reply():
    def of(kind, tokens):
        return SimpleNamespace(modality=SimpleNamespace(value=kind), token_count=tokens)

    used = SimpleNamespace(
        prompt_tokens_details=[of("TEXT", 1_000), of("AUDIO", 4_000), of("IMAGE", 258)],
        cache_tokens_details=[of("AUDIO", 1_000)],
        candidates_tokens_details=None,
        tool_use_prompt_tokens_details=[of("AUDIO", 7)],
    )
    assert gemini_media(used) == Media(audio_input=4_007, audio_cached=1_000, image_input=258)
    assert gemini_media(SimpleNamespace()) == Media()


# --- whatever is reported -----------------------------------------------------------------------------------------

counts = st.one_of(
    st.integers(-(10**6), 10**6),
    st.integers(10**9, 10**40),
    st.integers(0, 10**12).map(Whole),
    st.decimals(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
)
reports = st.one_of(st.none(), st.builds(Usage, counts, counts, counts, counts, counts), st.just("nonsense"))


def is_figure(given):
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


@settings(max_examples=300, deadline=None)
@given(report=reports, billed=st.one_of(st.none(), st.floats()), vendor=st.booleans(), size=st.integers(1, 3_000))
def test_charged_is_never_less_than_billed_as_far_as_a_report_can_be_believed(report, billed, vendor, size):
    async def main():
        kind = Vendor if vendor else ScriptedModel
        info = None if billed is None else ReplyInfo(billed=billed)
        recorder = EventRecorder()
        model = kind([told(report, info, "word " * size)], price=PRICE)
        limits = Limits(max_tokens=10**6, max_cost="50")
        result = await Agent(model=model, limits=limits, event_sink=recorder, landing="off").run("go")
        return result, recorder.of(BudgetSettled)

    result, events = VirtualClock().run(main())
    usage = result.usage
    assert all(type(part) is int and part >= 0 for part in (usage.input, usage.output, usage.cache_read))
    assert usage.input + usage.output > 0
    price = Price.per_million(PRICE, field="p")
    for told_of, ours in zip(("input", "output"), (usage.input, usage.output), strict=True):
        given_ = getattr(report, told_of, None)
        if is_figure(given_):
            assert ours >= min(given_, SATURATED)
    # Never less than our own price of what was charged, nor than a bill that can be one.
    assert result.cost * 10**12 >= min(price.cost(usage), SATURATED)
    if billed is not None and math.isfinite(billed) and billed > 0:
        assert result.cost >= min(Decimal(billed), Decimal(SATURATED) / 10**12) - Decimal("1e-12")
    # And whoever was over by more than a call can explain is told so.
    if usage.input > 200_000 or usage.output > 20 * 5 * size + 200_000:
        assert events[-1].implausible


def test_what_is_implausible_needs_no_run():
    assert is_implausible(Usage(1_000_000, 5), 100, 20)
    assert not is_implausible(Usage(50_000, 5), 100, 20)


def test_a_bill_that_comes_twice_in_one_reply_counts_once():
    async def main():
        model = ScriptedModel(
            [raw(TextDelta("a few words"), StreamEnd("end_turn", Usage(9, 5)), StreamEnd("end_turn", Usage(900, 500)))]
        )
        return await Agent(model=model, limits=Limits(max_iterations=3)).run("go")

    assert asyncio.run(main()).usage.total in (14, 1_400)
