"""Durable runs whose process dies in every state: alone, several on a wallet, hand-offs, children that wait."""

import asyncio
from collections import Counter

from glidepath import Agent, Limits, LoopOutcome, approve, tool
from glidepath.sessions import MemoryStore
from glidepath.testing import Schedules

from .agents import Payer, World

NAME = "a"


class HandoffWorld(World):
    """Its agent hands the conversation to another, who pays and answers."""

    def agent(self, name, *, store=True, plugins=()):
        desk = super().agent(name, store=False)
        desk = Agent(model=Payer(3, self.bill), tools=desk.config.tools, agent_name="desk", limits=Limits())
        return Agent(
            model=Payer(9, self.bill, tool="transfer_to_desk", arguments='{"reason": "it pays"}'),
            agent_name="hall",
            handoffs=[desk],
            store=self.store_of(store),
            plugins=plugins,
            limits=Limits(max_tokens=self.limit, max_iterations=9),
        )

    async def live(self):
        return await self.agent(NAME).run("go", session=NAME, parent=self.wallet())

    async def go_on(self):
        """What the next process does, and what came of it."""
        results, used = await self.resume_all()
        return results.get(NAME), used


class ApprovalWorld(World):
    """Its agent has a child whose payment a person has to approve; the person always does."""

    def __init__(self, limit, calls):
        super().__init__(limit, calls)
        self.approved = []

    def agent(self, name, *, store=True, plugins=()):
        @tool(isolation="inline", requires_approval=True)
        async def pay() -> str:
            """Pay."""
            assert self.approved, "it is paid before anybody approved"
            self.paid.append(name)
            await asyncio.sleep(0)
            return "paid"

        clerk = Agent(model=Payer(2, self.bill), tools=[pay], agent_name="clerk", limits=Limits(max_iterations=9))
        return Agent(
            model=Payer(2, self.bill, tool="clerk", arguments='{"task": "pay"}'),
            tools=[clerk.as_tool("clerk", "Pays.")],
            store=self.store_of(store),
            plugins=plugins,
            limits=Limits(max_tokens=self.limit, max_iterations=9),
        )

    async def live(self):
        result = await self.agent(NAME).run("go", session=NAME, parent=self.wallet())
        return await self.decide(result)

    def tell_what_survives(self):
        return (*super().tell_what_survives(), *self.approved)

    async def decide(self, result):
        while result.outcome is LoopOutcome.PAUSED:
            decisions = {waiting.call.id: approve() for waiting in result.pending}
            self.approved += decisions
            result = await self.agent(NAME).resume(NAME, decisions=decisions, parent=self.wallet())
        return result

    async def go_on(self):
        results, _ = await self.resume_all()
        result = results.get(NAME) and await self.decide(results[NAME])
        wallets = await self.store.wallets("w")
        return result, sum(one.tokens + one.held_tokens + one.disputed_tokens for one in wallets)


class Dying:
    """A world that is made anew for each schedule, whose process dies; the next one looks after what is left."""

    def __init__(self, make, hold, *, detours=None):
        self.worlds = []
        self.make, self.hold = make, hold
        self.schedules = Schedules(self.begin, detours=detours, most=10**7)

    @property
    def world(self):
        return self.worlds[0]

    def tell(self):
        return self.world.tell_what_survives()

    def begin(self):
        self.worlds[:] = [self.make()]
        return self.world.live()

    async def recover(self):
        return await self.world.go_on()

    def check(self, recover=None, *, survives=True):
        """Let it die in every state; without `survives` also where another death has left the same."""
        return self.schedules.check_crashes(
            recover or self.recover,
            lambda found: self.hold(self.world, found),
            survives=self.tell if survives else None,
        )


class Runs(World):
    """Durable runs on one wallet, each in its own session."""

    def __init__(self, limit, calls, names):
        super().__init__(limit, calls)
        self.names = names

    async def live(self):
        return await self.run_durably(self.names)

    async def go_on(self):
        return await self.resume_all()


def keeping_their_own_journals(limit, calls, names):
    """Durable runs of several processes, each with a store of its own for its journal, on one wallet in another.

    They share the wallet and nothing else, so that every order of two of them can be tried with the reduction.
    """

    async def scenario():
        world, done, results = World(limit, calls), asyncio.get_running_loop().create_future(), {}

        async def fly(name):
            store = MemoryStore(clock=lambda: asyncio.get_running_loop().epoch())
            results[name] = await world.agent(name, store=store).run("go", session=name, parent=world.wallet())
            if len(results) == len(names):  # who waits for tasks waits for each of their steps
                done.set_result(None)

        tasks = [asyncio.ensure_future(fly(name)) for name in names]
        await done
        [wallet] = await world.store.wallets("w")
        assert all(task.done() or len(results) == len(names) for task in tasks)
        assert (wallet.tokens, wallet.held_tokens) == (world.billed, 0), f"{wallet}: {world.billed} were billed"
        assert world.billed <= limit
        assert Counter(world.paid) == dict.fromkeys(names, calls - 1) or limit < 9_000
        for name, result in results.items():
            assert result.text == "done", (name, result)

    return scenario


def hold_runs(world, found):
    """Paid once, nothing forgotten, nothing over, everybody answered."""
    results, held = found
    twice = {name: count for name, count in Counter(world.paid).items() if count > world.calls - 1}
    assert not twice, f"paid more than once: {twice}"
    assert held >= world.billed, f"{world.billed} were billed, and the wallet knows of {held}"
    assert held <= world.limit
    for name, result in results.items():
        unknown = result.unknown_effects
        assert result.text == "done", (name, result)
        assert world.paid.count(name) + len(unknown) >= world.calls - 1, f"{name}: a payment was lost: {result}"


def hold_family(world, found):
    """The same where several agents do the work of one run."""
    result, used = found
    assert len(world.paid) <= 1, f"paid {len(world.paid)} times"
    assert world.billed <= used <= world.limit, f"{used} are used, {world.billed} were billed"
    if result is not None:
        assert result.text == "done", result
        assert len(world.paid) + len(result.unknown_effects) >= 1, f"the payment was lost: {result}"


def dying(limit, calls, names, *, detours=None):
    return Dying(lambda: Runs(limit, calls, names), hold_runs, detours=detours)


def dying_family(kind, *, detours=None):
    return Dying(lambda: kind(9_000, 2), hold_family, detours=detours)
