"""What is tried in every order: agents on one budget, durable runs that die, clients of gates; and what must hold."""

import asyncio
from collections import Counter
from math import inf

from glidepath import Agent, Budget, CancelToken, LoopOutcome, Plugin, tool
from glidepath.events import RunEnded
from glidepath.run import Amount

from .agents import CALL, TOKEN, World, is_settled, now, sum_promised
from .gates import Client, GateWorld, leftovers

AFTER_ONE_HAS_GONE = 560.0  # and when a program has gone that may come back
LONGEST_WAIT = 60.0  # virtual seconds of a whole scenario: longer than that, two wait for each other


class EndCounter(Plugin):
    """Counts how often a run has ended."""

    def __init__(self):
        self.ends = 0

    def event_observer(self, event):
        self.ends += isinstance(event, RunEnded)


def sharing_one_budget(agents, calls, limit, *, cancelled=False, in_money=False, turns=None):
    """So many agents on one budget; each result, and how many terminal events its run had.

    With `turns` they have so many calls of the model together.
    """

    async def scenario():
        world, ends, token = World(limit, calls, in_money=in_money), Counter(), CancelToken()
        budget = Budget(world.limits(max_iterations=turns))

        async def one(name):
            counter = EndCounter()
            agent = world.agent(name, store=False, plugins=[counter])
            result = await agent.run("go", parent=budget, cancel=token if cancelled and name == "a" else None)
            ends[name] = counter.ends
            return result

        tasks = [asyncio.ensure_future(one(name)) for name in "abc"[:agents]]
        if cancelled:
            await asyncio.sleep(0)
            token.cancel("enough")
        results = [await task for task in tasks]
        assert is_settled(budget)
        assert set(ends.values()) == {1}
        counted, landings = budget.meter.turns, sum(result.landing_calls for result in results)
        assert turns is None or counted <= turns, f"{counted} turns of {turns}"
        assert counted + landings == world.made or cancelled, (
            f"{counted} turns, {landings} landings: {world.made} calls"
        )
        return results, world.sum_charged(budget), world.billed

    return scenario


def taking_time(agents, calls, limit, *, greedy=False, in_money=False):
    """The same with calls and tools that take a second each, and somebody who looks whether anyone waits in vain."""

    async def scenario():
        world = World(limit, calls, pause=1.0, greedy=greedy, in_money=in_money)
        budget = Budget(world.limits())
        runs = [world.agent(name, store=False).run("go", parent=budget) for name in "abc"[:agents]]
        tasks = [asyncio.ensure_future(run) for run in runs]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.5)  # between the seconds at which anything happens, too
            meter, head = budget.meter, next(iter(budget.meter.tree.queue), None)
            promised = sum_promised(meter, in_money=in_money)
            assert promised <= limit, f"{promised} of {limit} are promised"
            if now() % 1 and head is not None:
                assert not could_begin(head), "somebody waits for what is free"
        results = [task.result() for task in tasks]
        assert is_settled(budget)
        return results, world.sum_charged(budget), world.billed

    return scenario


def could_begin(waiting):
    """Whether there is room for a run that waits to start, or for a call that nobody's start stands behind."""
    claim, meter = waiting.claim, waiting.meter
    if claim is not None:
        return meter.parent.has_now(claim)
    return not meter.tree.has_starts() and meter.has_now(Amount(2 * CALL, 2 * CALL * TOKEN))


def hold_the_budget(limit, *, everybody_answers):
    def holds(found):
        results, charged, billed = found
        assert charged == sum(result.usage.total for result in results) <= limit
        # A call that was cancelled before it was billed is charged by our estimate; all others as billed.
        assert charged == billed or any(result.outcome is LoopOutcome.CANCELLED for result in results)
        assert charged >= billed
        for result in results:
            # What was paid for is delivered: a run that had its last call has its text.
            assert result.text == "done" or result.iterations == 0 or result.outcome is LoopOutcome.CANCELLED, result
        if everybody_answers:
            assert [result.text for result in results] == ["done"] * len(results)

    return holds


def parents_with_children(limit, parents, children, *, in_money=False):
    """Agents whose tool starts others at once, all on one budget."""

    async def scenario():
        world = World(limit, 1, in_money=in_money)
        budget = Budget(world.limits())

        def make(name):
            own = [world.agent(f"{name}{number}", store=False) for number in range(children)]

            @tool(isolation="inline")
            async def pay() -> str:
                """Have others do it."""
                done = await asyncio.gather(*[child.run("go") for child in own])
                return " ".join(result.text or "nothing" for result in done)

            return Agent(model=world.model(2), tools=[pay], limits=world.limits(max_iterations=9))

        tasks = [asyncio.ensure_future(make(name).run("go", parent=budget)) for name in "ab"[:parents]]
        results = [await task for task in tasks]
        assert is_settled(budget)
        assert world.sum_charged(budget) == world.billed <= limit
        for result in results:
            assert result.text == "done" or result.iterations == 0, result
        return [result.text for result in results]

    return scenario


# --- gates ------------------------------------------------------------------------------------------------------------


def behind_gates(clients, calls, *, gates=1, family=False, reply=(), trouble=None, **budgets):
    """So many programs behind so many gates. `family`: they are agents of one run. `trouble` happens to the first.

    Trouble is `leaves` (its client is cancelled), `stopped` (its run), `landed` (by a person's order, after a long
    message), `refused` (the provider does not take its first call) or `moved` (after each of its calls the gate is put
    below another wallet).
    """

    async def scenario():
        world = GateWorld(**budgets)
        doors = [world.open_gate() for _ in range(gates)]
        programs = [
            Client(
                world,
                doors[number % gates],
                name,
                calls,
                reply=(reply or [60] * clients)[number],
                run="run" if family else name,
            )
            for number, name in enumerate("abc"[:clients])
        ]
        programs[0].trouble = trouble
        if trouble == "moved":
            programs[0].after_call = world.move
        tasks = [asyncio.ensure_future(one.fly()) for one in programs]
        if trouble in ("leaves", "stopped"):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if trouble == "leaves":
                tasks[0].cancel()
            else:
                session = world.lines[0].sessions.get(programs[0].run)
                if session is not None:
                    session.stopped, programs[0].is_stopped = "enough", True
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()
        took, left = now(), [one for line in world.lines for one in leftovers(line)]
        used = sum(map(world.sum_used, world.lines))
        await world.close()
        if world.share is not None:
            for number, line in enumerate(world.lines):
                [share] = await world.store.wallets(f"share{number}") or [None]
                mine = world.sum_used(line)
                found = (0, 0) if share is None else world.read_wallet(share)
                assert found == (mine, 0), f"share {number} has {found}, and {mine} were used"
                assert mine <= world.share, f"{mine} of a share of {world.share} are used"
        turns = [session.meter.turns for line in world.lines for session in line.sessions.values()]
        assert world.most_calls is None or max(turns, default=0) <= world.most_calls, f"{turns} of {world.most_calls}"
        assert sum(turns) == world.made, f"{turns} calls are counted, and {world.made} were made"
        return world, programs, took, left, used, await world.read_wallets()

    return scenario


def hold_gates(*, everybody_answers=False):
    def holds(found):
        world, programs, took, left, used, wallets = found
        limit = min([one for one in (world.limit, world.shared, world.wallet) if one is not None], default=inf)
        if world.limit is not None and len({one.run for one in programs}) > 1:
            limit = world.limit * len(programs)
        if any(one.trouble == "moved" for one in programs):
            limit *= 2  # of each of two wallets
        assert world.billed <= used <= limit, f"{world.billed} billed, {used} counted, of {limit}"
        if not any(one.trouble or one.is_landed for one in programs):
            assert used == world.billed, f"{used} counted, {world.billed} billed, and all of them said so"
        assert not left, left
        patience = AFTER_ONE_HAS_GONE if any(one.trouble == "leaves" for one in programs) else LONGEST_WAIT
        assert took < patience, f"somebody waited: it took {took:g} s"
        assert wallets in ([], [(used, 0)]), f"{used} were used, and the wallet has {wallets}"
        for one in programs:
            assert one.trouble or one.text, f"{one.name} has no answer"
            assert not (one.is_stopped and one.sent_after_stop), f"{one.name} made a call after its run was stopped"
        if everybody_answers:
            assert all(not one.is_landed for one in programs), "it pays for all of them"

    return holds
