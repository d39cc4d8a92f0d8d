"""Clocks, the network and processes fail by seed; a store that breaks a promise is caught, in few steps."""

import asyncio
from random import Random

import pytest

from glidepath.conformance import TurbulentStoreContract
from glidepath.errors import ConfigurationError, StoreError
from glidepath.sessions import MemoryStore
from glidepath.testing import Happening, SimulatedClock, SimulatedLink, Turbulence, TurbulenceError, virtual
from glidepath.values import replace


def world_of(kind):
    def world(clock):
        store = kind(lease=10.0, clock=clock)
        return lambda _: store

    return world


class Unfenced(MemoryStore):
    """Takes a write from anybody who has ever held the session."""

    def append(self, lease, commit, **options):
        shelf = self._shelves[lease.session_id]
        super().append(replace(lease, token=shelf.entry.token), commit, **options)


@pytest.mark.parametrize("wallets", [False, True])
def test_our_store_in_memory_keeps_its_promises(wallets):
    weathered = Turbulence(world_of(MemoryStore), wallets=wallets).check(range(40))
    assert weathered.seeds == 40
    assert weathered.requests > 500


def test_a_seed_is_always_the_same():
    turbulence = Turbulence(world_of(MemoryStore))
    assert turbulence.happenings(7) == turbulence.happenings(7) != turbulence.happenings(8)


def test_what_breaks_a_promise_is_minimized_and_printed_as_a_program_that_repeats_it():
    with pytest.raises(TurbulenceError, match="fenced") as caught:
        Turbulence(world_of(Unfenced)).check(range(100), rules=["fenced"])
    shortest = caught.value.happenings
    assert {one.kind for one in shortest} >= {"claim", "write"}
    assert len(shortest) < 10
    program = str(caught.value).partition("\n\n")[2]
    with pytest.raises(TurbulenceError) as again:
        exec(program, {"world": world_of(Unfenced)})
    assert again.value.rules == caught.value.rules
    for left_out in range(len(shortest)):
        fewer = shortest[:left_out] + shortest[left_out + 1 :]
        Turbulence(world_of(Unfenced)).replay(fewer, seed=caught.value.seed)  # each of them is needed


def unfenced_world(clock):
    store = Unfenced(lease=10.0, clock=clock)
    return lambda _: store


def test_a_world_that_can_be_imported_needs_nothing_beside_the_program():
    with pytest.raises(TurbulenceError) as caught:
        Turbulence(unfenced_world).check(range(100))
    with pytest.raises(TurbulenceError) as again:
        exec(str(caught.value).partition("\n\n")[2], {})
    assert str(again.value) == str(caught.value)


class UnfencedContract(TurbulentStoreContract):
    make_world = staticmethod(unfenced_world)


class MethodContract(TurbulentStoreContract):
    def make_world(self, clock):
        return unfenced_world(clock)


UnfencedContract.__test__ = MethodContract.__test__ = False  # they fail on purpose


@pytest.mark.parametrize("kind", [UnfencedContract, MethodContract])
def test_a_clause_that_fails_shows_a_program_that_needs_nothing_beside_it(kind):
    with pytest.raises(TurbulenceError) as caught:
        kind().test_turb_3_tokens_fence()
    with pytest.raises(TurbulenceError) as again:
        exec(str(caught.value).partition("\n\n")[2], {})
    assert str(again.value) == str(caught.value)


def test_only_the_rules_that_are_asked_for_are_looked_at():
    Turbulence(world_of(Unfenced)).check(range(40), rules=["free"])


def test_a_silent_owner_is_replaced_and_its_late_write_is_refused():
    """What the weather is made of: a suspended owner, a second one, a request that arrives after both."""
    story = [
        Happening("claim", 0, "s0"),
        Happening("late", 0, "", 12.0),
        Happening("write", 0, "s0"),
        Happening("wait", 0, "", 11.0),
        Happening("claim", 1, "s0"),
        Happening("write", 1, "s0"),
        Happening("wait", 0, "", 11.0),
    ]
    Turbulence(world_of(MemoryStore)).replay(story)
    with pytest.raises(TurbulenceError, match="kept"):
        Turbulence(world_of(Unnumbered)).replay(story)


class Unnumbered(MemoryStore):
    """Writes whatever comes, in place of what is there."""

    def append(self, lease, commit, **options):
        shelf = self._shelves[lease.session_id]
        shelf.commits[commit.number - 1 :] = [commit]
        shelf.entry = replace(shelf.entry, head=commit.number)


class Cheerful(MemoryStore):
    """Tells nobody that a lease is lost."""

    async def beat(self, leases, *, renew):
        await super().beat(leases, renew=renew)
        return ()


def test_a_heartbeat_that_is_not_told_of_its_lost_lease_is_caught():
    with pytest.raises(TurbulenceError, match="did not hear that it is lost"):
        Turbulence(world_of(Cheerful)).check(range(100), rules=["fenced"])


class Forgiving(MemoryStore):
    """Lets whoever held something before settle what another process holds by now."""

    legs: dict = {}  # noqa: RUF012 - of one test

    async def draw(self, hold, want):
        self.legs[hold.key] = hold.leg
        return await super().draw(hold, want)

    async def settle(self, hold, tokens, money, **more):
        return await super().settle(replace(hold, leg=self.legs[hold.key]), tokens, money, **more)


def test_a_run_that_another_process_continues_is_not_settled_by_the_former():
    story = [
        Happening("draw", 0, "r0", 100),
        Happening("wait", 0, "", 0.5),
        Happening("resume", 1, "r0"),
        Happening("draw", 1, "r0", 200),
        Happening("wait", 0, "", 0.5),
        Happening("settle", 0, "r0"),
        Happening("wait", 0, "", 0.5),
    ]
    Turbulence(world_of(MemoryStore), wallets=True).replay(story)
    with pytest.raises(TurbulenceError, match="counted"):
        Turbulence(world_of(Forgiving), wallets=True).replay(story)


def test_it_needs_a_process():
    with pytest.raises(ConfigurationError, match="processes=0"):
        Turbulence(world_of(MemoryStore), processes=0)


# --- what it is made of ---------------------------------------------------------------------------------------------


async def outcome(link, request):
    try:
        return await link.send(request)
    except StoreError as error:
        return error.kind


@virtual
async def test_requests_and_replies_get_lost_come_late_and_twice():
    link, done = SimulatedLink(Random(1)), []

    async def request():
        done.append(asyncio.get_running_loop().time())
        return "ok"

    assert await outcome(link, request) == "ok"
    for trouble, reply, more in (
        ("lose_request", "unavailable", 0),
        ("lose_reply", "unavailable", 1),
        ("repeat", "ok", 2),
        ("late", "unavailable", 1),
    ):
        before, began = len(done), asyncio.get_running_loop().time()
        link.trouble_next(trouble, 5.0)
        assert await outcome(link, request) == reply
        await link.settle()
        assert len(done) - before == more, trouble
    assert done[-1] - began > 1, "it arrived after its sender had given up"
    link.part(60.0)
    assert await outcome(link, request) == "unavailable"
    await asyncio.sleep(60)
    assert await outcome(link, request) == "ok"


@virtual
async def test_clocks_step_and_drift():
    right, wrong = SimulatedClock(1_000.0), SimulatedClock(1_000.0)
    wrong.step(-5.0)
    await asyncio.sleep(10)
    assert (right(), wrong()) == (1_010.0, 1_005.0)
    wrong.drift(2.0)
    await asyncio.sleep(10)
    assert (right(), wrong()) == (1_020.0, 1_025.0)
    wrong.drift(1.0)
    await asyncio.sleep(10)
    assert (right(), wrong()) == (1_030.0, 1_035.0)
