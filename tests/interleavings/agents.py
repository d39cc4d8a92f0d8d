"""Small agents for which every order of events is tried: each call pays once, and the last one answers."""

import asyncio
from decimal import Decimal

from glidepath import Agent, Budget, Limits, Usage, tool
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta
from glidepath.sessions import MemoryStore
from glidepath.values import Price


def now():
    return asyncio.get_running_loop().time()


CALL = 300  # tokens that each call of the model uses
TOKEN = 10**6  # pico-dollars that one costs, where money is what is limited


def limit_spending(most, *, in_money, **more):
    """Limits of so many tokens, or of what they cost."""
    return Limits(max_cost=Decimal(most * TOKEN) / 10**12, **more) if in_money else Limits(max_tokens=most, **more)


def sum_promised(meter, *, in_money):
    """In tokens: what is used, in flight and kept back."""
    if in_money:
        return (meter.money + meter.reserved_money + meter.aside_money) // TOKEN
    return meter.tokens + meter.reserved_tokens + meter.aside_tokens


class Payer:
    """Calls `pay` until it has made its calls, or has no tool left; then answers.

    `greedy`: each call uses about all that was reserved for it; "at times" only every second one does.
    """

    name = "payer"

    def __init__(
        self, calls, billed, pause=0.0, *, tool="pay", arguments="{}", greedy=False, size=CALL, in_money=False
    ):
        self.calls = calls
        self.billed = billed
        self.pause = pause
        self.tool, self.arguments = tool, arguments
        self.greedy = greedy
        self.max_output_tokens = size
        self.price = Price(TOKEN, TOKEN) if in_money else None
        self.begins = lambda request: None
        self.in_flight = []
        """What the calls that are on their way may cost, together with those of whoever shares this list."""

    async def stream(self, request):
        made = sum(message.role == "assistant" for message in request.messages)
        size = min(self.max_output_tokens, request.max_output_tokens or self.max_output_tokens)
        usage = Usage(input=50 + made * 38, output=size) if self.greedy else Usage(input=200, output=100)
        self.in_flight.append(usage.total)
        self.begins(request)
        await asyncio.sleep(self.pause)
        self.in_flight.remove(usage.total)
        if self.greedy == "at times" and made % 2 == 0:
            usage = Usage(input=usage.input, output=size // 3)
        self.billed(usage.total)
        if request.tools and made < self.calls - 1:
            yield ToolCallDelta(index=0, id=f"c{made}", name=self.tool, arguments=self.arguments)
            yield StreamEnd("tool_use", usage)
            return
        yield TextDelta("done")
        yield StreamEnd("end_turn", usage)


class Process:
    """The store as another process has it: with a heartbeat of its own."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)


class World:
    """What outlives a process: the store, what was paid, what the provider has billed."""

    def __init__(self, limit, calls, pause=0.0, *, greedy=False, in_money=False):
        self.limit = limit
        self.in_money = in_money
        self.calls = calls
        self.pause = pause
        self.greedy = greedy
        self.store = MemoryStore(clock=lambda: asyncio.get_running_loop().epoch())
        self.paid, self.in_flight, self.exceeded = [], [], []
        self.billed = self.made = 0
        self.cancelled, self.late = False, []

    def model(self, calls, **more):
        """A model that calls so often; with what it may cost in flight, no budget is exceeded."""
        model = Payer(calls, self.bill, self.pause, greedy=self.greedy, in_money=self.in_money, **more)
        if self.greedy:
            model.in_flight, model.begins = self.in_flight, self.note_begin
        return model

    def note_begin(self, _):
        worst = self.billed + sum(self.in_flight)
        if worst > self.limit:
            self.exceeded.append(f"{worst} of {self.limit} may be billed, {now():g} s after the start")

    def bill(self, tokens=CALL):
        self.billed, self.made = self.billed + tokens, self.made + 1

    def store_of(self, store):
        """How an agent reaches the store: as a process of its own does, in this way, or not at all."""
        return Process(self.store) if store is True else store or None

    def agent(self, name, *, store=True, plugins=()):
        """An agent of its own process; `store` is how that one reaches the store, if it has one."""

        @tool(isolation="inline")
        async def pay() -> str:
            """Pay."""
            self.paid.append(name)
            if self.cancelled and store:
                self.late.append(name)
            await asyncio.sleep(self.pause)
            return "paid"

        return Agent(
            model=self.model(self.calls),
            tools=[pay],
            store=self.store_of(store),
            plugins=plugins,
            limits=self.limits(max_iterations=9),
        )

    def limits(self, **more):
        """Limits of all that there is to spend."""
        return limit_spending(self.limit, in_money=self.in_money, **more)

    def wallet(self, store=None):
        return Budget(self.limits(), name="w", store=store or self.store)

    def sum_charged(self, budget):
        """What a budget was charged, in tokens."""
        meter = budget.meter
        return meter.money // TOKEN if self.in_money else meter.tokens

    async def run_durably(self, names):
        """Each on its own session, all on one wallet, as processes of their own would."""
        stores = [Process(self.store) for _ in names]
        runs = [
            self.agent(name, store=store).run("go", session=name, parent=self.wallet(store))
            for name, store in zip(names, stores, strict=True)
        ]
        tasks = [asyncio.ensure_future(run) for run in runs]
        return [await task for task in tasks]

    def tell_what_survives(self):
        """All that the next process can find, but for the random part of the names of owners."""
        shelves = [(name, one.entry.head, one.entry.hash, one.entry.token, one.entry.owner is None, one.entry.expires)
                   for name, one in self.store._shelves.items()]  # fmt: skip
        book = self.store._book
        holds = [(one.key, one.leg, one.expires, one.base, one.spent, one.grant, one.firm, one.ended)
                 for one in book.holds.values()]  # fmt: skip
        accounts = [(place, one.used, one.held, one.firm) for place, one in book.periods.items()]
        notes = [len(one.notes) for one in self.store._shelves.values()]
        return (*shelves, *holds, *accounts, *notes, *self.paid, self.billed)

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
            meter.reserved_money,
            meter.aside_tokens,
            meter.aside_money,
            meter.pledged_tokens,
            meter.pledged_money,
            meter.tree.queue,
            meter.tree.members,
        )
    )
