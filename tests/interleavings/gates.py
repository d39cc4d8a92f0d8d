"""Clients of a gate for which every order of events is tried: the rules of the gate, and an upstream that bills."""

import asyncio
import json

from glidepath import Budget
from glidepath.apps.gate import GateAnswer, GateGovernor, GateLimits, GateRequest, Line, PriceList, Upstream
from glidepath.sessions import MemoryStore

from .agents import TOKEN, limit_spending, now

UPSTREAM = Upstream("openai", "openai-chat", "http://127.0.0.1:1", "passthrough")
TOOL = {"type": "function", "function": {"name": "work", "parameters": {"type": "object"}}}
REPLY = 60  # tokens of a reply, but for one that is long


class GateWorld:
    """A provider that bills what it is sent and what it writes, and the gates in front of it."""

    def __init__(
        self, limit=None, *, shared=None, wallet=None, share=None, store=None, most_calls=None, in_money=False
    ):
        self.limit, self.shared, self.wallet, self.share = limit, shared, wallet, share
        self.most_calls, self.in_money = most_calls, in_money
        self.billed = self.made = 0
        self.lines = []
        self.store = store
        if wallet is not None and store is None:
            self.store = MemoryStore(clock=lambda: asyncio.get_running_loop().epoch())

    def open_gate(self, store=None):
        """A gate, as another process would have it: with rules, lines and holds of its own."""
        budgets = [] if self.shared is None else [Budget(self._limits(self.shared))]
        if self.wallet is not None:
            store = store or self.store
            budgets = [Budget(self._limits(self.wallet), name="w", store=store)]
            if self.share is not None:  # of the window that the wallet is then
                name = f"share{len(self.lines)}"
                budgets.append(Budget(self._limits(self.share), name=name, store=store))
        limits = GateLimits(tokens=self.limit, calls=self.most_calls)
        if self.in_money:
            limits = GateLimits(money=None if self.limit is None else self.limit * TOKEN, calls=self.most_calls)
        line = Line("key", limits, budgets=budgets, clock=now)
        self.lines.append(line)
        prices = PriceList({"m": (TOKEN / 10**6, TOKEN / 10**6)})  # dollars for a million
        return GateGovernor(line_of=lambda _: line, upstreams={"openai-chat": UPSTREAM}, prices=prices, clock=now)

    def move(self):
        """Somebody puts the first gate below another wallet, while its calls are in flight."""
        line = self.lines[0]
        line.change(line.limits, [Budget(self._limits(self.wallet), name="w2", store=self.store)], ())

    async def read_wallets(self):
        """What is used and held of all wallets together, in tokens; nothing where none is there."""
        names = ("w", "w2") if self.wallet is not None else ()
        found = [self.read_wallet(one) for name in names for one in await self.store.wallets(name)]
        return [tuple(map(sum, zip(*found, strict=True)))] if found else []

    def _limits(self, most):
        return limit_spending(most, in_money=self.in_money)

    def sum_used(self, line):
        """What the runs of a line have used, in tokens."""
        agents = [agent for session in line.sessions.values() for agent in session.agents.values()]
        return sum(agent.money // TOKEN if self.in_money else agent.tokens for agent in agents)

    def read_wallet(self, wallet):
        """What is used and held of a wallet, in tokens."""
        if self.in_money:
            return wallet.money // TOKEN, wallet.held_money // TOKEN
        return wallet.tokens, wallet.held_tokens

    async def close(self):
        for line in self.lines:
            await line.close()


class Client:
    """A program with a tool: so many calls, and then its answer. It knows nothing of budgets."""

    def __init__(self, world, gate, name, calls, *, reply=REPLY, run="run"):
        self.world, self.gate, self.name, self.calls, self.reply, self.run = world, gate, name, calls, reply, run
        self.text = ""
        self.messages = [{"role": "user", "content": f"work, {name}"}]
        self.made = 0
        self.is_landed = False
        self.pause = 0.0
        self.after_call = lambda: None
        self.trouble = None
        self.is_stopped = self.sent_after_stop = False

    def _request(self):
        body = {
            "model": "m",
            "stream": True,
            "max_tokens": 2 * self.reply,
            "messages": self.messages,
            "tools": [TOOL],
        }
        return GateRequest(
            dialect="openai-chat",
            operation="generate",
            line=(self.run,),
            method="POST",
            path="/v1/chat/completions",
            query=b"",
            headers=[(b"x-glidepath-agent", self.name.encode())],
            body=json.dumps(body).encode(),
        )

    async def fly(self):
        while self.made < self.calls:
            passage = await self.gate.begin(self._request())
            if isinstance(passage, GateAnswer):
                self.is_landed = True
                self.text = passage.said or f"status {passage.status}"
                return self
            try:
                said, calls = await self._exchange(passage)
            finally:
                await passage.close()
            self.made += 1
            self.is_landed = passage.landing is not None
            if not calls:
                self.text = said
                return self
            call = {"id": calls, "type": "function", "function": {"name": "work", "arguments": "{}"}}
            self.messages += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": calls, "content": "done"},
            ]
            self.after_call()
            if self.trouble == "landed":
                self.messages.append({"role": "user", "content": "a long document " * 600})
                for line in self.world.lines:
                    line.sessions[self.run].order = "enough"
        return self

    async def _exchange(self, passage):
        """Send a call on, read the reply to its end, or to where it is cut."""
        self.sent_after_stop = self.is_stopped
        await asyncio.sleep(0)
        if self.trouble == "refused" and not self.made:
            passage.open(429, [])
            return "too many requests", ""
        request = json.loads(passage.body)
        is_last = request.get("tool_choice") == "none" or self.made == self.calls - 1
        self.world.made += 1
        passage.open(200, [(b"content-type", b"text/event-stream")])
        prompt, out, came = len(passage.body) // 6, b"", 0
        self.world.billed += prompt
        pieces = 1 if is_last and self.reply == REPLY else self.reply // REPLY
        for _ in range(pieces):
            self.world.billed += REPLY
            came += REPLY
            out += passage.feed(_event({"content": "word " * (REPLY * 4 // 5)}))
            if passage.is_short:
                await passage.make_room()
            if passage.stopped is not None and not passage.is_cut:
                return passage.cut_now("stopped"), ""
            if passage.is_cut:
                break
            await asyncio.sleep(self.pause)
        name = "" if is_last else f"{self.name}-{self.made}"
        if not passage.is_cut:
            call = [{"index": 0, "id": name, "type": "function", "function": {"name": "work", "arguments": "{}"}}]
            out += passage.feed(_event({"tool_calls": call} if name else {}, "tool_calls" if name else "stop"))
            used = {"prompt_tokens": prompt, "completion_tokens": came, "total_tokens": prompt + came}
            out += passage.feed(_event(None, usage=used) + b"data: [DONE]\n\n")
        out += passage.finish()
        return out.decode(), name if b'"tool_calls"' in out else ""


def _event(delta, stop=None, usage=None):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": stop}]
    data = {"id": "r", "object": "chat.completion.chunk", "model": "m", "choices": choices}
    if usage:
        data["usage"] = usage
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def leftovers(line):
    """What a line keeps for nobody, once all its clients are done."""
    agents = [agent for session in line.sessions.values() for agent in session.agents.values()]
    kept = {agent: agent.meter.landing_kept() for agent in agents}
    for agent in agents:
        if agent.in_flight:
            yield f"{agent.id} has {agent.in_flight} calls in flight"
        if (kept[agent].tokens or kept[agent].money) and not agent.started:
            yield f"{agent.id} is down, and {kept[agent]} are kept for its landing"
        for node in agent.meter.lineage:
            below = [amount for one, amount in kept.items() if node in one.meter.above]
            for what, reserved, pledged, aside, landings in (
                ("tokens", node.reserved_tokens, node.pledged_tokens, node.aside_tokens, [it.tokens for it in below]),
                ("money", node.reserved_money, node.pledged_money, node.aside_money, [it.money for it in below]),
            ):
                if reserved or pledged:
                    yield f"{agent.id}: {node!r} has {reserved} {what} reserved, {pledged} pledged"
                if aside != sum(landings):
                    yield f"{agent.id}: {node!r} keeps {aside} {what} for landings that have {sum(landings)}"
        if agent.meter.tree.queue:
            yield f"{len(agent.meter.tree.queue)} wait"
