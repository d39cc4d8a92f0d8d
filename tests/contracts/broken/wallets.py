"""Stores whose wallets break one clause each: the one in memory, with a defect."""

import asyncio

from tests.contracts.examine import breaks

from glidepath.conformance import WalletStoreContract
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore, wallet_rules as books
from glidepath.spi import Grant
from glidepath.testing import VirtualClock
from glidepath.values import replace


def now():
    return asyncio.get_running_loop().time() + 1_800_000_000.0


class Trial(WalletStoreContract, MemoryStore):
    """The contract and the store in one, in virtual time."""

    def __init__(self, *, lease=10.0):
        MemoryStore.__init__(self, lease=lease, clock=now)

    def make_store(self, *, lease=10.0):
        return type(self)(lease=lease)

    def run(self, main):
        return VirtualClock().run(main)


@breaks("WALLET-1")
class Forgetful(Trial):
    """Does not count money when a run is over."""

    async def settle(self, hold, tokens, money, **more):
        return await super().settle(hold, tokens, 0, **more)


@breaks("WALLET-2", "WALLET-14")
class OnlyTheLast(Trial):
    """Draws from the last wallet of a line, and not from those above it."""

    async def draw(self, hold, want):
        return await super().draw(replace(hold, line=hold.line[-1:]), want)


@breaks("WALLET-3", "WALLET-5")
class Impatient(Trial):
    """Refuses where it could wait."""

    async def draw(self, hold, want):
        grant = await super().draw(hold, want)
        return replace(grant, verdict="refused") if grant.verdict == "wait" else grant


@breaks("WALLET-4")
class AllOrNothing(Trial):
    """Never grants a smaller call than the one that was asked for."""

    async def draw(self, hold, want):
        return await super().draw(hold, replace(want, least_tokens=want.asked_tokens))


@breaks("WALLET-5")
class LandingsComeBack(Trial):
    """Takes what runs keep for their landings for something that comes back soon."""

    async def draw(self, hold, want):
        flight = want.flight_tokens + want.landing_tokens
        return await super().draw(hold, replace(want, landing_tokens=0, flight_tokens=flight))


@breaks("WALLET-6")
class KeepsTheSurplus(Trial):
    """Gives nothing back before a run is over."""

    async def draw(self, hold, want):
        if want.asked_tokens == 0 and hold.key in self._book.holds:
            held = self._book.holds[hold.key]
            want = replace(want, flight_tokens=max(want.flight_tokens, held.grant[0] - want.spent_tokens))
        return await super().draw(hold, want)


@breaks("WALLET-7")
class Racy(Trial):
    """Looks, lets others look, and then takes."""

    async def draw(self, hold, want):
        wallets = await self.wallets("team")
        fits = not wallets or wallets[0].tokens + wallets[0].held_tokens + want.asked_tokens <= 1_000
        if not fits or hold.line[-1].name != "team" or want.least_tokens < want.asked_tokens or hold.leg > 1:
            return await super().draw(hold, want)
        await asyncio.sleep(0)
        most = tuple(replace(one, max_tokens=10**6) for one in hold.line)
        grant = await super().draw(replace(hold, line=most), want)
        self._book.wallets["team"].most = (1_000, 10_000)
        return grant


@breaks("WALLET-8")
class NeverRenews(Trial):
    """Lets a lease run from the first draw on."""

    async def draw(self, hold, want):
        before = self._book.holds.get(hold.key)
        expires = None if before is None else before.expires
        grant = await super().draw(hold, want)
        if expires is not None:
            self._book.holds[hold.key].expires = expires
        return grant


@breaks("WALLET-9")
class WaitsForTheDead(Trial):
    """Does not look whether an owner is alive."""

    async def overdue(self):
        return [late for late in await super().overdue() if not late.dead]


@breaks("WALLET-10")
class Forgives(Trial):
    """Gives back what the dead held when nobody knows what they spent."""

    async def write_off(self, hold, tokens, money, **more):
        if tokens is None:
            row = self._book.holds[hold.key]
            tokens, money = row.base[0] + row.spent[0], row.base[1] + row.spent[1]
        return await super().write_off(hold, tokens, money, **more)


@breaks("WALLET-11")
class Unfenced(Trial):
    """Lets an earlier leg go on."""

    async def draw(self, hold, want):
        held = self._book.holds.get(hold.key)
        return await super().draw(hold if held is None else replace(hold, leg=max(hold.leg, held.leg)), want)


@breaks("WALLET-12")
class FirstComeFirstServed(Trial):
    """Keeps the limits of the program that came first."""

    async def draw(self, hold, want):
        known = self._book.wallets
        line = tuple(
            one
            if one.name not in known or known[one.name].per != one.per or known[one.name].parent != one.parent
            else replace(one, max_tokens=known[one.name].most[0], max_money=known[one.name].most[1])
            for one in hold.line
        )
        return await super().draw(replace(hold, line=line), want)


@breaks("WALLET-13")
class AnyPeriod(Trial):
    """Takes a wallet for the same whatever its period and its parent."""

    async def draw(self, hold, want):
        try:
            return await super().draw(hold, want)
        except StoreError:
            return Grant(verdict="refused")


@breaks("WALLET-14")
class NeverCloses(Trial):
    """Forgets that a wallet was closed."""

    async def close_wallet(self, name, *, closed=True):
        await super().close_wallet(name, closed=False)


@breaks("WALLET-15")
class RemovesAnything(Trial):
    """Removes a wallet that runs hold a part of."""

    async def remove_wallet(self, name):
        if name in self._book.wallets:
            del self._book.wallets[name]
            self._book.periods = {place: row for place, row in self._book.periods.items() if place[0] != name}
            return
        books.check_removable(self._book, name, parent=False)


@breaks("WALLET-16", "WALLET-17")
class BelievesEveryBill(Trial):
    """Counts what no call explains as used for good."""

    async def draw(self, hold, want):
        return await super().draw(hold, replace(want, disputed_tokens=0, disputed_money=0))

    async def settle(self, hold, tokens, money, **_):
        return await super().settle(hold, tokens, money)


@breaks("WALLET-16")
class LosesTheBillsOfTheDead(Trial):
    """Forgets what a dead run disputed."""

    async def write_off(self, hold, tokens, money, **_):
        return await super().write_off(hold, tokens, money)


@breaks("WALLET-17")
class OnlyInTheLast(Trial):
    """Decides on a bill in the last wallet of its line, and leaves it in those above."""

    async def decide_bill(self, bill_id, *, accepted):
        if bill_id in self._book.bills:
            bill = self._book.bills[bill_id]
            bill.line = bill.line[-1:]
        return await super().decide_bill(bill_id, accepted=accepted)
