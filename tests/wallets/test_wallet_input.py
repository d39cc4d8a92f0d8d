"""What a stored budget does not accept, and what it says then."""

import asyncio

import pytest

from glidepath import Agent, Budget, ConfigurationError, Limits
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import ScriptedModel, say

STORE = MemoryStore()
SMALL = Limits(max_tokens=10)


class JournalsOnly:
    """A store that keeps no wallets."""


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"store": STORE}, r"needs a name, such as .*name='customer:42'"),
        ({"name": "c"}, r"Budget.name is for a stored budget: add store="),
        ({"per": "day"}, r"Budget.per is for a stored budget"),
        ({"store": STORE, "name": "c", "per": "year"}, r"Budget.per must be '5h', .*'month' or None .* not 'year'"),
        ({"store": STORE, "name": "c", "per": "Month"}, r"Budget.per must be"),
        ({"store": STORE, "name": "c", "per": 30}, r"Budget.per must be .* not 30"),
        ({"store": STORE, "name": " "}, r"Budget.name must be a non-empty str"),
        ({"store": STORE, "name": 42}, r"Budget.name must be a non-empty str of at most 200 characters, not 42"),
        ({"store": STORE, "name": "x" * 201}, r"Budget.name must be a non-empty str of at most 200"),
        ({"store": STORE, "name": "a\0b"}, r"Budget.name must be"),
        ({"store": STORE, "name": "\ud800"}, r"Budget.name must be valid Unicode"),
        ({"store": JournalsOnly(), "name": "c"}, r"Budget.store: JournalsOnly keeps no wallets; use SqliteStore"),
        ({"store": "wallets.db", "name": "c"}, r"Budget.store: str keeps no wallets"),
        ({"store": SqliteStore, "name": "c"}, r"Budget.store: SqliteStore keeps no wallets"),
        ({"parent": SMALL}, r"Budget.parent must be a Budget, not Limits"),
        ({"parent": Budget(SMALL, name="p", store=STORE)}, r"a budget inside wallet 'p' must be stored, too"),
        ({"parent": Budget(SMALL), "name": "c", "store": STORE}, r"must be in the same store"),
        ({"parent": Budget(SMALL, name="c", store=STORE), "name": "c", "store": STORE}, r"cannot be inside itself"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_wrong_wallet_is_refused_before_anything_runs(keywords, message):
    with pytest.raises(ConfigurationError, match=message):
        Budget(SMALL, **keywords)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"max_iterations": 3},
            "limits max_tokens and max_cost, not max_iterations: put it in the limits of",
        ),
        ({"max_tool_calls": 3}, "not max_tool_calls"),
        ({"timeout": 3}, "not timeout"),
        ({"max_cost": "10000000"}, r"can hold \$9 million at most, not '10000000'"),
        ({"max_tokens": 9, "scope": "session"}, "leave out scope='session'"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_wallet_limits_tokens_and_money_only(limits, message):
    with pytest.raises(ConfigurationError, match=message):
        Budget(Limits(**limits), name="c", store=STORE)


@pytest.mark.parametrize("amount", ["5 USD", "5,00", "five", "", "NaN", "-1", "0", "1e400", True])
def test_an_amount_that_is_not_a_number_of_dollars_is_refused(amount):
    with pytest.raises(ConfigurationError, match=r"Limits\.max_cost"):
        Budget(Limits(max_cost=amount), name="c", store=STORE)


@pytest.mark.parametrize("scope", ["Session", "conversation", None, 1])
def test_an_unknown_scope_is_refused(scope):
    with pytest.raises(ConfigurationError, match=r"Limits.scope must be"):
        Limits(max_tokens=5, scope=scope)


def test_what_is_left_of_a_wallet_is_asked_of_its_store():
    budget = Budget(SMALL, name="c", store=STORE)
    for ask in (budget.remaining, budget.near_budget):
        with pytest.raises(ConfigurationError, match=r"await budget.account\(\)"):
            ask()
    with pytest.raises(ConfigurationError, match="this budget is in memory"):
        asyncio.run(Budget(SMALL).account())


def test_a_wallet_nobody_has_drawn_from_is_empty_and_makes_no_file(tmp_path):
    budget = Budget(Limits(max_cost="5"), name="c", store=SqliteStore(tmp_path / "none.db"), per="month")
    wallet = asyncio.run(budget.account())
    assert (str(wallet.left_cost), wallet.tokens, wallet.per) == ("5", 0, "month")
    assert not (tmp_path / "none.db").exists()


def test_a_wallet_with_a_money_limit_needs_a_price():
    agent = Agent(model=ScriptedModel([say("x")]), limits=Limits(max_iterations=1))
    with pytest.raises(ConfigurationError, match="price"):
        agent.run_sync("x", parent=Budget(Limits(max_cost="5"), name="c", store=STORE))


def test_the_repr_of_a_wallet_names_it():
    budget = Budget(Limits(max_cost="5"), name="customer:42", store=STORE)
    assert repr(budget).startswith("<Budget 'customer:42': max_cost='5', in <")


def test_a_budget_in_memory_can_have_a_parent():
    above = Budget(Limits(max_tokens=3_000, timeout=9))
    below = Budget(Limits(max_tokens=90_000), parent=above)
    agent = Agent(model=ScriptedModel().forever(say("x" * 400)), unbounded=True)
    result = agent.run_sync("x", parent=below)
    assert above.meter.tokens == below.meter.tokens == result.usage.total
    assert below.remaining().tokens == above.remaining().tokens < 3_000
    assert below.deadline(5.0) == above.deadline(5.0)
