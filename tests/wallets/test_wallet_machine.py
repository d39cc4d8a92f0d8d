"""Whatever is drawn, settled, given back, left behind by the dead and taken up again: no wallet is over its limit."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.spi import Hold, WalletDraw, WalletTerms

LEASE = 10.0
amounts = st.integers(0, 300)


class Flight:
    """A run that behaves: it never has more in use than it was granted."""

    def __init__(self, key, line, before, kept):
        self.key, self.line, self.before, self.kept = key, line, before, kept
        self.spent, self.landing, self.flight, self.reach = before, 0, 0, before
        self.leg, self.alive, self.drawn = 1, True, False

    def hold(self):
        session = "s" if self.kept else None
        return Hold(key=self.key, leg=self.leg, owner="somewhere else", line=self.line, session_id=session)

    def want(self, asked=0, least=0):
        return WalletDraw(
            spent_tokens=self.spent,
            landing_tokens=self.landing,
            flight_tokens=self.flight,
            asked_tokens=asked,
            least_tokens=least,
        )


class Wallets(RuleBasedStateMachine):
    """Runs on a tree of wallets, one of them with days; they die, are slow, and are taken up again."""

    def make_store(self):
        return MemoryStore(lease=LEASE, clock=lambda: self.now)

    def do(self, coroutine):
        try:
            coroutine.send(None)  # in memory nothing waits
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits")

    @initialize(team=st.integers(50, 1_500), user=st.integers(50, 1_500))
    def begin(self, team, user):
        self.now = 1_800_000_000.0
        self.store = self.make_store()
        above = WalletTerms(name="team", max_tokens=team)
        self.limits = {"team": team, "user": user, "free": None}
        self.lines = (
            (above,),
            (above, WalletTerms(name="user", per="day", parent="team", max_tokens=user)),
            (above, WalletTerms(name="free", parent="team")),
        )
        self.runs, self.ended, self.started = [], [], 0

    def _flying(self):
        return [run for run in self.runs if run.alive]

    @rule(line=st.integers(0, 2), before=amounts, kept=st.booleans())
    def start(self, line, before, kept):
        self.started += 1
        self.runs.append(Flight(f"run {self.started}", self.lines[line], before, kept))

    @precondition(lambda self: self._flying())
    @rule(data=st.data(), asked=amounts, share=st.floats(0, 1), landing=amounts)
    def draw(self, data, asked, share, landing):
        run = data.draw(st.sampled_from(self._flying()))
        whole = asked if run.drawn else asked + landing
        grant = self.do(self.store.draw(run.hold(), run.want(whole, int(whole * share))))
        if grant.verdict == "fenced":
            assert whole == 0
            return
        if not (run.drawn and whole == 0):
            assert grant.tokens >= run.spent + run.landing + run.flight, "what it needs was taken from it"
        run.reach = max(run.spent, grant.tokens)
        if grant.verdict == "granted" and whole:
            had, run.drawn = run.drawn, True
            room = grant.tokens - run.spent - run.landing - run.flight
            assert room <= whole
            if not had:
                run.landing = min(landing, room)
                room -= run.landing
            run.flight += room

    @precondition(lambda self: self._flying())
    @rule(data=st.data(), share=st.floats(0, 1))
    def answer(self, data, share):
        run = data.draw(st.sampled_from(self._flying()))
        run.spent += int(run.flight * share)
        run.flight = 0

    @precondition(lambda self: self._flying())
    @rule(data=st.data())
    def finish(self, data):
        run = data.draw(st.sampled_from(self._flying()))
        run.spent, run.flight = run.spent + run.flight, 0
        self.do(self.store.settle(run.hold(), run.spent, 0))
        self._end(run, run.spent)

    def _end(self, run, total):
        self.runs.remove(run)
        if run.drawn:
            self.ended.append(total - run.before)

    @precondition(lambda self: self._flying())
    @rule(data=st.data())
    def die(self, data):
        data.draw(st.sampled_from(self._flying())).alive = False

    @precondition(lambda self: any(not run.alive for run in self.runs))
    @rule(data=st.data())
    def take_up_again(self, data):
        run = data.draw(st.sampled_from([run for run in self.runs if not run.alive]))
        run.spent, run.flight, run.landing = run.spent + run.flight, 0, 0  # as its journal has it
        run.leg, run.alive = run.leg + 1, True
        grant = self.do(self.store.draw(run.hold(), run.want(1, 1)))
        assert grant.verdict in ("granted", "wait", "refused")
        run.reach = grant.tokens
        if not run.drawn:
            run.before, run.drawn = run.spent, True

    @rule(seconds=st.sampled_from([1.0, 11.0, 90_000.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def sweep(self):
        by_key = {run.key: run for run in self.runs}
        for late in self.do(self.store.overdue()):
            run = by_key[late.key]
            if run.kept:  # its journal knows, and keeps it from going on
                total = run.spent + run.flight
                assert self.do(self.store.write_off(late, total, 0))
                self._end(run, total)
            else:
                assert self.do(self.store.write_off(late, None, None))

    @invariant()
    def nothing_is_over_its_limit(self):
        if not hasattr(self, "store"):
            return
        for wallet in self.figures():
            limit = self.limits[wallet.name]
            assert wallet.held_tokens >= 0
            assert all(used >= 0 for used, _ in wallet.history.values())
            if limit is not None:
                assert wallet.tokens + wallet.held_tokens <= limit
                assert all(used <= limit for used, _ in wallet.history.values())

    def figures(self):
        return self.do(self.store.wallets())

    def teardown(self):
        if not hasattr(self, "store"):
            return
        charged = sum(self.ended)
        for run in list(self.runs):
            if run.alive:
                self.do(self.store.settle(run.hold(), run.spent + run.flight, 0))
                charged += (run.spent + run.flight - run.before) * run.drawn
        self.now += 2 * LEASE
        by_key = {run.key: run for run in self.runs}
        for late in self.do(self.store.overdue()):
            run = by_key[late.key]
            assert not run.alive
            known = run.spent + run.flight if run.kept else None
            assert self.do(self.store.write_off(late, known, None if known is None else 0))
        for run in self.runs:
            if not run.alive:
                charged += ((run.spent + run.flight if run.kept else run.reach) - run.before) * run.drawn
        used = {wallet.name: sum(used for used, _ in wallet.history.values()) for wallet in self.figures()}
        assert used.get("team", 0) == charged
        assert all(wallet.held_tokens == wallet.holds == 0 for wallet in self.figures())
        self.do(self.store.close())


class WalletsOnDisk(Wallets):
    """The same in an SQLite file."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()

    def make_store(self):
        store = SqliteStore(Path(self.folder.name) / "wallets.db", lease=LEASE, clock=lambda: self.now)
        self.do(store.claim("s", "somebody"))  # the file is there from the beginning
        return store

    def do(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def teardown(self):
        try:
            super().teardown()
        finally:
            if hasattr(self, "store"):
                self.do(self.store.close())
            self.loop.close()
            self.folder.cleanup()


TestWalletsG4 = Wallets.TestCase
TestWalletsG4.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestWalletsOnDiskG4 = WalletsOnDisk.TestCase
TestWalletsOnDiskG4.settings = settings(max_examples=8, stateful_step_count=25, deadline=None)
