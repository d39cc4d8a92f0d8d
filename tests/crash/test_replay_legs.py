"""A replay covers every leg of a session: pauses, crashes, later runs, retries and children. It never spins."""

import asyncio
import json

import pytest

from glidepath import Agent, CancelToken, ExecutionMode, Limits, LoopOutcome, ToolContext, approve, deny, tool
from glidepath.agent.replay import replay
from glidepath.errors import TransientError
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import MemoryStore, repair
from glidepath.spi import Commit
from glidepath.testing import ScriptedModel, VirtualClock, call, calls, fail, say, virtual

from .frail import Frail

LIMITS = Limits(max_iterations=20, max_tokens=500_000, max_tool_calls=50)
PER_CALL = Usage(1000, 5)


class Pilot:
    """Makes its calls, turn after turn; it knows from the transcript where it stands."""

    max_output_tokens = 200

    def __init__(self, turns, name="pilot", flaky=()):
        self.turns, self.name, self.flaky = turns, name, set(flaky)

    async def stream(self, request):
        last = max(n for n, message in enumerate(request.messages) if message.role == "user" and not message.internal)
        place = sum(message.role == "assistant" for message in request.messages[last:])
        await asyncio.sleep(0.1)
        if place in self.flaky:
            self.flaky.discard(place)
            yield TextDelta("half an ans")
            raise TransientError("the line dropped")
        if place >= len(self.turns) or not request.tools:
            yield TextDelta(f"{self.name} is done")
            yield StreamEnd("end_turn", PER_CALL)
            return
        for number, (name, arguments) in enumerate(self.turns[place]):
            yield ToolCallDelta(number, f"{self.name}-{last}-{place}-{number}", name, json.dumps(arguments))
        yield StreamEnd("tool_use", PER_CALL)


def tools(store=None, fatal=()):
    """Tools that take a while, and die in these calls."""

    async def act(n):
        await asyncio.sleep(0.01 * (n % 3))
        if n in fatal:
            store.die()
        return f"done {n}"

    @tool
    async def send(n: int) -> str:
        """Must not happen twice."""
        return await act(n)

    @tool(idempotent=True)
    async def put(n: int) -> str:
        """May happen twice."""
        return await act(n)

    @tool(requires_approval=True)
    async def pay(n: int) -> str:
        """A person decides."""
        return await act(n)

    return [send, put, pay]


def one(name, *numbers):
    return [(name, {"n": number}) for number in numbers]


WORK = [one("put", 1), [*one("send", 2), *one("put", 3), *one("send", 4)], one("put", 5)]


def flier(store, turns, fatal=(), **more):
    given = {"model": Pilot(turns), "tools": tools(store, fatal), "limits": LIMITS, **more}
    return Agent(store=store, **given)


async def check(agent, store, *, whole=True, until=""):
    found = await replay(agent, store, "s")
    assert found.difference == ""
    assert (found.same, found.whole, found.until) == (True, whole, until)
    assert found.commits == len((await store.load("s"))[1]) - (0 if whole else 1)
    return found


modes = pytest.mark.parametrize("mode", [ExecutionMode.PARALLEL, ExecutionMode.SEQUENTIAL], ids=["together", "in turn"])


@modes
@virtual
async def test_pauses_are_replayed_with_what_was_decided(mode):
    store = MemoryStore()
    turns = [[*one("put", 1), *one("pay", 2, 3)], one("pay", 4)]
    agent = flier(store, turns, default_execution_mode=mode)
    paused = await agent.run("go", session="s")
    first, second = [waiting.call.id for waiting in paused.pending]
    await agent.resume("s", decisions={first: approve()})
    again = await agent.resume("s", decisions={second: deny("no")})
    done = await agent.resume("s", decisions={again.pending[0].call.id: approve({"n": 44})})
    assert done.outcome is LoopOutcome.DONE
    found = await check(agent, store)
    assert found.result.text == done.text


@modes
@pytest.mark.parametrize("fatal", [1, 2, 3, 4, 5])
@virtual
async def test_a_run_that_died_and_went_on_is_replayed_through_its_death(fatal, mode):
    store = Frail(MemoryStore())
    await flier(store, WORK, {fatal}, default_execution_mode=mode).run("go", session="s")
    await store.revive()
    agent = flier(store, WORK, default_execution_mode=mode)
    result = await agent.resume("s")
    assert result.outcome is LoopOutcome.DONE
    await check(agent, store)


@pytest.mark.parametrize("commits", range(1, 10))
@virtual
async def test_a_run_that_died_after_any_commit_is_replayed(commits):
    store = Frail(MemoryStore())
    store.die_after(commits)
    await flier(store, WORK).run("go", session="s")
    await store.revive()
    agent = flier(store, WORK)
    await agent.resume("s")
    await check(agent, store)


@pytest.mark.parametrize("fatal", [(), (3,)], ids=["ended", "died"])
@virtual
async def test_every_run_of_a_session_is_replayed(fatal):
    store = Frail(MemoryStore())
    await flier(store, WORK, fatal).run("go", session="s")
    await store.revive()
    agent = flier(store, WORK)
    await agent.run("and again", session="s")
    await agent.run("and once more", session="s")
    found = await check(agent, store)
    assert found.commits > 12


@virtual
async def test_retries_before_and_in_mid_stream_are_replayed():
    store = MemoryStore()
    agent = flier(store, WORK, model=Pilot(WORK, flaky=(0, 2)))
    result = await agent.run("go", session="s")
    assert result.usage.total > 4 * PER_CALL.total  # the attempts that failed cost something
    await check(agent, store)
    early = MemoryStore()
    model = ScriptedModel([fail(TransientError("503")), call("put", n=1), fail(TransientError("503")), say("done")])
    agent = Agent(model=model, tools=tools(), limits=LIMITS, store=early)
    await agent.run("go", session="s")
    await check(agent, early)


def family(store, fatal=(), how="as_tool", turns=None):
    kid = Agent(model=Pilot(WORK[:2], "kid"), tools=tools(store, fatal), agent_name="kid", limits=LIMITS)

    @tool(name="delegate", idempotent=True, parallel_safe=True)
    async def delegate(task: str, context: ToolContext) -> str:
        """Hand over."""
        return (await context.spawn(kid, task)).text

    helper = kid.as_tool("delegate", "Hand over.") if how == "as_tool" else delegate
    work = turns or [[("delegate", {"task": "a"})], one("put", 9)]
    return Agent(model=Pilot(work), tools=[helper, *tools()], limits=LIMITS, store=store), kid


@pytest.mark.parametrize("how", ["as_tool", "spawn"])
@pytest.mark.parametrize(
    "fatal", [(), (1,), (2,), (3,), (4,)], ids=lambda fatal: f"dies-in-{fatal[0]}" if fatal else "lives"
)
@virtual
async def test_children_are_replayed_through_their_deaths(fatal, how):
    store = Frail(MemoryStore())
    await family(store, fatal, how)[0].run("go", session="s")
    await store.revive()
    agent, kid = family(store, (), how)
    result = await agent.resume("s")
    assert result.outcome is LoopOutcome.DONE
    found = await replay(agent, store, "s", agents={"kid": kid})
    assert (found.difference, found.whole, found.until) == ("", True, "")
    assert len(found.children) == 1
    assert next(iter(found.children.values())).commits > 5


@pytest.mark.parametrize("fatal", [(), (3,)], ids=["lives", "dies"])
@virtual
async def test_a_child_that_waits_for_a_person_is_replayed(fatal):
    @tool(requires_approval=True)
    async def gate(n: int) -> str:
        """Ask first."""
        return f"passed {n}"

    def gated(store, fatal=()):
        kid = Agent(model=Pilot([one("gate", 1), one("gate", 2)], "kid"), tools=[gate], agent_name="kid", limits=LIMITS)
        work = [[("delegate", {"task": "a"}), ("put", {"n": 3})], one("put", 9)]
        helper = kid.as_tool("delegate", "Hand over.")
        return Agent(model=Pilot(work), tools=[helper, *tools(store, fatal)], limits=LIMITS, store=store)

    store = Frail(MemoryStore())
    result = await gated(store, fatal).run("go", session="s")
    await store.revive()
    if fatal:
        result = await gated(store).resume("s")
    for _ in range(2):
        assert result.outcome is LoopOutcome.PAUSED
        result = await gated(store).resume("s", decisions={result.pending[0].call.id: approve()})
    assert result.outcome is LoopOutcome.DONE
    found = await replay(gated(store), store, "s")
    assert (found.difference, found.whole, len(found.children)) == ("", True, 1)


@virtual
async def test_children_beside_other_calls_are_replayed():
    turns = [[("delegate", {"task": "a"}), ("put", {"n": 1}), ("delegate", {"task": "b"}), ("put", {"n": 2})]]
    store = MemoryStore()
    agent, _ = family(store, turns=turns)
    await agent.run("go", session="s")
    found = await check(agent, store)
    assert len(found.children) == 2


@virtual
async def test_a_child_that_would_do_something_else_today_is_a_difference():
    store = MemoryStore()
    await family(store)[0].run("go", session="s")
    other = Agent(
        model=Pilot(WORK[:2], "kid"), system_prompt="Be brief.", tools=tools(), agent_name="kid", limits=LIMITS
    )
    agent = Agent(
        model=Pilot([]), tools=[other.as_tool("delegate", "Hand over."), *tools()], limits=LIMITS, store=store
    )
    found = await replay(agent, store, "s")
    assert not found.same
    assert found.difference == "s/pilot-0-0-0.1: the run had other settings: system_prompt is new"


def test_a_replay_that_waits_for_what_never_comes_ends_and_does_not_spin():
    """The recording has an answer after a commit that this configuration never makes."""

    async def both():
        store = MemoryStore()
        turns = [calls(*[call("put", n=n) for n in range(3)]), say("done")]
        side_by_side = {"default_execution_mode": ExecutionMode.PARALLEL, "limits": LIMITS, "store": store}
        await Agent(model=ScriptedModel(turns), tools=tools(), **side_by_side).run("go", session="s")
        other = Agent(
            model=ScriptedModel([]), tools=tools(), limits=LIMITS, default_execution_mode=ExecutionMode.SEQUENTIAL
        )
        loop, steps = asyncio.get_running_loop(), 0
        ready = loop.call_soon

        def counted(*args, **keywords):
            nonlocal steps
            steps += 1
            return ready(*args, **keywords)

        loop.call_soon = counted
        try:
            found = await replay(other, store, "s")
        finally:
            del loop.call_soon
        return found, steps

    found, steps = VirtualClock().run(both())
    assert not found.same
    assert found.difference
    assert steps < 3000


@virtual
async def test_a_leg_that_was_cancelled_and_went_on_is_compared_as_far_as_it_can_be():
    store, token = MemoryStore(), CancelToken()

    @tool
    async def halt() -> str:
        """Stop."""
        token.cancel("enough")
        await asyncio.sleep(5)
        return "never"

    agent = Agent(model=Pilot([[("halt", {})], one("put", 1)]), tools=[halt, *tools()], limits=LIMITS, store=store)
    await agent.run("go", session="s", cancel=token)
    await agent.resume("s")
    found = await replay(agent, store, "s")
    assert (found.difference, found.same, found.whole, found.until) == ("", True, False, "the run was stopped")
    assert found.commits == len((await store.load("s"))[1]) - 1


@pytest.mark.parametrize("at", range(4))
@virtual
async def test_forks_and_what_was_rewound_are_replayed_with_their_children(at):
    store = MemoryStore()
    agent, _ = family(store)
    await agent.run("go", session="s")
    for made in (
        await store.fork("s", at=at),
        await store.fork("s", at=at, name="other"),
        await store.rewind("s", at=at),
    ):
        if made.session_id == "other":
            await agent.run("something else", session="other")
        else:
            await agent.resume(made.session_id)
        found = await replay(agent, store, made.session_id)
        assert (found.difference, found.same, found.whole) == ("", True, True)
        assert found.children


@pytest.mark.parametrize("number", [3, 6, 9])
@virtual
async def test_a_repaired_journal_is_replayed_as_far_as_it_is_there(number):
    store = MemoryStore()
    agent = flier(store, WORK)
    await agent.run("go", session="s")
    commits = store._shelves["s"].commits
    commits[number - 1] = Commit(number, commits[number - 1].body.replace(b"a", b"b", 1), commits[number - 1].hash)
    await repair(store, "s")
    found = await replay(agent, store, "s")
    assert (found.difference, found.commits, found.until) == ("", number - 1, "the run was stopped")
    await agent.resume("s", accept_repair=True)
    found = await replay(agent, store, "s")
    assert (found.difference, found.same, found.whole) == ("", True, True)
