"""Money is exact: pico-dollars inside, Decimal outside, rounded up where it must be rounded."""

import sys
from decimal import Decimal
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, Budget, ConfigurationError, Limits, Usage
from glidepath.messages import StreamEnd, TextDelta
from glidepath.run import Price, dollars, pico
from glidepath.testing import ScriptedModel, call, say, virtual
from glidepath.values import install_line

MILLION = 10**6


def price(*given):
    return Price.per_million(given, field="prices['m']")


@pytest.mark.parametrize(
    ("given", "expected"),
    [("0.50", "0.5"), (2, "2"), (Decimal("0.000001"), "0.000001"), (0.1, "0.1"), ("1e-12", "1e-12"), (0, "0")],
)
def test_an_amount_survives_the_way_in_and_out(given, expected):
    assert dollars(pico(given, field="x")) == Decimal(expected)


def test_less_than_a_pico_dollar_is_rounded_up():
    assert pico("1e-13", field="x") == 1


@pytest.mark.parametrize(
    "given", [True, "a lot", None, "NaN", "Infinity", -1, "-0.01", float("nan"), float("inf"), [], b""]
)
def test_what_is_no_amount_is_refused_by_name(given):
    with pytest.raises(ConfigurationError, match=r"prices\['m'\]"):
        pico(given, field="prices['m']")


@pytest.mark.parametrize("given", ["12", 5, None, (1,), (1, 2, 3), (1, 2, 3, 4, 5, 6), ("a", "b"), (-1, 2)])
def test_what_is_no_price_is_refused_by_name(given):
    with pytest.raises(ConfigurationError, match=r"prices\['m'\]"):
        Price.per_million(given, field="prices['m']")


def test_input_and_output_have_their_own_price():
    assert dollars(price(3, 15).cost(Usage(input=MILLION, output=MILLION))) == Decimal(18)


def test_cached_tokens_are_part_of_the_input_and_cost_what_the_cache_costs():
    usage = Usage(input=1000, output=0, cache_read=600, cache_write=300)
    assert price(10, 50, 1, 20).cost(usage) == price(10, 50).input * 100 + 600 * MILLION + 300 * 20 * MILLION


def test_cached_tokens_without_a_price_of_their_own_cost_the_full_input_price():
    usage = Usage(input=1000, output=0, cache_read=600, cache_write=300)
    assert price(10, 50, None, None).cost(usage) == price(10, 50).cost(Usage(input=1000))


def test_more_cached_tokens_than_input_never_make_a_call_cheaper_than_free():
    assert price(10, 50, 1, 20).cost(Usage(input=10, cache_read=600)) >= 600 * MILLION


def test_the_worst_input_price_is_that_of_writing_the_cache():
    assert price(10, 50, 1, 20).worst_input == 20 * MILLION
    assert price(10, 50, 1, 5).worst_input == 10 * MILLION


TIERED = Price(input=1, output=2, tier_start=1000, tier=Price(input=10, output=20))


@pytest.mark.parametrize(("tokens", "cost"), [(999, 999 + 10), (1000, 1000 + 10), (1001, 10010 + 100)])
def test_a_long_prompt_pays_its_tier_for_every_token(tokens, cost):
    assert TIERED.cost(Usage(input=tokens, output=5)) == cost


@pytest.mark.parametrize(("tokens", "same"), [(1000, True), (1001, False)])
def test_the_price_of_a_call_is_known_from_the_size_of_its_prompt(tokens, same):
    assert (TIERED.at(tokens) is TIERED) is same


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.tuples(*[st.integers(0, 10**9)] * 4),
)
def test_no_way_to_cache_costs_more_than_the_worst_case(fresh, read, write, output, rates):
    tariff = Price(*rates)
    usage = Usage(input=fresh + read + write, output=output, cache_read=read, cache_write=write)
    worst = usage.input * max(tariff.worst_input, tariff.cache_read or 0) + output * tariff.output
    assert tariff.cost(usage) <= worst


def agent(model, **more):
    return Agent(model=model, limits=Limits(max_iterations=5, max_cost="1"), **more)


@virtual
async def test_an_explicit_price_wins_over_that_of_the_model():
    model = ScriptedModel([say("done", usage=Usage(input=20, output=10))], price=("1000", "1000"))
    result = await agent(model, prices={"scripted": ("1", "1")}).run("go")
    assert result.cost == Decimal("0.00003")


@virtual
async def test_a_model_that_knows_its_price_needs_no_other():
    model = ScriptedModel([say("done", usage=Usage(input=20, output=10))], price=(2, 4.5))
    assert (await agent(model).run("go")).cost == Decimal("0.000085")


@pytest.mark.parametrize("installed", [True, False])
def test_whoever_has_no_list_of_prices_is_told_where_one_is(monkeypatch, installed):
    if not installed:
        monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(ConfigurationError) as refused:
        Agent(model=ScriptedModel(name="nobody-knows"), limits=Limits(max_cost=1))
    assert (install_line("prices") in str(refused.value)) == (not installed)


def test_g12_a_money_limit_without_a_known_price_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match=r"max_cost.*no-such-model-1"):
        agent(ScriptedModel(name="no-such-model-1"))


def test_a_money_limit_on_an_unpriced_model_can_borrow_a_price():
    prices = {"known": (1, 1)}
    made = agent(ScriptedModel(name="no-such-model-1"), prices=prices, unpriced="estimate:known")
    assert made.config.unpriced == "estimate:known"


@pytest.mark.parametrize("unpriced", ["known", "estimate:", "estimate:nobody-knows-it", 5])
def test_a_price_that_cannot_be_borrowed_is_a_configuration_error(unpriced):
    with pytest.raises(ConfigurationError, match="unpriced"):
        agent(ScriptedModel(name="no-such-model-1"), prices={"known": (1, 1)}, unpriced=unpriced)


def test_a_known_model_is_looked_up():
    model = agent(ScriptedModel(name="gpt-4o-mini"))
    assert model._plan.price.output > model._plan.price.input > 0


@virtual
async def test_without_a_price_and_without_a_money_limit_the_cost_is_unknown_not_zero():
    made = Agent(model=ScriptedModel([say("done")]), limits=Limits(max_iterations=5))
    assert (await made.run("go")).cost is None


@virtual
async def test_g12_every_attempt_is_charged_also_the_discarded_ones():
    from glidepath import MaxTokensRecovery
    from glidepath.testing import truncated

    turns = [truncated("half", usage=Usage(input=20, output=10)), say("whole", usage=Usage(input=20, output=20))]
    model = ScriptedModel(turns, price=("1", "1"))
    made = agent(model, max_output_tokens=100, max_output_tokens_recovery=MaxTokensRecovery.doubling())
    result = await made.run("go")
    assert (result.usage.total, result.cost) == (70, Decimal("0.00007"))


@virtual
async def test_the_breakdown_adds_up_to_the_cost():
    from glidepath import tool

    @tool
    async def look() -> str:
        """Look."""
        return "x"

    model = ScriptedModel([call("look"), say("done")], price=("1", "3"))
    result = await agent(model, tools=[look]).run("go")
    assert sum(spend.cost or 0 for spend in result.breakdown) == result.cost > 0
    assert sum(spend.usage.total for spend in result.breakdown) == result.usage.total


@pytest.mark.parametrize(
    "given", [(None, 1), (1, None), (None, None, 1, 1), {"input": 1, "output": 2}, ("1e999999999", 1)]
)
def test_a_price_without_its_figures_is_a_configuration_error(given):
    with pytest.raises(ConfigurationError, match=r"prices\['m'\]"):
        Price.per_million(given, field="prices['m']")


class Free:
    """A model that says of itself that it costs nothing."""

    name = "free"
    price = (0, 0)

    async def stream(self, request):
        yield TextDelta("done")
        yield StreamEnd("end_turn")


def test_g12_a_found_price_of_zero_does_not_void_a_money_limit():
    with pytest.raises(ConfigurationError, match=r"the price found for model 'free' is 0.*prices=\{'free': \(0, 0\)\}"):
        Agent(model=Free(), limits=Limits(max_cost="0.50"))


def test_g12_a_found_price_of_zero_does_not_void_a_shared_money_limit():
    agent = Agent(model=Free(), limits=Limits(max_iterations=3))
    with pytest.raises(ConfigurationError, match="the price found for model 'free' is 0"):
        agent.run_sync("go", parent=Budget(Limits(max_cost="0.50")))


def test_a_price_of_zero_that_somebody_states_is_a_price():
    agent = Agent(model=Free(), limits=Limits(max_cost="0.50"), prices={"free": (0, 0)})
    assert agent.run_sync("go").cost == 0
    assert agent.run_sync("go", parent=Budget(Limits(max_cost="0.50"))).cost == 0


def test_a_free_model_without_a_money_limit_costs_nothing():
    assert Agent(model=Free(), limits=Limits(max_iterations=3)).run_sync("go").cost == 0


class Listed:
    """A list of prices, as genai-prices has it, in which everything is free."""

    def find_provider_model(self, name, *_):
        return None, self

    def get_prices(self, when):
        return SimpleNamespace(input_mtok=Decimal(0), output_mtok=Decimal(0))


def test_g12_a_price_of_zero_in_the_list_of_prices_does_not_void_a_money_limit(monkeypatch):
    pytest.importorskip("genai_prices")
    monkeypatch.setattr("genai_prices.data_snapshot.get_snapshot", Listed)
    with pytest.raises(ConfigurationError, match=r"the price found for model 'listed' is 0"):
        agent(ScriptedModel(name="listed"))
    assert agent(ScriptedModel(name="listed"), prices={"known": (1, 2)}, unpriced="estimate:known")._plan.price.output
