"""Whatever is reserved, extended, settled, boarded and landed, in whatever order: no node is over its limit (G4)."""

import random
from threading import Thread

from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from glidepath.run import Amount, Caps, Meter, Refusal, Reservation

sizes = st.integers(0, 400)
shares = st.floats(0, 1)
caps = st.one_of(st.none(), st.integers(1, 2_000))


class Child:
    def __init__(self, meter, landing, first):
        self.meter, self.landing, self.first = meter, landing, first
        self.calls = []
        self.boarded = True


class Ledger(RuleBasedStateMachine):
    """A root with children that behave: they settle within what they reserved, as a call that obeys its cap does."""

    calls = Bundle("calls")
    children = Bundle("children")

    @initialize(tokens=caps, money=caps, turns=st.one_of(st.none(), st.integers(1, 30)), held=st.integers(0, 200))
    def begin(self, tokens, money, turns, held):
        self.root = Meter(Caps(tokens=tokens, money=money, turns=turns))
        self.root.hold_landing(Amount(min(held, (tokens or 10**9) // 4), min(held, (money or 10**9) // 4)))
        self.nodes = [self.root]
        self.spent = {}
        self.open = {}  # by identity: two calls may be of one size

    def _charged(self, meter, tokens, money):
        for node in meter.lineage:
            before = self.spent.get(node, (0, 0))
            self.spent[node] = (before[0] + tokens, before[1] + money)

    @rule(target=calls, tokens=sizes, money=sizes)
    def reserve(self, tokens, money):
        got = self.root.reserve(tokens, money)
        if isinstance(got, Refusal):
            assert got.resource in ("tokens", "money", "turns")
            return multiple()
        self.open[id(got)] = got
        return got

    @rule(target=children, landing=sizes, first=sizes, tokens=caps, data=st.data())
    def board(self, landing, first, tokens, data):
        parent = data.draw(st.sampled_from(self.nodes))
        meter = Meter(Caps(tokens=tokens), parent, depth=parent.depth + 1)
        landing = min(landing, (tokens or 10**9) // 4)
        meter.hold_landing(Amount(landing, landing))
        got = meter.reserve_start(Amount(landing, landing), Amount(first, first), queued=False)
        if isinstance(got, Refusal):
            return multiple()
        self.nodes.append(meter)
        self.open[id(got)] = got
        return Child(meter, Amount(landing, landing), got)

    @rule(target=calls, child=children, tokens=sizes, money=sizes)
    def call_of_a_child(self, child, tokens, money):
        trading = child.first if child.first is not None and child.first.open else None
        got = child.meter.reserve(tokens, money, trading=trading)
        if isinstance(got, Refusal):
            assert trading is None or trading.open
            return multiple()
        if trading is not None:
            assert not trading.open
            del self.open[id(trading)]
        self.open[id(got)] = got
        return got

    @rule(call=calls, tokens=sizes, money=sizes)
    def extend(self, call, tokens, money):
        before = (call.tokens, call.money)
        if call.open and not call.extend(tokens, money):
            assert (call.tokens, call.money) == before

    @rule(call=consumes(calls), share=shares)
    def settle(self, call, share):
        tokens, money = int(call.tokens * share), int(call.money * share)
        if call.open:
            self._charged(call.meter, tokens, money)
            del self.open[id(call)]
        call.settle(tokens, money)
        call.settle(10**6, 10**6)  # a second time: nothing happens

    @rule(call=consumes(calls))
    def cancel(self, call):
        if call.open:
            del self.open[id(call)]
        call.cancel()

    @rule(child=consumes(children), lands=st.booleans(), share=shares)
    def end_of_a_child(self, child, lands, share):
        if child.first is not None and child.first.open:
            child.first.cancel()
            del self.open[id(child.first)]
        child.first = None
        if lands:
            call = child.meter.open_landing(child.landing, admitted=True)
            tokens, money = int(call.tokens * share), int(call.money * share)
            self._charged(child.meter, tokens, money)
            call.settle(tokens, money)
        else:
            child.meter.give_back(child.landing)

    @invariant()
    def no_node_is_over_its_limit(self):
        for node in self.nodes:
            for what in ("tokens", "money"):
                limit = getattr(node.caps, what)
                parts = [getattr(node, f"{part}_{what}") for part in ("reserved", "aside", "held")]
                assert min(parts) >= 0
                if limit is not None:
                    assert getattr(node, what) + sum(parts) <= limit

    @invariant()
    def what_is_reserved_is_what_is_open(self):
        for node in self.nodes:
            mine = [call for call in self.open.values() if node in call.meter.lineage]
            assert node.reserved_tokens == sum(call.tokens for call in mine)
            assert node.reserved_money == sum(call.money for call in mine)
            assert node.pledged_tokens == sum(call.tokens for call in mine if call.pledged)
            assert node.pledged_money == sum(call.money for call in mine if call.pledged)

    @invariant()
    def what_was_settled_is_what_is_used(self):
        for node in self.nodes:
            assert (node.tokens, node.money) == self.spent.get(node, (0, 0))

    @invariant()
    def turns_never_exceed_their_cap(self):
        cap = self.root.caps.turns
        assert cap is None or self.root.turns <= cap

    @invariant()
    def what_fits_now_is_never_more_than_what_fits_alone(self):
        for node in self.nodes:
            now, alone = node.room_for(None, now=True), node.room_for(None, now=False)
            for some, more in zip(now, alone, strict=True):
                assert (some is None) == (more is None)
                assert some is None or some <= more


Ledger.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_no_order_of_events_breaks_the_ledger = Ledger.TestCase


def test_g4_threads_that_reserve_and_settle_at_once_never_exceed_the_limit():
    root = Meter(Caps(tokens=20_000, money=50_000))
    over, settled = [], []

    def work(seed):
        chance = random.Random(seed)
        meter = Meter(Caps(), root, depth=1)
        for _ in range(400):
            tokens, money = chance.randrange(200), chance.randrange(500)
            got = meter.reserve(tokens, money)
            if root.tokens + root.reserved_tokens > 20_000 or root.money + root.reserved_money > 50_000:
                over.append(seed)
            if isinstance(got, Reservation):
                used = (chance.randrange(tokens + 1) // 8, chance.randrange(money + 1) // 8)
                settled.append(used)
                got.settle(*used)

    threads = [Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert over == []
    assert (root.reserved_tokens, root.reserved_money) == (0, 0)
    assert (root.tokens, root.money) == (sum(used[0] for used in settled), sum(used[1] for used in settled))
    assert len(settled) > 400
