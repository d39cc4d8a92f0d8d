"""Stores that keep their promises in fair weather, and break one in turbulence: the one in memory, with a defect."""

from tests.contracts.examine import breaks

from glidepath.conformance import TurbulentStoreContract, TurbulentWalletContract
from glidepath.sessions import MemoryStore
from glidepath.values import replace


class Trial(TurbulentStoreContract):
    """The contract of journals with the store in memory."""

    seeds = range(100)
    subject = MemoryStore

    def make_world(self, clock):
        store = self.subject(lease=10.0, clock=clock)
        return lambda _: store


class WalletTrial(TurbulentWalletContract):
    """The contract of wallets with the store in memory."""

    seeds = range(40)
    subject = MemoryStore
    make_world = Trial.make_world


class ForgetfulStore(MemoryStore):
    async def claim(self, session_id, owner, *, create=True):
        lease = await super().claim(session_id, owner, create=create)
        shelf = self._shelves[session_id]
        if len(shelf.commits) > 1 and lease.token % 2:
            shelf.commits.pop()
            shelf.entry = replace(shelf.entry, head=shelf.entry.head - 1)
            return replace(lease, head=lease.head - 1)
        return lease


@breaks("TURB-1")
class Forgetful(Trial):
    """Drops the last commit when the owner changes."""

    subject = ForgetfulStore


class RepeatsStore(MemoryStore):
    def append(self, lease, commit, **options):
        super().append(lease, commit, **options)
        if commit.number % 3 == 0:
            self._shelves[lease.session_id].commits.append(commit)


@breaks("TURB-2")
class Repeats(Trial):
    """Writes some commits twice."""

    subject = RepeatsStore


class UnfencedStore(MemoryStore):
    def append(self, lease, commit, **options):
        shelf = self._shelves.get(lease.session_id)
        if shelf is not None and shelf.entry.token > lease.token:
            lease = replace(lease, token=shelf.entry.token)
        super().append(lease, commit, **options)


@breaks("TURB-3")
class Unfenced(Trial):
    """Takes a commit from anybody who has ever held the session, if it follows the head."""

    subject = UnfencedStore


class HastyStore(MemoryStore):
    async def claim(self, session_id, owner, *, create=True):
        shelf = self._shelves.get(session_id)
        if shelf is not None and shelf.entry.expires < self._clock() + 6.0:
            shelf.entry = replace(shelf.entry, owner=None)
        return await super().claim(session_id, owner, create=create)


@breaks("TURB-4")
class Hasty(Trial):
    """Takes an owner for dead when it was silent for half its lease."""

    subject = HastyStore


class JealousStore(MemoryStore):
    async def beat(self, leases, *, renew):
        signs = await super().beat(leases, renew=renew)
        for lease in leases if renew else ():
            shelf = self._shelves[lease.session_id]
            if shelf.entry.token == lease.token:
                shelf.entry = replace(shelf.entry, expires=self._clock() + 10_000.0)
        return signs


@breaks("TURB-5")
class Jealous(Trial):
    """Renews a lease for hours with every beat."""

    subject = JealousStore


class GenerousStore(MemoryStore):
    async def write_off(self, hold, tokens, money, **more):
        row = self._book.holds.get(hold.key)
        if row is None or row.ended:
            return False
        return await super().write_off(hold, row.base[0] + row.spent[0], row.base[1] + row.spent[1], **more)


@breaks("WTURB-2")
class Generous(WalletTrial):
    """Gives back what a silent run held: its calls in flight are forgotten."""

    subject = GenerousStore


class HungryStore(MemoryStore):
    async def settle(self, hold, tokens, money, **more):
        row = self._book.holds.get(hold.key)
        return await super().settle(hold, max(tokens, 0 if row is None else row.base[0] + row.grant[0]), money, **more)


@breaks("WTURB-3")
class Hungry(WalletTrial):
    """Takes everything that a run held for used when it ends."""

    subject = HungryStore


class TimidStore(MemoryStore):
    async def write_off(self, hold, tokens, money, **more):
        return False


@breaks("WTURB-4", "WTURB-2")
class Timid(WalletTrial):
    """Never writes off what the dead held."""

    subject = TimidStore


class LateStore(MemoryStore):
    """Looks what the outer wallet has before the draw, and trusts that when it is repeated."""

    async def draw(self, hold, want):
        most = tuple(replace(one, max_tokens=10**6) for one in hold.line)
        taken = [one.tokens + one.held_tokens for one in await self.wallets("outer")]
        row = self._book.holds.get(hold.key)
        if row is not None and want.asked_tokens and (not taken or taken[0] < 900):
            grant = await super().draw(replace(hold, line=most), want)
            for name in ("outer", "inner"):
                self._book.wallets[name].most = (1_000, None)
            return grant
        return await super().draw(hold, want)


@breaks("WTURB-1")
class Late(WalletTrial):
    """Does not look at the limit again for a run that it knows."""

    subject = LateStore
