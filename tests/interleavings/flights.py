"""Durable agents whose ways to the store fail, by seed: parted, late, without a reply. Then others take over."""

import asyncio
import inspect
from collections import Counter
from random import Random

from glidepath import CancelToken
from glidepath.agent import sweep
from glidepath.testing import SimulatedLink, VirtualClock

from .agents import World

NAMES = "abc"
TROUBLES = 12
CANCELLED = 0.4  # of the others: somebody cancels all runs
CALM = 0.2  # of the flights: nothing goes wrong, and everything is known exactly
SETTLED = 400.0  # seconds after which everything that was ever held is overdue


class LinkedStore:
    """The store as a process has it that reaches it through a link."""

    def __init__(self, store, link):
        self._store, self._link = store, link

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name != "append" and not inspect.iscoroutinefunction(found):
            return found
        return lambda *given, **named: self._link.send(lambda: found(*given, **named))


async def disturb(links, chance, only):
    """A dozen things go wrong on the way, one after the other; or `only` those with these numbers."""
    for number in range(TROUBLES):
        await asyncio.sleep(chance.choice((0.01, 0.3, 2.0, 7.0)))
        link, kind = chance.choice(links), chance.choice(("part", "part", "late", "lose_request", "lose_reply"))
        seconds = chance.choice((0.5, 5.0, 14.0, 40.0) if kind == "part" else (0.5, 12.0))
        if number not in only:
            continue
        if kind == "part":
            link.part(seconds)
        else:
            link.trouble_next(kind, seconds)


async def fly(seed, limit, calls, only):
    """What a flight with this seed came to: the world, the results of those who took over, and the wallet."""
    chance = Random(seed)
    world = World(limit, calls, chance.choice((0.0, 1.0, 6.0, 25.0)))  # the last is longer than any lease
    links = [SimulatedLink(chance) for _ in NAMES]
    runs, token, hurry = [], CancelToken(), Random(f"hurry {seed}")
    for name, link in zip(NAMES, links, strict=True):
        store = LinkedStore(world.store, link)
        agent = world.agent(name, store=store)
        runs.append(asyncio.ensure_future(agent.run("go", session=name, parent=world.wallet(store), cancel=token)))
    is_calm = chance.random() < CALM
    weather = asyncio.ensure_future(asyncio.sleep(0) if is_calm else disturb(links, chance, only))
    is_cancelled = not is_calm and hurry.random() < CANCELLED
    if is_cancelled:
        await asyncio.sleep(hurry.choice((0.0, world.pause)) + hurry.random() * 0.6)
        token.cancel("enough")
        world.cancelled = True
    takeovers = []
    if not is_cancelled and chance.random() < 0.5:  # while the first ones may still be at it
        await asyncio.sleep(chance.choice((5.0, 15.0, 30.0)))
        takeovers = [asyncio.ensure_future(take_over(world, name)) for name in NAMES]
    first = await asyncio.gather(*runs)
    world.cancelled = False  # whoever continues them was not
    world.may_lack_payments = is_cancelled  # a call that was cancelled is told to the model as such
    await asyncio.gather(weather, *takeovers)
    for link in links:
        await link.settle()
    await asyncio.sleep(SETTLED)
    results, _ = await world.resume_all()
    await asyncio.sleep(SETTLED)
    await sweep(world.store)
    [wallet] = await world.store.wallets("w") or [None]
    return world, results, wallet, first if is_calm else ()


async def take_over(world, name):
    """Another process continues a session, if it is free by now."""
    entries = {entry.session_id: entry for entry in await world.store.entries()}
    if name in entries and entries[name].head and entries[name].owner is not None:
        await world.agent(name).resume(name, parent=world.wallet())


def hold_flights(found, limit, calls):
    """Whatever happened on the way: paid once, nothing forgotten, nothing over, nothing held, everybody answered."""
    world, results, wallet, undisturbed = found
    assert not world.late, f"paid after it was cancelled: {world.late}"
    for result in undisturbed:
        assert result.ok, result
    assert not undisturbed or wallet.tokens == world.billed, f"{wallet.tokens} are used, {world.billed} were billed"
    twice = {name: count for name, count in Counter(world.paid).items() if count > calls - 1}
    assert not twice, f"paid more than once: {twice}"
    if wallet is not None:
        assert wallet.tokens + wallet.disputed_tokens <= limit, f"{wallet.tokens} of {limit} are used"
        assert wallet.tokens >= world.billed, f"{wallet.tokens} are used, {world.billed} were billed"
        assert not wallet.held_tokens, f"{wallet.held_tokens} are held for nobody"
    for name, result in results.items():
        assert result.text == "done", (name, result)
        is_paid = world.paid.count(name) + len(result.unknown_effects) >= calls - 1
        assert is_paid or world.may_lack_payments, f"{name}: a payment was lost: {result}"


def try_flight(seed, limit=9_000, calls=2, *, only=range(TROUBLES)):
    """One flight, with these of its troubles only; raises what is wrong with it."""
    found = VirtualClock(seed=seed).run(fly(seed, limit, calls, only))
    hold_flights(found, limit, calls)
    return found
