"""The ledger by itself: one node, a small tree, the queue."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from glidepath.run import Amount, Caps, Meter, Refusal, Reservation, move_meters
from glidepath.spi import Remaining
from glidepath.testing import virtual


def root(**caps):
    return Meter(Caps(**caps))


def figures(meter):
    return (meter.tokens, meter.reserved_tokens, meter.money, meter.reserved_money)


# --- moving -------------------------------------------------------------------------------------------------------


def test_a_meter_that_is_hung_elsewhere_keeps_what_it_has_used_and_obeys_its_new_parent():
    top, child = root(), None
    child = Meter(Caps(), top)
    child.reserve(60, 0).settle(60, 0)
    poor = root(tokens=50)
    move_meters([child], poor)
    assert (child.tokens, poor.tokens, top.tokens) == (60, 0, 60)
    assert isinstance(child.reserve(51, 0), Refusal)
    child.reserve(50, 0).settle(30, 0)
    assert (child.tokens, poor.tokens, top.tokens) == (90, 30, 60)
    assert child.limited


def test_a_meter_that_hangs_from_nothing_has_only_its_own_limits_and_so_has_what_is_below_it():
    poor = root(tokens=50)
    child = Meter(Caps(), poor)
    below = Meter(Caps(), child)
    move_meters([child, below], None)
    below.reserve(500, 0).settle(500, 0)
    assert (below.tokens, child.tokens, poor.tokens) == (500, 500, 0)
    assert not child.limited
    assert not below.limited


# --- reserve, settle, refund --------------------------------------------------------------------------------------


def test_what_is_reserved_is_set_aside_and_what_is_not_used_comes_back():
    meter = root(tokens=100, money=1000)
    reservation = meter.reserve(60, 600)
    assert figures(meter) == (0, 60, 0, 600)
    reservation.settle(40, 400)
    assert figures(meter) == (40, 0, 400, 0)


def test_a_reservation_is_settled_once():
    meter = root(tokens=100)
    reservation = meter.reserve(60, 0)
    reservation.settle(40, 0)
    reservation.settle(40, 0)
    reservation.cancel()
    assert figures(meter) == (40, 0, 0, 0)


def test_a_cancelled_reservation_costs_nothing_but_its_turn():
    meter = root(tokens=100, turns=2)
    meter.reserve(60, 0).cancel()
    assert figures(meter) == (0, 0, 0, 0)
    assert meter.room_turns() == 1


def test_settling_more_than_was_reserved_is_charged_in_full():
    meter = root(tokens=100)
    meter.reserve(60, 0).settle(90, 0)
    assert meter.room_tokens() == 10


@pytest.mark.parametrize(
    ("tokens", "money", "resource"), [(101, 0, "tokens"), (0, 1001, "money"), (101, 1001, "tokens")]
)
def test_what_does_not_fit_is_refused_with_what_would_fit(tokens, money, resource):
    meter = root(tokens=100, money=1000)
    refusal = meter.reserve(tokens, money)
    assert isinstance(refusal, Refusal)
    assert (refusal.resource, refusal.room, refusal.now) == (
        resource,
        *((100, 100) if resource == "tokens" else (1000, 1000)),
    )
    assert figures(meter) == (0, 0, 0, 0)


def test_a_refusal_tells_what_fits_now_and_what_would_fit_with_nothing_in_flight():
    meter = root(tokens=100)
    meter.reserve(70, 0)
    refusal = meter.reserve(50, 0)
    assert (refusal.now, refusal.room, refusal.asked, refusal.limit) == (30, 100, 50, 100)


def test_exactly_the_rest_fits():
    meter = root(tokens=100, money=10)
    assert isinstance(meter.reserve(100, 10), Reservation)
    assert isinstance(meter.reserve(0, 0), Reservation)
    assert isinstance(meter.reserve(1, 0), Refusal)


def test_turns_are_charged_when_the_call_is_reserved_and_never_beyond_the_cap():
    meter = root(turns=2)
    assert [type(meter.reserve(1, 0)) for _ in range(3)] == [Reservation, Reservation, Refusal]
    assert (meter.turns, meter.room_turns()) == (2, 0)
    assert isinstance(meter.reserve(1, 0, turns=0), Reservation)


def test_an_unlimited_node_counts_all_the_same():
    meter = root()
    meter.reserve(10**12, 10**18).settle(10**12, 10**18)
    assert figures(meter) == (10**12, 0, 10**18, 0)
    assert (meter.room_tokens(), meter.room_money(), meter.room_turns(), meter.room_tool_calls()) == (None,) * 4
    assert meter.room_for(None, now=True) == (None, None)


def test_a_reply_that_outgrows_its_reservation_extends_it_while_there_is_room():
    meter = root(tokens=100, money=100)
    reservation = meter.reserve(50, 50)
    assert reservation.extend(30, 30)
    assert not reservation.extend(30, 10)
    assert not reservation.extend(10, 30)
    assert (reservation.tokens, reservation.money) == (80, 80)
    reservation.settle(80, 80)
    assert figures(meter) == (80, 0, 80, 0)


def test_what_remains_is_told_in_dollars_and_never_below_zero():
    meter = root(tokens=100, money=2 * 10**12, turns=3, tool_calls=2)
    assert meter.remaining(7.5) == Remaining(iterations=3, tokens=100, cost=Decimal(2), seconds=7.5, tool_calls=2)
    meter.reserve(50, 10**12).settle(150, 3 * 10**12)
    for _ in range(3):
        meter.charge_tool_call()
    assert meter.remaining() == Remaining(iterations=2, tokens=0, cost=Decimal(0), tool_calls=0)


MAYBE = st.none() | st.integers(0, 500)


@given(
    st.fixed_dictionaries(dict.fromkeys(("tokens", "money", "turns", "tool_calls"), MAYBE)),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=4),
    st.tuples(st.integers(0, 200), st.integers(0, 200)),
    st.tuples(st.integers(0, 100), st.integers(0, 100)),
    st.integers(0, 5),
)
def test_a_lone_meter_says_what_one_below_an_unlimited_budget_says(caps, spent, held, near, calls):
    """`remaining` has a short form for a meter that has nothing above it."""
    alone, below = root(**caps), Meter(Caps(**caps), parent=root(), depth=1)
    for meter in (alone, below):
        meter.hold_landing(Amount(*held), *near)
        for tokens, money in spent:
            meter.count_from(meter.tokens + tokens, meter.money + money, turns=meter.turns + 1, tool_calls=calls)
    assert alone.remaining(3.0) == below.remaining(3.0)
    assert alone.near_budget() == below.near_budget()


# --- the tree -----------------------------------------------------------------------------------------------------


def family(**caps):
    parent = root(**caps)
    return parent, Meter(Caps(), parent, depth=1), Meter(Caps(tokens=50), parent, depth=1)


def test_every_charge_goes_to_the_node_and_all_its_ancestors():
    parent, one, two = family(tokens=100)
    one.reserve(30, 3).settle(20, 2)
    two.reserve(30, 3).settle(25, 5)
    assert [node.tokens for node in (parent, one, two)] == [45, 20, 25]
    assert [node.money for node in (parent, one, two)] == [7, 2, 5]
    assert [node.turns for node in (parent, one, two)] == [2, 1, 1]


def test_the_tightest_node_of_the_lineage_decides():
    _parent, one, two = family(tokens=100)
    assert two.reserve(60, 0).limit == 50
    one.reserve(70, 0)
    assert two.reserve(40, 0).limit == 100
    assert two.room_for(None, now=True) == (30, None)


def test_tool_calls_are_counted_in_the_whole_lineage():
    parent, one, two = family(tool_calls=3)
    one.charge_tool_call()
    two.charge_tool_call()
    assert (parent.tool_calls, one.tool_calls, one.room_tool_calls()) == (2, 1, 1)


def test_a_call_that_did_not_begin_is_free_again_in_the_whole_lineage():
    parent, one, two = family(tool_calls=2)
    one.charge_tool_call()
    two.charge_tool_call()
    assert parent.attention
    one.return_tool_call()
    assert (parent.tool_calls, one.tool_calls, two.tool_calls, two.room_tool_calls()) == (1, 0, 1, 1)
    assert not parent.attention


@pytest.mark.parametrize(("spent", "near"), [(0, False), (67, False), (68, True), (100, True)])
def test_near_budget_is_about_what_is_left_above_the_landing_reserve(spent, near):
    tokens, money = root(tokens=100), root(money=100)
    for meter in (tokens, money):
        meter.hold_landing(Amount(tokens=20, money=20))
        meter.near_tokens = meter.near_money = 12
        meter.reserve(0, 0).settle(spent, spent)
    assert (tokens.near_budget(), money.near_budget()) == (near, near)


def test_near_budget_looks_at_the_ancestors_too():
    parent, one, _ = family(tokens=100)
    parent.near_tokens = 50
    assert not one.near_budget()
    one.reserve(60, 0).settle(60, 0)
    assert one.near_budget()


# --- boarding and landing -----------------------------------------------------------------------------------------


def boarded(parent, landing=10, first=20, **caps):
    child = Meter(Caps(**caps), parent, depth=1)
    child.hold_landing(Amount(landing, 0))
    return child, child.reserve_start(Amount(landing, 0), Amount(first, 0), queued=False)


def test_a_child_sets_aside_its_landing_and_its_first_call():
    parent = root(tokens=100)
    _child, first = boarded(parent)
    assert isinstance(first, Reservation)
    assert (parent.aside_tokens, parent.reserved_tokens, parent.pledged_tokens) == (10, 20, 20)
    assert parent.room_tokens() == 90


def test_a_first_call_is_traded_for_the_real_one():
    parent = root(tokens=100)
    child, first = boarded(parent)
    call = child.reserve(50, 0, trading=first)
    assert isinstance(call, Reservation)
    assert not first.open
    assert (parent.reserved_tokens, parent.pledged_tokens) == (50, 0)
    first.cancel()
    assert parent.reserved_tokens == 50


def test_a_first_call_that_is_given_up_is_free_again():
    parent = root(tokens=100)
    _, first = boarded(parent)
    first.cancel()
    assert (parent.reserved_tokens, parent.pledged_tokens, parent.room_for(None, now=True)) == (0, 0, (90, None))


def test_what_others_were_pledged_is_not_counted_on():
    parent = root(tokens=100)
    _, first = boarded(parent)
    other, second = boarded(parent)
    assert other.room_for(second, now=False) == (100 - 20 - 20, None)
    refusal = other.reserve(70, 0, trading=second)
    assert (refusal.room, refusal.now) == (60, 60)
    assert other.find_lack(60, 0, second) is None
    first.cancel()
    assert isinstance(other.reserve(70, 0, trading=second), Reservation)


@pytest.mark.parametrize(("tokens", "fits"), [(29, False), (30, True)])
def test_a_child_that_cannot_have_both_is_refused(tokens, fits):
    _, got = boarded(root(tokens=tokens))
    assert isinstance(got, Reservation) is fits


def test_a_child_without_a_turn_left_is_refused():
    parent = root(turns=1)
    parent.reserve(0, 0)
    _, got = boarded(parent)
    assert (got.resource, got.room < got.asked) == ("turns", True)


def test_g5_the_landing_call_gets_what_was_held_back_and_set_aside():
    parent = root(tokens=100)
    child, first = boarded(parent, tokens=60)
    call = child.reserve(50, 0, trading=first)
    call.settle(50, 0)
    assert isinstance(child.reserve(1, 0), Refusal)
    landing = child.open_landing(Amount(10, 0), admitted=True)
    assert (parent.aside_tokens, child.held_tokens, child.reserved_tokens) == (0, 0, 10)
    landing.settle(10, 0)
    assert (parent.tokens, child.tokens, parent.reserved_tokens) == (60, 60, 0)


def test_a_run_that_needs_no_landing_gives_its_reserve_back():
    parent = root(tokens=100)
    child, first = boarded(parent)
    first.cancel()
    child.give_back(Amount(10, 0))
    assert (parent.aside_tokens, parent.room_tokens()) == (0, 100)


@pytest.mark.parametrize(("caps", "resource"), [({"depth": 1}, "depth"), ({"descendants": 2}, "descendants")])
def test_one_descendant_too_many_is_refused_and_not_counted(caps, resource):
    top = root(**caps)
    child = Meter(Caps(), top, depth=1)
    assert child.count_descendant() is None
    if resource == "descendants":
        assert Meter(Caps(), top, depth=1).count_descendant() is None
    grandchild = Meter(Caps(), child, depth=2)
    assert grandchild.count_descendant().resource == resource
    assert (top.descendants, child.descendants) == (1 if resource == "depth" else 2, 0)


def test_a_shared_budget_bounds_each_family_on_it_by_itself():
    budget = Meter(Caps(descendants=1), depth=-1)
    for _ in range(3):
        run = Meter(Caps(), budget)
        assert Meter(Caps(), run, depth=1).count_descendant() is None
        assert Meter(Caps(), run, depth=1).count_descendant().resource == "descendants"


# --- the queue ----------------------------------------------------------------------------------------------------


@virtual
async def test_waiters_are_served_in_the_order_they_came_and_nobody_overtakes():
    meter = root(tokens=100)
    first = meter.reserve(100, 0)
    served = []

    async def wait(name, tokens):
        waiting = meter.enqueue()
        while True:
            waiting.prepare_next_wake()
            if meter.is_head(waiting):
                got = meter.reserve(tokens, 0, queued=True)
                if isinstance(got, Reservation):
                    served.append(name)
                    meter.leave(waiting)
                    return got
            await waiting.turn

    tasks = [asyncio.ensure_future(wait(name, tokens)) for name, tokens in (("big", 90), ("small", 10), ("tiny", 1))]
    await asyncio.sleep(0.1)
    first.settle(50, 0)
    await asyncio.sleep(0.1)
    assert served == []  # the big one does not fit, and the others stand behind it
    assert meter.reserve(1, 0).resource == "queue"
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    meter.leave(meter.tree.queue[0])
    await asyncio.sleep(0.1)
    assert served == ["small", "tiny"]


@virtual
async def test_leaving_the_queue_lets_the_next_one_ask():
    meter = root(tokens=10)
    one, two = meter.enqueue(), meter.enqueue()
    one.prepare_next_wake()
    assert (meter.is_head(one), meter.is_head(two), two.turn.done()) == (True, False, False)
    meter.leave(one)
    assert (meter.is_head(two), two.turn.done()) == (True, True)
    meter.leave(one)
    meter.leave(two)
    assert not meter.is_head(two)


@virtual
async def test_a_waiter_is_woken_from_another_thread():
    meter = root(tokens=10)
    held = meter.reserve(10, 0)
    waiting = meter.enqueue()
    waiting.prepare_next_wake()
    await asyncio.to_thread(held.cancel)
    await asyncio.wait_for(waiting.turn, 1)
    assert isinstance(meter.reserve(10, 0, queued=True), Reservation)


def test_waking_a_waiter_whose_loop_is_closed_hurts_nobody():
    meter = root(tokens=10)

    async def enqueue():
        return meter.enqueue()

    asyncio.run(enqueue())
    first = meter.reserve(10, 0, queued=True)
    import threading

    thread = threading.Thread(target=first.cancel)
    thread.start()
    thread.join()
    assert meter.reserved_tokens == 0


def test_boarding_stands_in_the_same_queue():
    meter = root(tokens=1000)

    async def queue():
        meter.enqueue()

    asyncio.run(queue())
    _, got = boarded(meter)
    assert got.resource == "queue"
    child = Meter(Caps(), meter, depth=1)
    assert isinstance(child.reserve_start(Amount(1), Amount(1), queued=True), Reservation)
    assert isinstance(child.reserve(1, 0), Refusal)


def test_a_limit_anywhere_above_makes_a_node_limited():
    _parent, one, _ = family(money=5)
    assert one.limited
    assert not Meter(Caps(turns=3)).limited
