"""Agents of several processes on one wallet, families of them, and calls that go on when nobody waits any more."""

import asyncio

from glidepath import Agent, Budget, CancelToken, Limits, LoopOutcome, tool

from .agents import TOKEN, Payer, Process, World, is_settled, now

LONGEST_WAIT = 30.0  # seconds of a whole scenario: longer than that, somebody waits for nothing
PATIENCE_OF_A_WALLET = 130.0
LOOKS = 0.5  # seconds: between those at which anything happens, too


class WalletWorld(World):
    """Nothing is durable here but the wallet."""

    def family(self, name, children):
        """An agent of its own process; its tool starts so many others at once, on the same part of the wallet."""
        own = [self.agent(f"{name}{number}", store=False) for number in range(children)]

        @tool(isolation="inline")
        async def pay() -> str:
            """Have others do it."""
            done = await asyncio.gather(*[child.run("go") for child in own])
            # Short: what a model reports for a long prompt must not look like too little.
            return " ".join("done" if result.text == "done" else "nothing" for result in done)

        return Agent(model=self.model(2), tools=[pay], limits=self.limits(max_iterations=9))

    def wallet_of_a_process(self):
        return self.wallet(Process(self.store))

    def read_wallet(self):
        """Used and held; nothing where nobody has drawn yet."""
        accounts = [*self.store._book.periods.values()]
        what, unit = (1, TOKEN) if self.in_money else (0, 1)
        return sum(one.used[what] for one in accounts) // unit, sum(one.held[what] for one in accounts) // unit


def on_one_wallet(limit, members, *, greedy=True, pause=1.0, in_money=False):
    """So many agents; a number says how many children each starts, and None that it pays by itself."""

    async def scenario():
        world = WalletWorld(limit, 2, pause, greedy=greedy, in_money=in_money)
        runs = []
        for name, children in zip("abc", members, strict=False):
            agent = world.agent(name, store=False) if children is None else world.family(name, children)
            runs.append(asyncio.ensure_future(agent.run("go", parent=world.wallet_of_a_process())))
        while not all(run.done() for run in runs):
            await asyncio.sleep(LOOKS)
            used, held = world.read_wallet()
            assert used + held <= limit, f"{used} are used and {held} are held of {limit}"
        assert not world.exceeded, world.exceeded[0]
        # Two families of two processes may wait for what the other keeps: nobody in between knows that. Not forever.
        patience = PATIENCE_OF_A_WALLET if sum(bool(children) for children in members) > 1 else LONGEST_WAIT
        assert now() < patience, f"somebody waited: it took {now():g} s"
        for result in [run.result() for run in runs]:
            assert result.text == "done" or result.iterations == 0, result
        assert world.billed <= limit, f"{world.billed} were billed of {limit}"
        assert world.read_wallet() == (world.billed, 0), f"{world.read_wallet()} is there, {world.billed} were billed"

    return scenario


def letting_go(limit, cancelled_after):
    """A run is cancelled while a child of its goes on: nobody waits for that, and it is billed."""

    async def scenario():
        world, token = WalletWorld(limit, 1, 3.0, greedy=True), CancelToken()
        child, tasks = world.agent("child", store=False), []

        @tool(isolation="inline")
        async def pay() -> str:
            """Have another do it, whatever happens."""
            tasks.append(asyncio.ensure_future(child.run("go")))
            while not tasks[0].done():
                try:
                    await asyncio.shield(tasks[0])
                except asyncio.CancelledError:
                    continue
            return "paid"

        model = Payer(2, world.bill, 0.5, greedy=True)
        agent = Agent(model=model, tools=[pay], limits=Limits(max_tokens=limit, max_iterations=9))
        run = asyncio.ensure_future(agent.run("go", parent=world.wallet_of_a_process(), cancel=token))
        await asyncio.sleep(cancelled_after)
        token.cancel("enough")
        result = await run
        await asyncio.gather(*tasks)
        used, held = world.read_wallet()
        assert world.billed <= used + held <= limit, f"{used} are used, {world.billed} were billed"
        assert result.outcome in (LoopOutcome.CANCELLED, LoopOutcome.DONE), result

    return scenario


def unequal(limit):
    """One agent whose calls are large, and two whose calls are small and many: the large one is not passed by."""

    async def scenario():
        world, budget, seen = World(limit, 2), Budget(Limits(max_tokens=limit)), []

        def look_whether_it_passes(request):
            made = sum(message.role == "assistant" for message in request.messages)
            queue = budget.meter.tree.queue
            gone = [place for place, one in enumerate(seen) if one not in queue]
            ahead = [one for one in seen[: gone[0] if gone else None] if one in queue and one.claim is None]
            if made and request.tools and ahead:
                passed.append(f"a call went ahead of {len(ahead)} that waited, {now():g} s after the start")

        passed, runs = [], []
        for name, size, calls, pause in (("a", 900, 3, 1.0), ("b", 100, 9, 0.75), ("c", 100, 9, 1.0)):
            agent = world.agent(name, store=False)
            model = Payer(calls, world.bill, pause, greedy=True, size=size)
            model.begins = look_whether_it_passes
            agent = Agent(model=model, tools=agent.config.tools, limits=Limits(max_tokens=limit, max_iterations=20))
            runs.append(asyncio.ensure_future(agent.run("go", parent=budget)))
        while not all(run.done() for run in runs):
            await asyncio.sleep(0.15)
            seen[:], meter = budget.meter.tree.queue, budget.meter
            promised = meter.tokens + meter.reserved_tokens + meter.aside_tokens
            assert promised <= limit, f"{promised} of {limit} are promised"
        for run in runs:
            run.result()
        assert is_settled(budget)
        assert not passed, passed[0]

    return scenario
