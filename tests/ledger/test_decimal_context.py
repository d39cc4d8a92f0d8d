"""Prices, limits and costs are exact, whatever decimal context the program has."""

import decimal
from decimal import Context, Decimal

import pytest

from glidepath import Agent, Budget, GuardrailsConfig, Limits, Session, Usage
from glidepath.models import StreamEnd, TextDelta

CONTEXTS = {
    "four digits": Context(prec=4),
    "one digit, down": Context(prec=1, rounding=decimal.ROUND_DOWN),
    "inexact trapped": Context(prec=12, traps=[decimal.Inexact, decimal.Rounded]),
    "small exponents": Context(prec=6, Emin=-3, Emax=3),
    "floats trapped": Context(traps=[decimal.FloatOperation]),
    "nothing trapped": Context(prec=2, traps=[]),
}


class Model:
    name = "m"

    def __init__(self, number):
        self.number = number

    async def stream(self, request):
        yield TextDelta("word " * 400)
        yield StreamEnd("end_turn", Usage(1_000 + self.number, 500))


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_cost_is_exact_and_so_is_what_is_remembered_of_it(name):
    number = [*CONTEXTS].index(name)  # `dollars` remembers amounts: each context has its own
    exact = Decimal((1_000 + number) * 3_170_000 + 500 * 15_330_000).scaleb(-12)
    budget, session = Budget(Limits(max_cost="5")), Session()
    with decimal.localcontext(CONTEXTS[name]):
        agent = Agent(
            model=Model(number),
            limits=Limits(max_cost="5", max_tokens="50k"),
            prices={"m": ("3.17", "15.33")},
            guardrails=GuardrailsConfig(reserve_cost_fraction="0.125"),
        )
        result = agent.run_sync("x" * 3_000, session=session, parent=budget)
        agent.run_sync("x" * 3_000, session=session, parent=budget)
    assert result.cost == exact
    assert session.totals.cost == 5 - budget.remaining().cost == 2 * exact


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_wrong_amount_is_a_configuration_error_in_every_context(name):
    from glidepath import ConfigurationError

    with decimal.localcontext(CONTEXTS[name]):
        assert Limits(max_cost="123456.789", max_tokens="1.5m").max_tokens == 1_500_000
        for wrong in ("cheap", "nan", -1, "1e99"):
            with pytest.raises(ConfigurationError, match="max_cost"):
                Limits(max_cost=wrong)
