"""The contract of a `WalletStore`, clause by clause."""

from __future__ import annotations

import asyncio
from typing import Protocol

from glidepath._wire import replace
from glidepath.sessions import this_owner
from glidepath.spi import Grant, Hold, Wallet, WalletDraw, WalletStore, WalletTerms, is_implementing
from glidepath.testing.conformance.contract import StoreContract, assert_refused, with_lease

TEAM = WalletTerms(name="team", max_tokens=1_000, max_money=10_000)
USER = WalletTerms(name="user \u00e9'\"%", per="month", parent="team", max_tokens=400)
_NOBODY = 2**22 + 1  # a process id that no Linux or macOS gives out


def _run_of(key: str, *line: WalletTerms, leg: int = 1, owner: str | None = None) -> Hold:
    return Hold(key=key, leg=leg, owner=owner or this_owner(), line=line or (TEAM,), session_id=None)


def _make_draw(
    tokens: int, *, least: int | None = None, spent: int = 0, landing: int = 0, flight: int = 0
) -> WalletDraw:
    return WalletDraw(
        spent_tokens=spent,
        landing_tokens=landing,
        flight_tokens=flight,
        asked_tokens=tokens,
        least_tokens=tokens if least is None else least,
    )


async def _figures(store: WalletStore, name: str = "team") -> tuple[int, int]:
    """Tokens that are used and held."""
    (wallet,) = await store.wallets(name)
    return wallet.tokens, wallet.held_tokens


class ClosingWalletStore(WalletStore, Protocol):
    """A store with wallets, as a user closes it."""

    async def close(self) -> None:
        """Close the store."""


class WalletStoreContract(StoreContract[ClosingWalletStore]):
    """Subclass this and provide `make_store`: an empty store, with the lease time it is asked for.

    `again(store)` is another store object on the same data, as a second process would have it. Every store that keeps
    wallets is closed by its `close()`.
    """

    # --- holds and settlements ----------------------------------------------------------------------------------

    async def test_wallet_1_what_is_granted_is_held_until_it_is_settled(self) -> None:
        """WALLET-1: a grant is held, a settlement marks what was spent as used, and the rest is free again."""
        assert is_implementing(self.here, WalletStore), f"{type(self.here).__name__} has no wallets"
        hold = _run_of("a")
        grant = await self.here.draw(hold, _make_draw(300))
        assert (grant.verdict, grant.tokens) == ("granted", 300)
        assert await _figures(self.there) == (0, 300)
        assert await self.here.settle(hold, 120, 7)
        (wallet,) = await self.there.wallets("team")
        assert (wallet.tokens, wallet.money, wallet.held_tokens, wallet.holds) == (120, 7, 0, 0)
        assert not await self.here.settle(hold, 120, 7)
        assert await _figures(self.there) == (120, 0)

    async def test_wallet_2_every_wallet_of_a_line_is_charged_or_none(self) -> None:
        """WALLET-2: a draw fits in every wallet of its line, or changes none; a refusal names the tight one."""
        first = _run_of("a", TEAM, USER)
        assert (await self.here.draw(first, _make_draw(250))).verdict == "granted"
        assert await _figures(self.there) == await _figures(self.there, USER.name) == (0, 250)
        assert await self.here.settle(first, 250, 0)
        second = _run_of("b", TEAM, USER)
        grant = await self.here.draw(second, _make_draw(200))
        assert (grant.verdict, grant.tight, grant.resource) == ("refused", USER.name, "tokens")
        assert (grant.most, grant.used, grant.tokens) == (400, 250, 0)
        assert await _figures(self.there) == await _figures(self.there, USER.name) == (250, 0)

    async def test_wallet_3_what_is_in_flight_elsewhere_is_waited_for(self) -> None:
        """WALLET-3: a draw that would fit with nothing in flight waits; one that never could is refused at once."""
        first, second = _run_of("a"), _run_of("b")
        await self.here.draw(first, _make_draw(800))
        assert (await self.there.draw(second, _make_draw(300))).verdict == "wait"
        assert (await self.there.draw(second, _make_draw(1_001))).verdict == "refused"
        await self.here.settle(first, 100, 0)
        assert (await self.there.draw(second, _make_draw(300))).verdict == "granted"

    async def test_wallet_4_a_smaller_call_is_granted_when_the_whole_one_never_fits(self) -> None:
        """WALLET-4: when what is asked can never fit, the draw grants what there is, down to `least`."""
        hold = _run_of("a")
        grant = await self.here.draw(hold, _make_draw(5_000, least=200))
        assert (grant.verdict, grant.tokens, grant.ahead_tokens) == ("granted", 1_000, 0)
        await self.here.settle(hold, 900, 0)
        hold = _run_of("b")
        assert (await self.here.draw(hold, _make_draw(5_000, least=101))).verdict == "refused"

    async def test_wallet_5_nobody_waits_for_a_landing(self) -> None:
        """WALLET-5: what a run keeps for its landing counts as gone: others are refused, and do not wait for it."""
        first, second = _run_of("a"), _run_of("b")
        await self.here.draw(first, _make_draw(700))
        assert (await self.here.draw(first, _make_draw(100, landing=700))).verdict == "granted"
        assert (await self.there.draw(second, _make_draw(301))).verdict == "refused"
        assert (await self.there.draw(second, _make_draw(300))).verdict == "wait"

    async def test_wallet_6_a_draw_that_asks_for_nothing_only_gives_back(self) -> None:
        """WALLET-6: a draw that asks for nothing counts what was spent, gives the surplus back, and never takes."""
        hold = _run_of("a")
        await self.here.draw(hold, _make_draw(500))
        grant = await self.here.draw(hold, _make_draw(0, spent=50, landing=100, flight=20))
        assert (grant.verdict, grant.tokens) == ("granted", 170)
        assert await _figures(self.there) == (50, 120)
        assert (await self.here.draw(hold, _make_draw(0, spent=50, landing=400))).tokens == 170
        assert (await self.here.draw(_run_of("nobody"), _make_draw(0, flight=10))).verdict == "fenced"
        assert await _figures(self.there) == (50, 120)

    async def test_wallet_7_many_at_once_never_hold_too_much(self) -> None:
        """WALLET-7: however many draw at once, through any store object, used and held stay within the limit."""
        holds = [_run_of(f"run {number}") for number in range(24)]
        stores = [(self.here, self.there)[number % 2] for number in range(24)]
        drawn = await asyncio.gather(
            *[one.draw(hold, _make_draw(100)) for one, hold in zip(stores, holds, strict=True)]
        )
        granted = [grant.verdict for grant in drawn].count("granted")
        assert granted == 10
        assert await _figures(self.here) == (0, 1_000)
        await asyncio.gather(*[one.settle(hold, 0, 0) for one, hold in zip(stores, holds, strict=True)])
        assert await _figures(self.here) == (0, 0)

    # --- overdue holds ------------------------------------------------------------------------------------------

    @with_lease(0.8)
    async def test_wallet_8_a_silent_run_is_overdue_and_a_draw_renews_it(self) -> None:
        """WALLET-8: a hold is overdue when its lease runs out; a draw renews it; only overdue holds are written off."""
        hold = _run_of("a")
        await self.here.draw(hold, _make_draw(100))
        for _ in range(3):
            await asyncio.sleep(0.4)
            assert list(await self.there.overdue()) == []
            await self.here.draw(hold, _make_draw(0, flight=100))
        await asyncio.sleep(0.9)
        (late,) = await self.there.overdue()
        assert (late.key, late.leg, late.dead) == ("a", 1, False)
        await self.here.draw(hold, _make_draw(0, flight=100))
        assert not await self.there.write_off(late, None, None)
        assert await _figures(self.there) == (0, 100)

    async def test_wallet_9_the_dead_are_overdue_at_once(self) -> None:
        """WALLET-9: a hold of a dead process on this host is overdue before its lease has run out."""
        host, _, birth, name = this_owner().split("|")
        await self.here.draw(_run_of("a", owner="|".join((host, str(_NOBODY), birth, name))), _make_draw(100))
        (late,) = await self.there.overdue()
        assert late.dead
        assert await self.there.write_off(late, None, None)
        assert list(await self.there.overdue()) == []

    @with_lease(0.1)
    async def test_wallet_10_what_the_dead_held_is_used_as_far_as_nobody_knows_better(self) -> None:
        """WALLET-10: a write-off settles at the given figures; without any, everything held counts as used."""
        known, unknown = _run_of("known"), _run_of("unknown")
        await self.here.draw(known, _make_draw(300))
        await self.here.draw(unknown, _make_draw(200))
        await asyncio.sleep(0.2)
        for late in await self.there.overdue():
            figures = (120, 0) if late.key == "known" else (None, None)
            assert await self.there.write_off(late, *figures)
        assert await _figures(self.here) == (320, 0)
        assert await self.here.settle(unknown, 50, 0)  # it was only slow
        assert await _figures(self.here) == (170, 0)

    async def test_wallet_11_the_latest_leg_owns_the_hold(self) -> None:
        """WALLET-11: a later leg continues with what the run holds, and an earlier one is fenced."""
        first, second = _run_of("a"), _run_of("a", leg=2)
        await self.here.draw(first, _make_draw(300))
        grant = await self.there.draw(second, _make_draw(100, spent=40))
        assert (grant.verdict, grant.tokens) == ("granted", 140)
        assert (await self.here.draw(first, _make_draw(10))).verdict == "fenced"
        assert not await self.here.settle(first, 300, 0)
        assert await _figures(self.there) == (40, 100)
        await self.there.settle(second, 60, 0)
        assert await _figures(self.there) == (60, 0)

    # --- disputed bills -----------------------------------------------------------------------------------------

    @with_lease(0.1)
    async def test_wallet_16_what_no_call_explains_is_held_as_a_bill(self) -> None:
        """WALLET-16: what a run disputes is not used, and out of reach: by a draw, a settlement and a write-off."""
        first, second = _run_of("a", TEAM, USER), _run_of("b", TEAM, USER)
        await self.here.draw(first, _make_draw(100))
        for _ in range(2):  # what is said again counts once
            await self.here.draw(first, replace(_make_draw(0, spent=160), disputed_tokens=90))
        await self.here.draw(second, _make_draw(20))
        assert await self.here.settle(first, 250, 50, disputed=(120, 30))
        for name in ("team", USER.name):
            (wallet,) = await self.there.wallets(name)
            assert (wallet.tokens, wallet.disputed_tokens, wallet.disputed_money) == (130, 120, 30)
        await asyncio.sleep(0.2)
        (late,) = await self.there.overdue()
        assert await self.there.write_off(late, 60, 0, disputed=(50, 0))
        (wallet,) = await self.there.wallets(USER.name)
        assert (wallet.tokens, wallet.disputed_tokens, wallet.left_tokens) == (140, 170, 90)
        grant = await self.here.draw(_run_of("c", TEAM, USER), _make_draw(91))
        assert (grant.verdict, grant.used, grant.disputed) == ("refused", 310, 170)
        assert [bill.tokens for bill in await self.there.bills(USER.name)] == [120, 50]

    async def test_wallet_17_a_bill_is_accepted_or_rejected_once(self) -> None:
        """WALLET-17: an accepted bill is used, a rejected one free, in each wallet of its line; what follows is new."""
        for name in ("a", "b"):
            await self.here.draw(_run_of(name, TEAM, USER), _make_draw(10))
            await self.here.draw(_run_of(name, TEAM, USER), replace(_make_draw(0, spent=100), disputed_tokens=80))
        bills = {bill.run: bill for bill in await self.there.bills()}
        assert bills["a"].wallets == ("team", USER.name)
        assert list(await self.there.bills("nobody")) == []
        await assert_refused("busy", self.there.remove_wallet(USER.name))
        assert await self.there.decide_bill(bills["a"].id, accepted=True)
        assert await self.there.decide_bill(bills["b"].id, accepted=False)
        for bill, accepted in ((bills["a"].id, False), (bills["b"].id, True), ("nobody", True)):
            assert not await self.here.decide_bill(bill, accepted=accepted)
        for name in ("team", USER.name):
            (wallet,) = await self.here.wallets(name)
            assert (wallet.tokens, wallet.disputed_tokens) == (120, 0)
        await self.here.settle(_run_of("b", TEAM, USER), 130, 0, disputed=(95, 0))
        assert [(bill.run, bill.tokens) for bill in await self.there.bills()] == [("b", 15)]
        assert await _figures(self.there) == (135, 0)

    # --- limits -------------------------------------------------------------------------------------------------

    async def test_wallet_12_the_last_program_sets_the_limits_and_an_operator_outranks_it(self) -> None:
        """WALLET-12: each draw brings its program's limits; an operator's outrank them until they are withdrawn."""
        hold = _run_of("a", WalletTerms(name="w", max_tokens=100))
        assert (await self.here.draw(hold, _make_draw(200))).verdict == "refused"
        hold = _run_of("a", WalletTerms(name="w", max_tokens=250))
        assert (await self.here.draw(hold, _make_draw(200))).verdict == "granted"
        await self.there.set_wallet("w", max_tokens=150, max_money=None)
        assert (await self.here.draw(hold, _make_draw(200))).verdict == "refused"
        (wallet,) = await self.here.wallets("w")
        assert (wallet.max_tokens, wallet.overruled) == (150, True)
        await assert_refused("conflict", self.there.set_wallet("w", max_tokens=None, max_money=5))
        await self.there.set_wallet("w", max_tokens=None, max_money=None)
        assert (await self.here.draw(hold, _make_draw(200))).verdict == "granted"

    async def test_wallet_13_a_wallet_keeps_its_period_and_its_parent(self) -> None:
        """WALLET-13: a draw that gives a wallet another period or parent raises kind conflict and changes nothing."""
        hold = _run_of("a", TEAM, USER)
        await self.here.draw(hold, _make_draw(100))
        for terms in (
            WalletTerms(name=USER.name, per="day", parent="team", max_tokens=1),
            WalletTerms(name=USER.name, per="month", max_tokens=1),
        ):
            await assert_refused("conflict", self.there.draw(_run_of("b", terms), _make_draw(1)))
        (wallet,) = await self.there.wallets(USER.name)
        assert (wallet.max_tokens, wallet.held_tokens) == (400, 100)

    async def test_wallet_14_a_closed_wallet_gives_nothing(self) -> None:
        """WALLET-14: a closed wallet answers `closed` and names itself; what is held stays held; it can be opened."""
        hold = _run_of("a", TEAM, USER)
        await self.here.draw(hold, _make_draw(100))
        await self.there.close_wallet("team")
        grant: Grant = await self.here.draw(hold, _make_draw(50, flight=100))
        assert (grant.verdict, grant.tight) == ("closed", "team")
        assert await _figures(self.there) == (0, 100)
        await self.there.close_wallet("team", closed=False)
        assert (await self.here.draw(hold, _make_draw(50, flight=100))).verdict == "granted"

    async def test_wallet_15_wallets_are_listed_and_removed(self) -> None:
        """WALLET-15: wallets are listed by name; one that is in use or a parent stays; a missing one is `missing`."""
        await self.here.open_wallets((TEAM, USER))
        assert [wallet.left_tokens for wallet in await self.there.wallets()] == [1_000, 400]
        hold = _run_of("a", TEAM, USER)
        await self.here.draw(hold, _make_draw(100))
        found: list[Wallet] = list(await self.there.wallets())
        assert [wallet.name for wallet in found] == ["team", USER.name]
        assert list(await self.there.wallets("nobody")) == []
        for name, kind in ((USER.name, "busy"), ("nobody", "missing")):
            await assert_refused(kind, self.there.remove_wallet(name))
        await self.here.settle(hold, 0, 0)
        await assert_refused("busy", self.there.remove_wallet("team"))
        for name in (USER.name, "team"):
            await self.there.remove_wallet(name)
        assert list(await self.here.wallets()) == []
        for call in (self.here.close_wallet("team"), self.here.set_wallet("team", max_tokens=1, max_money=None)):
            await assert_refused("missing", call)
