"""Teams on a wallet: all members together stay within it, and what a dead team held is corrected when it goes on."""

import asyncio
import os

import pytest

from glidepath import Budget, ConfigurationError, Limits
from glidepath.agent import sweep
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.teams import TeamResourceConstraint, TeamStatus
from glidepath.testing import no_leftovers, say, truncated, virtual

from .kit import agent, request, step, team

WORDY = "word " * 400


def obedient(request):
    most = len(WORDY) if request.max_output_tokens is None else request.max_output_tokens * 4
    return say(WORDY) if len(WORDY) <= most else truncated(WORDY[:most])


def members(count=3):
    return [agent(obedient, name=f"m{number}", max_output_tokens=600) for number in range(count)]


def wallet(store, tokens=5_000):
    company = Budget(Limits(), name="company", store=store)
    return Budget(Limits(max_tokens=tokens), name="team", store=store, parent=company)


async def figures(store):
    return {one.name: (one.tokens, one.held_tokens, one.holds) for one in await store.wallets()}


@virtual
async def test_g4_all_members_of_a_team_together_stay_within_its_wallet():
    store = MemoryStore()
    steps = [step(f"s{number}") for number in range(20)]
    async with no_leftovers():
        result = await team(*members()).run(request(*steps), parent=wallet(store))
    assert 2_000 < result.usage.total <= 5_000
    assert await figures(store) == dict.fromkeys(("company", "team"), (result.usage.total, 0, 0))


@virtual
async def test_g4_two_teams_on_one_wallet_do_not_overspend_it_together():
    store = MemoryStore()
    steps = [step(f"s{number}") for number in range(12)]
    results = await asyncio.gather(*[team(*members()).run(request(*steps), parent=wallet(store)) for _ in range(2)])
    spent = sum(result.usage.total for result in results)
    assert 2_000 < spent <= 5_000
    assert (await figures(store))["team"] == (spent, 0, 0)


@virtual
async def test_the_limits_of_the_request_hold_inside_a_roomy_wallet():
    store = MemoryStore()
    steps = [step(f"s{number}") for number in range(20)]
    limits = {"resource_constraint": TeamResourceConstraint(max_total_tokens=3_000)}
    result = await team(*members()).run(request(*steps, **limits), parent=wallet(store, 1_000_000))
    assert 1_000 < result.usage.total <= 3_000
    assert (await figures(store))["team"] == (result.usage.total, 0, 0)


@virtual
async def test_a_team_can_share_a_budget_in_memory_with_other_runs():
    budget = Budget(Limits(max_tokens=4_000))
    steps = [step(f"s{number}") for number in range(20)]
    result = await team(*members()).run(request(*steps), parent=budget)
    assert 1_000 < result.usage.total <= 4_000
    assert budget.meter.tokens == result.usage.total


@pytest.mark.parametrize("wrong", ["customer:42", 5, Limits(max_tokens=5)])
@virtual
async def test_what_is_no_budget_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="takes a Budget"):
        await team(*members()).run(request(step("a")), parent=wrong)
    with pytest.raises(ConfigurationError, match="takes a Budget or None"):
        await team(*members()).resume("request_1", parent=wrong)


@virtual
async def test_a_wallet_with_a_money_limit_needs_the_prices_of_all_members():
    budget = Budget(Limits(max_cost="5"), name="c", store=MemoryStore())
    with pytest.raises(ConfigurationError, match="price"):
        await team(*members()).run(request(step("a")), parent=budget)


def test_g13_what_a_dead_team_held_is_corrected_when_it_goes_on(tmp_path):
    path = tmp_path / "s.db"
    steps = [step("a"), step("b", "a"), step("c", "b")]

    def dies(request):
        if "Your step (c)" in request.messages[0].text:
            os._exit(7)
        return say("done")

    async def begin():
        store = SqliteStore(path)
        crew = agent(dies, name="m", max_output_tokens=600)
        await team(crew, store=store).run(request(*steps, request_id="r"), parent=wallet(store))

    child = os.fork()
    if not child:
        try:
            asyncio.run(begin())
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    async def go_on():
        store = SqliteStore(path)
        before = await figures(store)
        await sweep(store)
        written_off = (await figures(store))["team"]
        crew = agent(say("done"), name="m", max_output_tokens=600)
        result = await team(crew, store=store).resume("r", parent=wallet(store))
        after = await figures(store)
        await store.close()
        return before["team"], written_off, result, after["team"]

    before, written_off, result, after = asyncio.run(go_on())
    assert before[1] > 0
    assert written_off == (before[0] + before[1], 0, 0)
    assert result.status is TeamStatus.COMPLETED
    assert after[1:] == (0, 0)
    assert result.usage.total <= after[0] < written_off[0] + result.usage.total
