"""Small agents for which every order of events is tried: each call pays once, and the last one answers."""

import asyncio

from glidepath import Agent, Budget, Limits, Usage, tool
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta
from glidepath.sessions import MemoryStore

CALL = 300  # tokens that each call of the model uses


class Payer:
    """Calls `pay` until it has made its calls, or has no tool left; then answers."""

    name, max_output_tokens = "payer", CALL

    def __init__(self, calls, billed):
        self.calls = calls
        self.billed = billed

    async def stream(self, request):
        await asyncio.sleep(0)
        made = sum(message.role == "assistant" for message in request.messages)
        self.billed()
        if request.tools and made < self.calls - 1:
            yield ToolCallDelta(index=0, id=f"c{made}", name="pay", arguments="{}")
            yield StreamEnd("tool_use", Usage(input=200, output=100))
            return
        yield TextDelta("done")
        yield StreamEnd("end_turn", Usage(input=200, output=100))


class Process:
    """The store as another process has it: with a heartbeat of its own."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)


class World:
    """What outlives a process: the store, what was paid, what the provider has billed."""

    def __init__(self, limit, calls):
        self.limit = limit
        self.calls = calls
        self.store = MemoryStore(clock=lambda: asyncio.get_running_loop().epoch())
        self.paid = []
        self.billed = 0

    def bill(self):
        self.billed += CALL

    def agent(self, name, *, store=True, plugins=()):
        @tool(isolation="inline")
        async def pay() -> str:
            """Pay."""
            self.paid.append(name)
            await asyncio.sleep(0)
            return "paid"

        return Agent(
            model=Payer(self.calls, self.bill),
            tools=[pay],
            store=Process(self.store) if store else None,
            plugins=plugins,
            limits=Limits(max_tokens=self.limit, max_iterations=9),
        )

    def wallet(self):
        return Budget(Limits(max_tokens=self.limit), name="w", store=self.store)

    async def run_durably(self, names):
        """Each on its own session, all on one wallet, as processes of their own would."""
        tasks = [
            asyncio.ensure_future(self.agent(name).run("go", session=name, parent=self.wallet())) for name in names
        ]
        return [await task for task in tasks]

    async def resume_all(self):
        """The next process takes up every session in which something was written."""
        results = {}
        for entry in [one for one in await self.store.entries() if one.head]:
            results[entry.session_id] = await self.agent(entry.session_id).resume(
                entry.session_id, parent=self.wallet()
            )
        wallets = await self.store.wallets("w")
        return results, sum(one.tokens + one.held_tokens + one.disputed_tokens for one in wallets)


def is_settled(budget):
    """Nothing is reserved, kept or waited for any more."""
    meter = budget.meter
    return not any(
        (
            meter.reserved_tokens,
            meter.aside_tokens,
            meter.pledged_tokens,
            meter.tree.queue,
            meter.tree.members,
        )
    )
