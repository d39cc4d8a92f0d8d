"""Whatever a session is like: it can be forked after each of its turns, and every fork again."""

import asyncio
import random

import pytest

from glidepath import Agent, Limits, approve, deny, tool
from glidepath.sessions import MemoryStore, count_turns, read_journal, send
from glidepath.testing import ScriptedModel, call, calls, say, transcript_errors


@tool
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n} " + "x" * 400


@tool(requires_approval=True)
async def sign(n: int) -> str:
    """Sign."""
    return f"signed {n}"


KID = Agent(model=ScriptedModel().forever(say("kid done")), limits=Limits(max_iterations=3), agent_name="kid")
STEPS = [
    lambda n: call("pay", n=n),
    lambda n: calls(call("pay", n=n), call("sign", n=n)),
    lambda n: call("sign", n=n),
    lambda _: call("kid", task="dig"),
]


def agent(store, *script, strategy, limits=60):
    model = ScriptedModel(list(script), max_output_tokens=300).forever(say("that is all"))
    tools = [pay, sign, KID.as_tool("kid", "Digs.")]
    return Agent(model=model, tools=tools, limits=Limits(max_iterations=limits), store=store, context_strategy=strategy)


async def decided(one, result, session, chance, *, always=True):
    """Decide about whatever waits; or leave the run as it is, waiting."""
    while result.pending and (always or chance.random() < 0.7):
        decision = {waiting.call.id: chance.choice([approve(), deny("no")]) for waiting in result.pending}
        result = await one.resume(session, decisions=decision)
    return result


async def made(store, chance, strategy):
    """A session of a few runs: some are paused, some land early, some were sent a message."""
    for number in range(chance.randint(1, 3)):
        script = [chance.choice(STEPS)(n) for n in range(chance.randint(0, 5))]
        if number and chance.random() < 0.3:
            await send(store, "s", "a note")
        one = agent(store, *script, say("end"), strategy=strategy, limits=chance.choice([3, 60]))
        await decided(one, await one.run(f"prompt {number}", session="s"), "s", chance, always=False)


def told(folded):
    return [message.text for message in folded.messages]


@pytest.mark.parametrize("seed", range(6))
def test_any_session_is_forked_after_each_of_its_turns_and_its_forks_again(seed):
    async def scene():
        chance, store = random.Random(seed), MemoryStore()
        strategy = chance.choice(["none", "compact", "sliding_window", "summarize"])
        await made(store, chance, strategy)
        original = (await read_journal(store, "s")).folded
        before = told(original)
        for at in range(count_turns(original) + 1):
            name, again = f"f{at}", f"g{at}"
            fork = await store.fork("s", at=at, name=name)
            folded = (await read_journal(store, name)).folded
            kept = [text for text in told(folded) if "copy of an earlier one" not in text]
            assert (count_turns(folded), kept) == (at, before[: len(kept)])
            one = agent(store, strategy=strategy)
            resumed = chance.random() < 0.5 or bool(fork.pending)
            result = await (one.resume(name) if resumed else one.run("hey", session=name))
            result = await decided(one, result, name, chance)
            assert result.outcome.name in ("DONE", "WRAPPED_UP"), (at, result.cause)
            assert transcript_errors(result.messages) == []
            await store.fork(name, at=chance.randint(0, at), name=again)
            result = await agent(store, strategy=strategy).run("and you", session=again)
            assert told((await read_journal(store, again)).folded) == [message.text for message in result.messages]
        assert told((await read_journal(store, "s")).folded) == before, "the original has changed"

    asyncio.run(scene())
