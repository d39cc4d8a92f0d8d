"""Random flights: everything about a run is drawn from a seed, and it is flown in virtual time.

`fly(seed)` returns what there is to see of it: every event, the result, every byte of the journal. The same seed gives
the same, so this tree can be compared with an older one:

    python tests/properties/random_flights.py 0 10000 > new.txt
    PYTHONPATH=/older/src python tests/properties/random_flights.py 0 10000 > old.txt
"""

import asyncio
import hashlib
import itertools
import logging
import random
import sys
from collections import Counter

from glidepath import (
    Agent,
    AgentState,
    Budget,
    CancelToken,
    GuardrailsConfig,
    Limits,
    ModelError,
    Plugin,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    ToolContext,
    ToolError,
    ToolResult,
    Usage,
    _wire,
    tool,
)
from glidepath.errors import TransientError
from glidepath.models import ReasoningDelta, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.sessions import MemoryStore, Session
from glidepath.spi import AfterDecision, Allow, Block, Gate
from glidepath.testing import VirtualClock

WORDS = ("alpha ", "beta ", "x", "", "gamma\n", "delta, ", "0x4f2a", "Zürich ", "1,2,3,4,5,6,7\n", "a" * 90)
ODD = 0.12  # how often something unusual happens in a flight that has unusual things at all


class Odds:
    """The dice of one flight; `at` is for what must not depend on the order in which things happen."""

    def __init__(self, seed):
        self.seed = seed
        self.dice = random.Random(seed)
        self.wild = self.dice.random() < 0.6

    def often(self, share):
        return self.dice.random() < share

    def at(self, *place):
        return random.Random(f"{self.seed}:{place}")


def reply(odds, who, turn, turns):
    """What a model streams in one turn: a list of deltas, waits and errors."""
    dice = odds.at(who, turn)
    odd = odds.wild and dice.random() < ODD
    said = [TextDelta(dice.choice(WORDS)) for _ in range(dice.choice((0, 1, 3, 8, 20, 60 if odd else 5)))]
    if odd and dice.random() < 0.2:
        said.insert(0, dice.choice((ThinkingDelta("hm "), ReasoningDelta("why", "opaque", "acme"))))
    for _ in range(dice.choice((0, 0, 1, 2))):
        said.insert(dice.randint(0, len(said)), dice.choice((0.0, 0.1, 3.0)))
    last = turn >= turns
    count = 0 if last else dice.choice((1, 1, 1, 1, 1, 2 if odd else 1, 0 if odd else 1))
    for index in range(count):
        name = dice.choice(
            ("look", "look", "wait", "act", "ask", "fail", "spawn", "end" if odd else "look", "none" if odd else "act")
        )
        query = dice.choice(("q", f"q{turn}", f"q{turn % 3}"))
        arguments = f'{{"query": "{query}", "limit": {dice.randint(0, 5)}}}'
        if odd and dice.random() < 0.3:
            arguments = dice.choice(("", "{", "[]", '{"query": 3}', '{"limit": 1, "query": "z"}'))
        half = dice.randint(0, len(arguments))
        call_id = dice.choice((f"c{turn}-{index}", f"c{turn}-{index}", "same" if odd else f"d{turn}-{index}"))
        if odd and dice.random() < 0.1:
            call_id = 7  # no text
        said.append(ToolCallDelta(index, call_id, name, arguments[:half]))
        if half < len(arguments):
            said.append(ToolCallDelta(index, "", "", arguments[half:]))
    if odd and dice.random() < 0.4:
        said.insert(
            dice.randint(0, len(said)),
            dice.choice((TransientError("503"), ModelError("bad"), ValueError("oops"), 200.0)),
        )
    stop = dice.choice(
        ("tool_use" if count else "end_turn",) * 6 + (("max_tokens", "refusal", "weird", "pause_turn") if odd else ())
    )
    usage = dice.choice(("honest", "honest", "honest", "none", "low", "cached")) if odds.wild else "honest"
    if not (odd and dice.random() < 0.1):
        said.append((stop, usage))
    return said


class Pilot:
    """A model that streams what the odds say."""

    def __init__(self, odds, who, turns, *, window=None, most=4000):
        self.name, self.max_output_tokens, self.context_window = who, most, window
        self.odds, self.turns, self.turn = odds, turns, itertools.count(1)

    async def stream(self, request):
        written = 0
        for item in reply(self.odds, self.name, next(self.turn), self.turns):
            if isinstance(item, float):
                await asyncio.sleep(item)
            elif isinstance(item, Exception):
                raise item
            elif isinstance(item, tuple):
                sent = 60 + 50 * len(request.messages)
                cached = Usage(sent, written + 5, cache_read=sent // 2)
                usages = {"honest": Usage(sent, written + 5), "none": None, "low": Usage(1, 1), "cached": cached}
                yield StreamEnd(item[0], usages[item[1]])
            else:
                written += 1 + len(getattr(item, "text", "")) // 4
                yield item


def tools_of(odds, spawned):
    calls = Counter()

    def dice(name):
        calls[name] += 1
        return odds.at(name, calls[name])

    @tool
    async def look(query: str, limit: int = 3) -> str:
        """Look."""
        return f"saw {query} {limit}" * dice("look").choice((1, 1, 1, 40))

    @tool(read_only=True)
    async def wait(query: str, limit: int = 3) -> str:
        """Wait."""
        await asyncio.sleep(dice("wait").choice((0, 0.5, 7.0, 90.0 if odds.wild else 1.0)))
        return "ok"

    @tool
    async def act(context: ToolContext, query: str, limit: int = 3):
        """Act."""
        chance = dice("act")
        context.report(f"at {query}")
        if chance.random() < 0.3:
            await asyncio.sleep(0.2)
        return chance.choice(
            ("done", {"done": query}, ToolResult("voted", terminate=chance.random() < 0.1), None, ["a", 1])
        )

    @tool
    async def ask(query: str, limit: int = 3) -> str:
        """Ask."""
        return dice("ask").choice(("yes", "yes", "no", "perhaps"))

    @tool
    async def fail(query: str, limit: int = 3) -> str:
        """Fail."""
        chance = dice("fail")
        if chance.random() < 0.5:
            raise chance.choice((ToolError("no such thing"), ValueError("bad"), RuntimeError("boom"), SystemExit(3)))
        return "fine"

    @tool
    async def spawn(context: ToolContext, query: str, limit: int = 3) -> str:
        """Spawn."""
        if dice("spawn").random() < 0.5 or not spawned:
            return "nobody"
        return (await context.spawn(spawned[0], query)).text[:50]

    @tool(terminal=odds.often(0.2))
    async def end(query: str, limit: int = 3) -> str:
        """End."""
        return f"the end of {query}"

    return [look, wait, act, ask, fail, spawn, end]


def plugins_of(odds):
    """Plugins, each there or not; half of them have nothing to say."""
    seen = Counter()

    def says(name, share):
        seen[name] += 1
        return odds.at(name, seen[name]).random() < share

    class Before(Plugin):
        def before_tool_call(self, context):
            return Block("not now") if says("before", 0.1) else Allow()

    class After(Plugin):
        def after_tool_call(self, context):
            return AfterDecision(content="changed") if says("after", 0.2) else None

    class Doors(Plugin):
        def tool_gate(self, context):
            return Gate(allowed=context.tools - {"act"}) if says("gate", 0.2) else None

    class Views(Plugin):
        def context_transform(self, context):
            return list(context.messages) if says("view", 0.5) else None

    class Steers(Plugin):
        def steering(self, context):
            return "hurry" if says("steer", 0.1) else None

    class Follows(Plugin):
        def follow_up(self, context):
            return "and then?" if says("follow", 0.1) else None

    class Watches(Plugin):
        def event_observer(self, event):
            seen["events"] += 1
            if says("observer", 0.002):
                raise ValueError("observer")

    class Dreams(Plugin):
        async def event_observer(self, event):
            await asyncio.sleep(0)

    kinds = (Before, After, Doors, Views, Steers, Follows, Watches, Dreams)
    return [kind() for kind in kinds if odds.often(0.1)]


class Fickle(ResourceConstraint):
    """A constraint that complains now and then."""

    name = "Fickle"
    state = AgentState.BUDGET_EXCEEDED

    def __init__(self, odds):
        self.odds, self.asked = odds, itertools.count()

    async def validate(self, context):
        if self.odds.at("fickle", next(self.asked)).random() < 0.05:
            return ResourceValidation.violation("a bad day")
        return ResourceValidation.ok()

    def on_violation(self, validation):
        return ResourceAction.WARN_CONTINUE if self.odds.at("mood").random() < 0.5 else ResourceAction.GRACEFUL_EXIT


def limits_of(odds):
    choose = odds.dice.choice
    return Limits(
        max_iterations=choose((3, 8, 20, 60, 60)),
        max_tokens=choose((None, 1500, 5000, 50_000, 10**6, 10**6)),
        max_cost=choose((None, None, "0.02", "5")),
        max_tool_calls=choose((None, None, None, 2, 6, 100)),
        timeout=choose((None, 10, 60, 600)),
    )


def agent_of(odds, store, sink):
    dice = odds.dice
    turns = dice.choice((1, 3, 6, 12, 20, 30))
    child = Agent(
        model=Pilot(odds, "child", dice.choice((0, 2)), most=200),
        tools=[tools_of(odds, [])[0]],
        limits=Limits(max_iterations=3),
    )
    settings = {
        "model": Pilot(
            odds,
            "pilot",
            turns,
            window=dice.choice((None, None, None, 3000, 100_000)),
            most=dice.choice((60, 400, 4000)),
        ),
        "tools": tools_of(odds, [child] if odds.often(0.5) else []),
        "limits": limits_of(odds),
        "plugins": plugins_of(odds) if odds.wild else [],
        "prices": {"pilot": (1.0, 2.0), "child": (1.0, 2.0), "second": (3.0, 4.0)},
        "event_sink": sink if odds.often(0.3) else None,
        "store": store,
    }
    if odds.often(0.2):
        settings["guardrails"] = GuardrailsConfig(max_repeated_tool_steps=2, max_error_streak=2)
    if odds.wild and odds.often(0.1):
        settings["constraints"] = [Fickle(odds)]
    if odds.wild and odds.often(0.15):
        settings["fallback_models"] = [Pilot(odds, "second", turns)]
    if odds.often(0.1):
        settings["landing"] = dice.choice(("off", "force", "withdraw"))
    return Agent(**settings)


async def flight(seed, lines):
    odds = Odds(seed)
    loop = asyncio.get_running_loop()
    store = MemoryStore(clock=loop.epoch) if odds.often(0.4) else None
    agent = agent_of(odds, store, lambda event: lines.append(b"sink " + _wire.encode(event)))
    token, dice = CancelToken(), odds.dice
    if odds.often(0.25):
        act = token.cancel if odds.often(0.6) else token.wind_down
        loop.call_later(dice.choice((0.0, 0.05, 0.3, 3.1, 20.0)), act, "enough")
    parent = Budget(Limits(max_tokens=dice.choice((3000, 50_000, 10**6)))) if odds.often(0.2) else None
    options = {"cancel": token, "session": f"s{seed}" if store is not None else Session(f"s{seed}")}
    if parent is not None:
        options["parent"] = parent
    if odds.often(0.5):
        result = await agent.run("Do it.", **options)
    else:
        slow, leaves = odds.often(0.1), dice.randint(1, 400) if odds.often(0.1) else 0
        async with agent.stream("Do it.", **options) as stream:
            async for event in stream:
                lines.append(b"event " + _wire.encode(event))
                if slow:
                    await asyncio.sleep(0.01)
                leaves -= 1
                if leaves == 0:
                    break
        result = stream.result
    lines.append(b"result " + _wire.encode(result))
    if store is not None:
        _, commits = await store.load(f"s{seed}")
        lines.extend(b"commit " + commit.body for commit in commits)
    if parent is not None:
        meter = parent.meter
        lines.append(f"budget {meter.tokens} {meter.money} {meter.reserved_tokens} {meter.aside_tokens}".encode())


def fly(seed):
    """What there is to see of one flight, as lines."""
    lines = []
    logging.disable(logging.CRITICAL)
    try:
        VirtualClock(seed=seed).run(flight(seed, lines))
    except Exception as error:
        lines.append(f"raised {type(error).__name__}: {error}".encode())
    finally:
        logging.disable(logging.NOTSET)
    return lines


def digest(lines):
    return hashlib.blake2b(b"\n".join(lines), digest_size=12).hexdigest()


if __name__ == "__main__":
    first, last = int(sys.argv[1]), int(sys.argv[2])
    for number in range(first, last):
        print(number, digest(fly(number)), flush=True)
