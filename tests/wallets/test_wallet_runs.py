"""Runs on wallets: what they hold, how they land, and what happens when something fails."""

import asyncio
import threading
from decimal import Decimal

import pytest

from glidepath import Agent, Budget, Limits, tool
from glidepath.agent import PATIENCE, sweep
from glidepath.errors import StoreError
from glidepath.events import TurnEnded
from glidepath.outcome import AgentState, LoopOutcome
from glidepath.run import CancelToken, pico
from glidepath.sessions import MemoryStore, SqliteStore, this_owner
from glidepath.spi import Hold, WalletDraw, WalletTerms
from glidepath.testing import ScriptedModel, VirtualClock, call, say

PRICES = {"scripted": ("3", "15")}


@tool
async def read(page: int) -> str:
    """Read a page."""
    return f"page {page} says nothing new"


def reader(request):
    """Never stops by itself."""
    return call("read", page=len(request.messages)) if request.tools else say("That is what I have.")


def make(model=None, **options):
    options.setdefault("limits", Limits(max_iterations=200))
    model = model or ScriptedModel(max_output_tokens=200).forever(reader)
    return Agent(model=model, tools=[read], prices=PRICES, **options)


def epoch():
    return asyncio.get_running_loop().time() + 1_800_000_000.0


def virtual(main):
    return VirtualClock().run(main)


def tokens_of(results):
    return sum(result.usage.total for result in results)


def test_g4_many_runs_on_one_wallet_never_spend_more_than_it_has():
    async def main():
        store = MemoryStore(clock=epoch)
        budget = Budget(Limits(max_tokens=30_000), name="team", store=store)
        results = await asyncio.gather(*[make().run("Read.", parent=budget) for _ in range(12)])
        wallet = await budget.account()
        assert wallet.tokens == tokens_of(results) <= 30_000
        assert wallet.tokens > 15_000
        assert (wallet.held_tokens, wallet.holds) == (0, 0)
        assert {result.text for result in results if result.iterations} == {"That is what I have."}

    virtual(main())


def test_g5_a_run_whose_wallet_is_nearly_empty_lands_with_an_answer_and_names_it():
    async def main():
        budget = Budget(Limits(max_tokens=6_000), name="customer:42", store=MemoryStore(clock=epoch), per="month")
        result = await make().run("Read.", parent=budget)
        assert (result.state, result.outcome) == (AgentState.BUDGET_EXCEEDED, LoopOutcome.WRAPPED_UP)
        assert result.text == "That is what I have."
        assert result.cause.source == "wallet customer:42"
        assert "wallet customer:42 (2027-01)" in result.cause.reason
        assert (await budget.account()).tokens == result.usage.total

    virtual(main())


def test_g5_the_model_is_told_in_time_that_a_wallet_is_nearly_empty():
    told = []

    def listens(request):
        told.extend(m.text for m in request.messages if m.role == "user" and "budget" in m.text and m.text not in told)
        return reader(request)

    async def main():
        budget = Budget(Limits(max_cost="0.20"), name="c", store=MemoryStore(clock=epoch))
        model = ScriptedModel(max_output_tokens=100).forever(listens)
        result = await make(model).run("Read.", parent=budget)
        assert result.outcome is LoopOutcome.WRAPPED_UP
        assert (result.cause.source, result.cause.reason) == ("wallet c", "wallet c is nearly used up")
        assert len(told) == 1
        assert (await budget.account()).cost <= Decimal("0.20")

    virtual(main())


def test_a_run_that_its_wallet_cannot_pay_is_not_started():
    async def main():
        store = MemoryStore(clock=epoch)
        budget = Budget(Limits(max_tokens=400), name="poor", store=store)
        model = ScriptedModel([])
        result = await make(model).run("Read.", parent=budget)
        assert (result.outcome, result.iterations) == (LoopOutcome.CUT_OFF, 0)
        assert result.cause.source == "wallet poor"
        assert result.cause.metrics == {"wallet": "poor", "limit": 400, "used": 0}
        assert model.calls == 0
        assert (await budget.account()).holds == 0

    virtual(main())


def test_a_tight_parent_is_what_the_cause_names():
    async def main():
        store = MemoryStore(clock=epoch)
        company = Budget(Limits(max_tokens=400), name="company", store=store)
        team = Budget(Limits(max_tokens=50_000), name="team", store=store, per="day", parent=company)
        result = await make().run("Read.", parent=team)
        assert result.cause.source == "wallet company"
        assert [wallet.name for wallet in await store.wallets()] == ["company", "team"]
        assert (await team.account()).parent == "company"

    virtual(main())


@pytest.mark.parametrize(
    ("per", "seconds", "periods"),
    [
        ("5h", 5 * 3600, ["2027-01-15T08:00", "2027-01-15T13:00"]),
        ("day", 16 * 3600, ["2027-01-15", "2027-01-16"]),
        ("week", 2 * 86_400 + 16 * 3600, ["2027-W02", "2027-W03"]),
        ("month", 16 * 86_400 + 16 * 3600, ["2027-01", "2027-02"]),
    ],
)
def test_a_wallet_starts_again_after_its_period_and_not_before(per, seconds, periods):
    """The clock begins at 2027-01-15 08:00, a Friday and the beginning of five hours."""

    async def main():
        now = [1_800_000_000.0]
        budget = Budget(Limits(max_tokens=6_000), name="c", store=MemoryStore(clock=lambda: now[0]), per=per)
        used = await make().run("Read.", parent=budget)
        assert used.text == "That is what I have."
        now[0] += seconds - 1
        assert (await make().run("Read.", parent=budget)).outcome is not LoopOutcome.DONE
        before = await budget.account()
        assert (before.period, before.tokens > 5_000) == (periods[0], True)
        now[0] += 1
        again = await make().run("Read.", parent=budget)
        account = await budget.account()
        assert (account.period, account.tokens) == (periods[1], again.usage.total)
        assert list(account.history) == periods

    virtual(main())


def test_children_draw_from_the_wallet_of_their_parent():
    async def main():
        child = make(ScriptedModel([say("42")]).forever(say("42")))
        model = ScriptedModel([call("ask", task="?"), say("done")])
        above = Agent(model=model, tools=[child.as_tool("ask", "Ask.")], limits=Limits(max_iterations=9), prices=PRICES)
        budget = Budget(Limits(max_tokens=50_000), name="family", store=MemoryStore(clock=epoch))
        result = await above.run("Go.", parent=budget)
        assert result.outcome is LoopOutcome.DONE
        assert result.children[0].usage.total > 0
        assert (await budget.account()).tokens == result.usage.total

    virtual(main())


def test_a_closed_wallet_brings_its_runs_down_with_an_answer():
    async def main():
        store = MemoryStore(clock=epoch)
        budget = Budget(Limits(max_tokens=900_000), name="c", store=store)

        @tool
        async def shut() -> str:
            """Close the wallet."""
            await store.close_wallet("c")
            return "closed"

        def model(request):
            return call("shut") if request.tools else say("Landed.")

        agent = Agent(model=ScriptedModel(max_output_tokens=200).forever(model), tools=[shut], unbounded=True)
        result = await agent.run("Go.", parent=budget)
        assert (result.outcome, result.text) == (LoopOutcome.WRAPPED_UP, "Landed.")
        assert result.cause.reason == "wallet c is closed"
        assert (await agent.run("Go.", parent=budget)).outcome is LoopOutcome.CUT_OFF

    virtual(main())


def test_a_run_that_waits_for_what_others_hold_gives_up_in_bounded_time():
    async def main():
        store = MemoryStore(clock=epoch, lease=10_000.0)
        budget = Budget(Limits(max_tokens=4_000), name="c", store=store)
        begun = asyncio.Event()

        async def slow(request):
            begun.set()
            await asyncio.sleep(200)
            return say("late")

        hog = asyncio.ensure_future(make(ScriptedModel(max_output_tokens=1_000).forever(slow)).run("a", parent=budget))
        await begun.wait()
        before = asyncio.get_running_loop().time()
        result = await make().run("b", parent=budget)
        assert (result.outcome, result.text) == (LoopOutcome.WRAPPED_UP, "That is what I have.")
        assert "waited 120 s for what other runs hold of wallet c" in result.cause.reason
        assert PATIENCE <= asyncio.get_running_loop().time() - before < PATIENCE + 5
        await hog

    virtual(main())


def test_a_run_that_waits_can_be_cancelled():
    async def main():
        store = MemoryStore(clock=epoch, lease=10_000.0)
        budget = Budget(Limits(max_tokens=4_000), name="c", store=store)
        begun, token = asyncio.Event(), CancelToken()

        async def slow(request):
            begun.set()
            await asyncio.sleep(100)
            return say("late")

        hog = asyncio.ensure_future(make(ScriptedModel(max_output_tokens=1_000).forever(slow)).run("a", parent=budget))
        await begun.wait()
        asyncio.get_running_loop().call_later(5, token.cancel, "enough")
        before = asyncio.get_running_loop().time()
        result = await make().run("b", parent=budget, cancel=token)
        assert result.outcome is LoopOutcome.CANCELLED
        assert asyncio.get_running_loop().time() - before < 6
        await hog
        assert (await budget.account()).holds == 0

    virtual(main())


# --- a store that fails -------------------------------------------------------------------------------------------


class Failing(MemoryStore):
    """Fails from the n-th call of one method on."""

    def __init__(self, method, after=0, silent=False):
        super().__init__(clock=epoch)
        self.method, self.left, self.silent = method, after, silent

    async def _fail(self, method):
        if method == self.method:
            self.left -= 1
            if self.left < 0:
                if self.silent:
                    await asyncio.sleep(10**6)
                raise StoreError("the disk is gone", kind="unavailable")

    async def draw(self, hold, want):
        await self._fail("draw")
        return await super().draw(hold, want)

    async def settle(self, hold, tokens, money):
        await self._fail("settle")
        return await super().settle(hold, tokens, money)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_g9_a_wallet_that_cannot_be_reached_pays_for_nothing(after):
    async def main():
        model = ScriptedModel(max_output_tokens=200).forever(reader)
        store = Failing("draw", after)
        budget = Budget(Limits(max_tokens=50_000), name="c", store=store)
        result = await make(model).run("Read.", parent=budget)
        assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
        assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "unavailable")
        assert model.calls <= 3 * after  # a call may use what the ones before it have left
        used = {} if not after else (await store.wallets("c"))[0].history
        assert sum(tokens for tokens, _ in used.values()) == result.usage.total

    virtual(main())


def test_g9_a_wallet_that_is_silent_ends_the_run_in_bounded_time():
    async def main():
        budget = Budget(Limits(max_tokens=50_000), name="c", store=Failing("draw", silent=True))
        before = asyncio.get_running_loop().time()
        result = await make().run("Read.", parent=budget)
        assert result.outcome is LoopOutcome.FAILED
        assert asyncio.get_running_loop().time() - before < 60

    virtual(main())


def test_g3_an_answer_stands_when_only_its_settlement_fails(caplog):
    async def main():
        store = Failing("settle")
        budget = Budget(Limits(max_tokens=50_000), name="c", store=store)
        result = await make(ScriptedModel([say("Paid.")])).run("Go.", parent=budget)
        assert (result.outcome, result.text) == (LoopOutcome.DONE, "Paid.")
        assert "could not be settled" in caplog.text
        await asyncio.sleep(30)
        wallet = await budget.account()  # without a journal nobody knows better than: all that it held
        assert (wallet.holds, wallet.held_tokens) == (0, 0)
        assert wallet.tokens >= result.usage.total

    virtual(main())


def test_a_wallet_whose_period_was_changed_is_a_typed_result():
    async def main():
        store = MemoryStore(clock=epoch)
        await make(ScriptedModel([say("1")])).run("Go.", parent=Budget(Limits(), name="c", store=store, per="day"))
        result = await make().run("Go.", parent=Budget(Limits(), name="c", store=store, per="month"))
        assert (result.outcome, result.cause.metrics["kind"]) == (LoopOutcome.FAILED, "conflict")
        assert "wallets remove c" in result.cause.reason

    virtual(main())


# --- periods, limits, legs ----------------------------------------------------------------------------------------


def test_a_run_that_crosses_midnight_settles_where_it_reserved():
    async def main():
        now = [1_800_000_000.0 - 1_800_000_000.0 % 86_400 + 86_390]  # ten seconds before midnight
        store = MemoryStore(clock=lambda: now[0])
        budget = Budget(Limits(max_tokens=20_000), name="c", store=store, per="day")

        def late(request):
            if len(request.messages) == 1:
                now[0] += 60  # the reply comes on the next day
                return call("read", page=1)
            return say("done")

        result = await make(ScriptedModel().forever(late)).run("Go.", parent=budget)
        (wallet,) = await store.wallets("c")
        first, second = wallet.history.values()
        assert first[0] > 0
        assert second[0] > 0
        assert first[0] + second[0] == result.usage.total
        assert wallet.tokens == second[0]

    virtual(main())


def test_a_new_day_has_the_whole_limit_again():
    async def main():
        now = [1_800_000_000.0]
        store = MemoryStore(clock=lambda: now[0])
        budget = Budget(Limits(max_tokens=6_000), name="c", store=store, per="day")
        while (await make().run("Read.", parent=budget)).iterations:
            pass
        now[0] += 86_400
        assert (await make().run("Read.", parent=budget)).iterations > 0

    virtual(main())


def test_a_landing_that_is_reserved_yesterday_is_not_lost_when_today_is_full():
    async def main():
        now = [1_800_000_000.0 - 1_800_000_000.0 % 86_400 + 86_390]
        store = MemoryStore(clock=lambda: now[0], lease=10**6)
        budget = Budget(Limits(max_tokens=10_000), name="c", store=store, per="day")

        async def crowd(request):
            if len(request.messages) == 1:
                now[0] += 60
                rich = make(ScriptedModel([say("mine " * 1_900)], max_output_tokens=8_000))
                await rich.run("Take it all.", parent=budget)
            return reader(request)

        result = await make(ScriptedModel(max_output_tokens=200).forever(crowd)).run("Go.", parent=budget)
        (wallet,) = await store.wallets("c")
        assert all(used <= 10_000 for used, _ in wallet.history.values())
        assert (result.outcome, result.text) == (LoopOutcome.WRAPPED_UP, "That is what I have.")

    virtual(main())


def test_the_limits_of_the_last_program_hold_and_an_operator_outranks_them():
    async def main():
        store = MemoryStore(clock=epoch)

        async def turns(limit):
            return (
                await make().run("Read.", parent=Budget(Limits(max_tokens=limit), name="c", store=store))
            ).iterations

        assert await turns(6_000) > 1
        while await turns(6_000):  # until it is used up
            pass
        assert await turns(30_000) > 1
        await store.set_wallet("c", max_tokens=10, max_money=None)
        assert await turns(90_000) == 0
        await store.set_wallet("c", max_tokens=None, max_money=None)
        assert await turns(90_000) > 1

    virtual(main())


def test_a_paused_or_limited_run_that_is_resumed_is_charged_once():
    async def main():
        store = MemoryStore(clock=epoch)
        budget = Budget(Limits(max_tokens=90_000), name="c", store=store)
        agent = make(store=store, limits=Limits(max_iterations=3))
        first = await agent.run("Read.", session="s", parent=budget)
        again = await agent.resume("s", limits=Limits(max_iterations=6), parent=budget)
        assert again.usage.total > first.usage.total
        assert (await budget.account()).tokens == again.usage.total

    virtual(main())


def test_a_slow_run_without_a_journal_is_corrected_when_it_is_heard_of_again():
    async def main():
        now = [1_800_000_000.0]
        store = MemoryStore(clock=lambda: now[0])
        budget = Budget(Limits(max_tokens=50_000), name="c", store=store)

        async def slow(request):
            (wallet,) = await store.wallets("c")
            held = wallet.held_tokens
            now[0] += 100  # the process was stopped
            assert await sweep(store) == 1
            (wallet,) = await store.wallets("c")
            assert (wallet.tokens, wallet.held_tokens) == (held, 0)
            return say("Here again.")

        result = await make(ScriptedModel().forever(slow)).run("Go.", parent=budget)
        assert result.outcome is LoopOutcome.DONE
        assert (await budget.account()).tokens == result.usage.total

    virtual(main())


def test_an_unlimited_wallet_only_counts():
    async def main():
        store = MemoryStore(clock=epoch)
        budget = Budget(Limits(), name="c", store=store)
        result = await make(limits=Limits(max_iterations=3)).run("Read.", parent=budget)
        wallet = await budget.account()
        assert (wallet.tokens, wallet.left_tokens, wallet.left_cost) == (result.usage.total, None, None)
        assert wallet.cost == result.cost

    virtual(main())


def test_g17_nothing_of_a_wallet_outlives_its_runs(tmp_path):
    async def main():
        store = SqliteStore(tmp_path / "s.db")
        budget = Budget(Limits(max_tokens=50_000), name="c", store=store)
        agent = make(ScriptedModel().forever(say("ok")))
        results = await asyncio.gather(*[agent.run("Go.", parent=budget) for _ in range(5)])
        assert [thread.name for thread in threading.enumerate() if thread.name == "glidepath-wallets"] == []
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("glidepath")] == []
        assert (await budget.account()).tokens == tokens_of(results)
        await store.close()

    asyncio.run(main())


def test_a_stream_that_is_left_early_settles_its_wallet():
    async def main():
        store = MemoryStore(clock=epoch)
        budget = Budget(Limits(max_tokens=50_000), name="c", store=store)
        async with make().stream("Read.", parent=budget) as stream:
            async for event in stream:
                if isinstance(event, TurnEnded):
                    break
        wallet = await budget.account()
        assert (wallet.holds, wallet.held_tokens) == (0, 0)
        assert wallet.tokens > 0

    virtual(main())


def test_wallets_of_one_line_hold_the_same():
    async def main():
        store = MemoryStore(clock=epoch)
        customer = Budget(Limits(max_cost="5"), name="customer", store=store)
        month = Budget(Limits(max_cost="1"), name="month", store=store, per="month", parent=customer)
        team = Budget(Limits(max_tokens=40_000), name="team", store=store, parent=month)
        result = await make(limits=Limits(max_iterations=4)).run("Read.", parent=team)
        for budget in (customer, month, team):
            wallet = await budget.account()
            assert (wallet.tokens, wallet.money) == (result.usage.total, pico(result.cost, field="cost"))

    virtual(main())


@pytest.mark.parametrize(("mine", "theirs", "verdict"), [(250, 0, "refused"), (0, 250, "wait")])
def test_a_child_that_starts_counts_on_what_others_keep_and_not_on_what_its_own_parent_keeps(mine, theirs, verdict):
    """Its parent waits for it: what that one keeps for its landing never comes back first."""
    store, line = MemoryStore(), (WalletTerms(name="w", max_tokens=1_000),)
    family, other = [Hold(key=key, leg=1, owner=this_owner(), line=line, session_id=None) for key in "ab"]
    start = WalletDraw(
        spent_tokens=350, landing_tokens=mine, around_tokens=mine, asked_tokens=450, least_tokens=450, starting=True
    )

    async def draw():
        await store.draw(family, WalletDraw(landing_tokens=mine, asked_tokens=350, least_tokens=350))
        await store.draw(other, WalletDraw(landing_tokens=theirs, asked_tokens=1, least_tokens=1))
        await store.draw(other, WalletDraw(landing_tokens=theirs))
        return await store.draw(family, start)

    assert asyncio.run(draw()).verdict == verdict
