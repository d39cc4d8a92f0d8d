"""Write the golden journals of this release: every kind of journal, and what this release reads in it.

    python tests/crash/make_golden.py tests/crash/golden/RELEASE [SCENE ...]

Run it once for every release, before it is tagged, and commit the folder. A test folds all of them with every later
release.
"""

import asyncio
import json
import sys
from contextlib import chdir
from pathlib import Path
from urllib.request import Request, urlopen

from glidepath import Agent, ExecutionMode, Limits, approve, tool
from glidepath.errors import StoreError, TransientError
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import MemoryStore, export_journal, read, read_journal

LIMITS = Limits(max_iterations=12, max_tokens=100_000, max_cost="1", max_tool_calls=30)
TOKENS = Limits(max_tokens=100_000)
PRICES = dict.fromkeys(("pilot", "kid", "backup"), ("3", "15"))


class Mortal(MemoryStore):
    """Takes nothing any more once it is dead."""

    dead = False

    def append(self, *args, **keywords):
        """Write, or die."""
        if self.dead:
            raise StoreError("the process is dead")
        return super().append(*args, **keywords)


class Pilot:
    """Follows a script: for each turn the calls to make, as (id, name, arguments)."""

    max_output_tokens = 200

    def __init__(self, name, turns):
        self.name, self.turns = name, turns

    async def stream(self, request):
        """The next turn of the script; its end, once it is through."""
        step = sum(message.role == "assistant" for message in request.messages)
        if step >= len(self.turns) or not request.tools:
            yield TextDelta(f"{self.name} is done")
            yield StreamEnd("end_turn", Usage(400 + step, 20))
            return
        if step == 0:
            yield TextDelta("let me see")
        for place, (call_id, name, arguments) in enumerate(self.turns[step]):
            yield ToolCallDelta(place, call_id, name, json.dumps(arguments))
        yield StreamEnd("tool_use", Usage(400 + step, 20))


class Down:
    name, max_output_tokens = "pilot", 200

    async def stream(self, request):
        """Never answers."""
        raise TransientError("down")
        yield


def tools(store, die=()):
    """A tool for everything: it looks, writes once, writes again and again, or asks first. It dies in these calls."""

    def effect(n):
        store.dead = store.dead or n in die
        return f"done {n}"

    @tool
    async def send(n: int) -> str:
        """Something that must not happen twice."""
        await asyncio.sleep(0)
        return effect(n)

    @tool(idempotent=True)
    async def put(n: int) -> str:
        """Something that may happen twice."""
        await asyncio.sleep(0)
        return effect(n)

    @tool(requires_approval=True)
    async def pay(n: int) -> str:
        """Something a person decides about."""
        return effect(n)

    return [send, put, pay]


def agent(store, turns, die=(), model=None, **more):
    """An agent that follows this script and dies in these calls."""
    given = {"limits": LIMITS, "prices": PRICES, "default_execution_mode": ExecutionMode.SEQUENTIAL, **more}
    return Agent(
        model=model or Pilot("pilot", turns), tools=[*tools(store, die), *given.pop("also", ())], store=store, **given
    )


def step(*names, first):
    """One turn with these calls, numbered from `first`."""
    return [(f"c{first + place}", name, {"n": first + place}) for place, name in enumerate(names)]


WORK = [step("put", first=1), step("send", "put", "send", first=2)]


async def done(store):
    await agent(store, WORK).run("do the work", session="s")
    await agent(store, [*WORK, *WORK]).run("and again", session="s")


async def crashed(store):
    await agent(store, WORK, die={3}).run("do the work", session="s")


async def resumed(store):
    await agent(store, WORK, die={2}).run("do the work", session="s")
    revive(store)
    await agent(store, WORK).resume("s")


async def paused(store):
    await agent(store, [step("put", "pay", "pay", first=1)]).run("pay", session="s")


async def decided(store):
    await agent(store, [step("put", "pay", first=1)]).run("pay", session="s")
    await agent(store, [step("put", "pay", first=1)]).resume("s", decisions={"c2": approve()})


async def landed(store):
    limits = Limits(max_iterations=2, grace_iterations=1)
    await agent(store, WORK * 3, limits=limits).run("do the work", session="s")


async def cancelled(store):
    from glidepath import CancelToken

    token = CancelToken()

    @tool
    async def stop() -> str:
        """Stop it all."""
        token.cancel("enough")
        await asyncio.sleep(1)
        return "stopped"

    await agent(store, [[("c1", "stop", {})]], also=[stop]).run("go", session="s", cancel=token)


async def fallback(store):
    backup = Pilot("backup", WORK)
    more = {"fallback_models": [backup], "max_retries": 0, "die": {4}}
    await agent(store, [], model=Down(), **more).run("do the work", session="s")


async def family(store):
    kid = Agent(model=Pilot("kid", WORK), tools=tools(store, {3}), agent_name="kid", prices=PRICES)
    helper = kid.as_tool("delegate", "Hand a task over.")
    await agent(store, [[("d1", "delegate", {"task": "work"})]], also=[helper]).run("delegate", session="s")


async def mailed(store):
    from glidepath.sessions import decide, send

    script = [step("put", "pay", first=1)]
    await agent(store, script).run("pay", session="s")
    await decide(store, "s", {"c2": approve()})
    await send(store, "s", "and be quick")
    await agent(store, script).resume("s")


async def steered(store):
    from glidepath.sessions import note_control

    await agent(store, WORK).run("do the work", session="s")
    await note_control(store, "s", {"action": "stop", "reason": "be quick", "who": "ann"})
    await agent(store, WORK).run("and again", session="s")


async def undecided(store):
    await agent(store, [step("put", "pay", first=1)]).run("pay", session="s")
    await agent(store, []).run("never mind", session="s")


async def based(store):
    from glidepath.sessions import checkpoints as bases

    usual, bases.SPAN = bases.SPAN, 6  # a base every few commits, so that the file stays small
    try:
        for prompt in ("do the work", "once more", "and once more"):
            await agent(store, WORK).run(prompt, session="s")
    finally:
        bases.SPAN = usual


async def forked(store):
    from glidepath.sessions import fork

    await agent(store, WORK).run("do the work", session="first")
    await fork(store, "first", at=1, name="s")
    await store.remove("first")


async def imported(store):
    from glidepath.sessions import import_journal

    await agent(store, WORK).run("do the work", session="first")
    await import_journal(store, await export_journal(store, "first"), session_id="s")
    await store.remove("first")


async def repaired(store):
    from glidepath.sessions import repair

    await agent(store, WORK).run("do the work", session="s")
    commits = store._shelves["s"].commits
    torn = commits[4]
    commits[4] = type(torn)(torn.number, torn.body.replace(b"done", b"gone") + b" ", torn.hash)
    await repair(store, "s")


async def redacted(store):
    from glidepath.sessions import RedactingStore
    from glidepath.values import replace

    def hide(text):
        return text.replace("secret", "[hidden]")

    @tool
    async def tell(text: str) -> str:
        """Say it."""
        return f"told {text}"

    script = [[("t1", "tell", {"text": "a secret"})], *WORK]
    flown = agent(store, script, also=[tell])
    flown = Agent(replace(flown.config, store=RedactingStore(store, hide)))
    await flown.run("do the secret work", session="s")


async def charged(store):
    kid = Agent(model=Pilot("kid", WORK), tools=tools(store), agent_name="kid", prices=PRICES)
    helper = kid.as_tool("delegate", "Hand a task over.")
    script = [[("d1", "delegate", {"task": "work"}), ("c9", "put", {"n": 9})]]
    await agent(store, script, also=[helper]).run("delegate", session="s")


async def taped(store):
    """What a gate records of one call of a program that is not ours."""
    from glidepath.gate import Gate
    from glidepath.testing import ScriptedUpstream

    asked = {"model": "pilot", "max_tokens": 50, "messages": [{"role": "user", "content": "do the work"}]}

    def call(gate):
        request = Request(
            f"{gate.url}/v1/messages",
            json.dumps(asked).encode(),
            {"content-type": "application/json", "x-api-key": gate.key, "anthropic-version": "2023-06-01"},
        )
        with urlopen(request) as reply:
            return reply.read()

    place = {"environ": {"HOME": "/home/ann"}, "line": "run-1"}
    with chdir("/"):  # the recording names the folder, and a golden journal is the same wherever it is made
        async with ScriptedUpstream("answer") as up, Gate(TOKENS, up.url, store=store, record=True, **place) as gate:
            await asyncio.to_thread(call, gate)


SCENES = (
    *(done, crashed, resumed, paused, decided, landed, cancelled, fallback, family),
    *(mailed, steered, undecided, based, forked, imported, repaired, redacted, charged, taped),
)


def revive(store):
    """Another process begins: nobody holds a lease any more."""
    store.dead = False
    for shelf in store._shelves.values():
        entry = shelf.entry
        shelf.entry = type(entry)(
            session_id=entry.session_id, head=entry.head, hash=entry.hash, token=entry.token, summary=entry.summary
        )


def read_by_this_release(folded):
    """What a journal says, as far as every release must agree."""
    snapshot, result = folded.snapshot, folded.result
    return {
        "roles": [message.role for message in folded.messages],
        "texts": [message.text for message in folded.messages],
        "outcome": None if result is None else result.outcome.name,
        "text": None if result is None else result.text,
        "iterations": snapshot.iterations,
        "tool_calls": snapshot.tool_calls,
        "tokens": snapshot.tokens,
        "picodollars": snapshot.picodollars,
        "spent": snapshot.spent.usage.total,
        "pending": [] if result is None else [waiting.call.id for waiting in result.pending],
        "intents": sorted(folded.intents),
        "results": sorted(folded.results),
        "children": [child.session_id for child in folded.children],
        "runs": folded.session.totals.runs,
    }


def kinds_of(journal):
    """What a recording says: it is no run, so it has no state."""
    return {"kinds": [record.kind for commit in journal.commits for record in read(commit)]}


async def main(place, *names):
    """Write them all, or these."""
    place.mkdir(parents=True, exist_ok=True)
    for scene in SCENES:
        if names and scene.__name__ not in names:
            continue
        store = Mortal()
        await scene(store)
        revive(store)
        for entry in await store.entries():
            if scene is taped and "/" not in entry.session_id:
                continue  # a foreign session: the recording beside it is what has kinds of its own
            name = f"{scene.__name__}{'.child' if '/' in entry.session_id else ''}"
            (place / f"{name}.jsonl").write_bytes(await export_journal(store, entry.session_id))
            journal = await read_journal(store, entry.session_id)
            said = kinds_of(journal) if scene is taped else read_by_this_release(journal.folded)
            (place / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
