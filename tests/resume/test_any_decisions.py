"""Whatever is called, decided, put off or cancelled: one result a call, in order, no unapproved effect (G6)."""

import asyncio
from itertools import cycle

from hypothesis import given, settings, strategies as st

from glidepath import (
    Agent,
    CancelToken,
    ExecutionMode,
    Limits,
    LoopOutcome,
    RunResult,
    Session,
    answer,
    approve,
    deny,
    tool,
)
from glidepath.errors import FatalToolError
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, calls, transcript_errors
from glidepath.values import decode, encode

NAMES = ("free", "free_fails", "asked", "asked_fails", "asked_slow", "asked_terminal", "asked_fatal", "nobody")
DECISIONS = ("approve", "approve", "change", "nonsense", "deny", "answer", "wait")
batches = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5), min_size=1, max_size=3)
choices = st.lists(st.sampled_from(DECISIONS), min_size=1, max_size=12)
cancels = st.none() | st.integers(0, 5)
ways = st.sampled_from(["memory", "json", "session"])


class World:
    """Counts every effect, with the call that had it."""

    def __init__(self):
        self.effects = []
        self.approved = set()

    def tools(self):
        from glidepath import ToolContext

        def make(name, *, fails=False, slow=False, fatal=False, **options):
            async def work(context: ToolContext, n: int = 0) -> str:
                self.effects.append((context.call_id, name, n))
                if slow:
                    await asyncio.sleep(3)
                if fails:
                    raise ValueError("it failed")
                if fatal:
                    raise FatalToolError("the end")
                return f"{name} {n}"

            return tool(work, name=name, **options)

        return [
            make("free"),
            make("free_fails", fails=True),
            make("asked", requires_approval=True),
            make("asked_fails", fails=True, requires_approval=True),
            make("asked_slow", slow=True, requires_approval=True),
            make("asked_terminal", terminal=True, requires_approval=True),
            make("asked_fatal", fatal=True, requires_approval=True),
        ]


def decide(kind, world, waiting):
    call_id = waiting.call.id
    if kind in ("approve", "change"):
        world.approved.add((call_id, 7 if kind == "change" else waiting.call.arguments["n"]))
    return {
        "approve": approve(),
        "change": approve({"n": 7}),
        "nonsense": approve({"n": "many", "m": 1}),
        "deny": deny("no"),
        "answer": answer("by hand"),
    }[kind]


async def story(script, choose, cancel_at, way, world, mode):
    recorder = EventRecorder()
    turns = [
        calls(*[call(name, n=n) if name != "nobody" else call(name) for n, name in enumerate(one)]) for one in script
    ]
    model = ScriptedModel(turns).forever("the end")
    agent = Agent(
        model=model,
        tools=world.tools(),
        limits=Limits(max_iterations=12, timeout=1000),
        plugins=[recorder.as_plugin()],
        default_execution_mode=mode,
    )
    session = Session()
    result = await agent.run("go", session=session)
    legs, picks = 0, cycle(choose)
    while result.outcome is LoopOutcome.PAUSED and legs < 30:
        assert transcript_errors(result.messages, result.pending) == []
        recorder.assert_legal()
        decisions = {}
        for waiting in result.pending:
            kind = next(picks)
            if kind != "wait" or legs > 6:
                decisions[waiting.call.id] = decide("deny" if kind == "wait" else kind, world, waiting)
        token = CancelToken()
        if cancel_at == legs:
            asyncio.get_running_loop().call_later(1, token.cancel, "enough")
        target = {"memory": result, "json": decode(encode(result), RunResult), "session": session}[way]
        before = result
        result = await agent.resume(target, decisions=decisions, cancel=token)
        assert result.run_id == before.run_id
        assert result.usage.total >= before.usage.total
        assert result.elapsed >= before.elapsed
        assert not decisions.keys() & {one.call.id for one in result.pending}
        legs += 1
    return result, recorder


@settings(max_examples=100, deadline=None)
@given(batches, choices, cancels, ways, st.sampled_from(ExecutionMode))
def test_g6_every_call_gets_one_result_in_order_and_nothing_runs_unapproved(script, choose, cancel_at, way, mode):
    world = World()
    result, recorder = VirtualClock().run(story(script, choose, cancel_at, way, world, mode))
    recorder.assert_legal()
    assert result.outcome is not LoopOutcome.PAUSED
    assert result.pending == ()
    assert transcript_errors(result.messages) == []
    ran = [call_id for call_id, _, _ in world.effects]
    assert len(ran) == len(set(ran))
    for call_id, name, n in world.effects:
        assert not name.startswith("asked") or (call_id, n) in world.approved
    assert result.tool_calls == len(ran)
    numbers = [event.sequence for event in recorder.events]
    assert numbers == list(range(1, len(numbers) + 1))
