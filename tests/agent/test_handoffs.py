"""Hand-offs: another agent speaks in the same run, within the first one's bounds, also after a pause and a crash."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from glidepath import Agent, AgentState, ConfigurationError, Limits, LoopOutcome, Session, approve, tool
from glidepath.agent import find_handoff
from glidepath.agent.replay import replay
from glidepath.events import GuardTripped, ModelSwitched
from glidepath.plugins import ToolListGate
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import EventRecorder, RecordedRun, ScriptedModel, call, calls, say, virtual

LIMITS = Limits(max_iterations=12)


@tool
def refund(order: int) -> str:
    """Refund."""
    return f"refunded {order}"


def named(name, *script, **settings):
    settings = {"limits": LIMITS, **settings}
    return Agent(model=ScriptedModel(script, name=f"model-{name}"), agent_name=name, **settings)


def give(name, reason="refund of order 7"):
    return call(f"transfer_to_{name}", reason=reason)


def pair(*first, then=("Done.",), **settings):
    billing = named("billing", *then, tools=[refund], system_prompt="You handle refunds.")
    return named("triage", *(first or (give("billing"),)), handoffs=[billing], **settings), billing


def asked(agent):
    return agent.config.model.requests


@virtual
async def test_the_other_agent_answers_with_its_own_model_prompt_and_tools():
    triage, billing = pair(then=[call("refund", order=7), "Refunded."], system_prompt="You sort.")
    events = EventRecorder()
    result = await triage.replace(event_sink=events).run("I want a refund for order 7.")
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "Refunded.", 3)
    first, second = asked(triage)[0], asked(billing)[0]
    assert first.tools == ("transfer_to_billing",)
    assert (second.tools, second.system_prompt) == (("refund",), "You handle refunds.")
    said = [message.text for message in second.messages]
    assert said[0] == "I want a refund for order 7."
    assert said[-1] == "You are billing now: triage has handed the conversation over to you. Reason: refund of order 7"
    assert len(events.of(ModelSwitched)) == 1
    assert {spend.name for spend in result.breakdown if spend.kind == "model"} == {"model-billing", "model-triage"}


@virtual
async def test_the_next_message_of_the_session_goes_to_whoever_has_the_conversation():
    for session in (Session(), "kept"):
        triage, billing = pair(then=["On its way.", "Tomorrow."], store=MemoryStore())
        await triage.run("I want a refund.", session=session)
        result = await triage.run("When?", session=session)
        assert (result.text, len(asked(triage)), len(asked(billing))) == ("Tomorrow.", 1, 2)


@virtual
async def test_back_and_forth_is_fine_and_a_circle_is_noticed():
    billing = named("billing", *[give("triage")] * 9, handoffs=["triage"])
    triage = named("triage", *[give("billing")] * 2, give("billing"), say("I cannot help."), handoffs=[billing])
    events = EventRecorder()
    result = await triage.replace(event_sink=events).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "I cannot help.")
    assert [one.guard for one in events.of(GuardTripped)] == ["handoffs"]


@virtual
async def test_two_agents_that_never_answer_are_brought_down_by_the_limits_of_the_first():
    def again(name):
        return lambda request: give(name) if request.tools else say("Landed.")

    billing = Agent(
        model=ScriptedModel(name="b").forever(again("triage")), agent_name="billing", handoffs=["triage"], limits=LIMITS
    )
    triage = Agent(
        model=ScriptedModel(name="t").forever(again("billing")),
        agent_name="triage",
        handoffs=[billing],
        limits=Limits(max_iterations=30),
    )
    result = await triage.run("go")
    assert result.state is not AgentState.COMPLETED or result.outcome is not LoopOutcome.DONE
    assert result.iterations <= 30


@virtual
async def test_limits_and_budget_are_those_of_the_first_agent():
    triage, billing = pair(then=[call("refund", order=n) for n in range(20)], limits=Limits(max_iterations=4))
    result = await triage.run("go")
    assert (result.state, result.iterations) == (AgentState.MAX_STEPS, 4)
    assert len(asked(billing)) == 4  # three turns and the landing, by the one who has the conversation
    assert asked(billing)[-1].tools == ()


@virtual
async def test_a_required_gate_of_the_first_agent_holds_for_the_next():
    gate = ToolListGate(deny=["refund"])
    triage, billing = pair(then=[call("refund", order=7), "I may not."], plugins=[gate])
    result = await triage.run("go")
    assert asked(billing)[0].tools == ()
    assert not [message for message in result.messages if message.text == "refunded 7"]


@virtual
async def test_no_hand_off_once_the_model_was_told_to_finish():
    triage, billing = pair(
        call("refund", order=1),
        give("billing"),
        "My own answer.",
        tools=[refund],
        limits=Limits(max_iterations=4, grace_iterations=3),
    )
    result = await triage.run("go")
    assert not asked(billing)
    assert result.text == "My own answer."


@virtual
async def test_a_hand_off_beside_other_calls_is_refused():
    triage, billing = pair(calls(give("billing"), call("refund", order=1)), "Alone, then.", tools=[refund])
    result = await triage.run("go")
    assert (result.text, asked(billing)) == ("Alone, then.", [])
    assert "by a single call" in next(one.text for one in result.messages if one.role == "tool_result")


@pytest.mark.parametrize("kept", [True, False])
@virtual
async def test_a_pause_after_the_hand_off_continues_with_the_agent_that_has_the_conversation(tmp_path, kept):
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    store = SqliteStore(tmp_path / "s.db") if kept else None
    billing = named("billing", call("pay"), "Paid.", tools=[pay], system_prompt=lambda context: "Written once.")
    triage = named("triage", give("billing"), handoffs=[billing], store=store)
    paused = await triage.run("go", session="s")
    assert paused.outcome is LoopOutcome.PAUSED
    decisions = {paused.pending[0].call.id: approve()}
    target = "s" if kept else paused
    with pytest.raises(ConfigurationError, match="agent 'billing' has this conversation"):
        await named("triage", store=store).resume(target, decisions=decisions)
    result = await triage.resume(target, decisions=decisions)
    assert (result.outcome, result.text, result.changes) == (LoopOutcome.DONE, "Paid.", ())
    assert [one.system_prompt for one in asked(billing)] == ["Written once."] * 2


@virtual
async def test_an_agent_as_a_tool_may_hand_over_too():
    triage, billing = pair()
    outer = named("outer", call("help", task="refund 7"), "All done.", tools=[triage.as_tool("help", "Help.")])
    result = await outer.run("go")
    assert (result.text, len(asked(billing))) == ("All done.", 1)


@virtual
async def test_the_output_type_of_the_first_agent_is_what_the_last_one_gives():
    billing = named("billing", "forty", "40")
    triage = named("triage", give("billing"), handoffs=[billing], output_type=int)
    assert (await triage.run("go")).unwrap() == 40


@virtual
async def test_an_agent_that_cannot_take_over_leaves_the_conversation_where_it_is():
    def crash(context):
        raise KeyError("nobody")

    triage = named("triage", give("billing"), "Mine.", handoffs=[named("billing", system_prompt=crash)])
    result = await triage.run("go")
    assert result.text == "Mine."
    triage = named("triage", give("billing"), "Mine.", handoffs=["billing"])
    assert (await triage.run("go")).text == "Mine."


@pytest.mark.parametrize(
    ("handoffs", "said"),
    [
        (7, "handoffs must be a list"),
        (["", "b"], r"handoffs\[0\]"),
        ([refund], r"handoffs\[0\] must be an Agent"),
        ([lambda: named("a"), lambda: named("a")], "two agents are named 'a'"),
        ([lambda: named("triage")], "two agents are named 'triage'"),
        ([lambda: named("a", plugins=[ToolListGate(deny=["x"])])], "agent 'a' has plugins of its own"),
    ],
)
def test_what_cannot_work_is_said_at_once(handoffs, said):
    items = [one() if callable(one) and one is not refund else one for one in handoffs] if handoffs != 7 else 7
    with pytest.raises(ConfigurationError, match=said):
        named("triage", handoffs=items)


PROGRAM = """
    import asyncio, os, signal, sys
    from glidepath import Agent, Limits, tool
    from glidepath.sessions import SqliteStore
    from glidepath.testing import ScriptedModel, call, say

    def note(line):
        with open(sys.argv[2], "a") as ledger:
            ledger.write(line + "\\n")

    def first(request):
        note("triage")
        return call("transfer_to_billing", reason="r")

    def second(request):
        note("billing")
        if sys.argv[3] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return say("Done by billing.")

    limits = Limits(max_iterations=6)
    billing = Agent(model=ScriptedModel(name="b").forever(second), agent_name="billing", limits=limits)
    triage = Agent(
        model=ScriptedModel(name="t").forever(first), agent_name="triage", limits=limits, handoffs=[billing],
        store=SqliteStore(sys.argv[1]), durability="full",
    )

    async def main():
        again = sys.argv[3] == "resume"
        result = await (triage.resume("s") if again else triage.run("go", session="s"))
        print(result.outcome.name, result.text, result.iterations)

    asyncio.run(main())
"""


def test_kill_9_in_the_first_call_of_the_next_agent_continues_with_that_agent(tmp_path):
    program = tmp_path / "job.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(program), str(tmp_path / "s.db"), str(tmp_path / "ledger")]
    killed = subprocess.run([*command, "die"], capture_output=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = subprocess.run([*command, "resume"], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("DONE Done by billing."), done.stdout + done.stderr
    assert (tmp_path / "ledger").read_text().split() == ["triage", "billing", "billing"]


def test_g13_a_death_after_the_hand_off_repeats_what_either_agent_had_begun_and_may_repeat(tmp_path):
    """The first agent's call in the background, and the second one's open call: both are idempotent."""
    begun = []

    @tool(background=True, idempotent=True)
    async def index(n: int) -> str:
        """Index."""
        begun.append("index")
        await asyncio.sleep(10)
        return "indexed"

    @tool(idempotent=True)
    async def look() -> str:
        """Look, and copy the disk as a death would leave it."""
        begun.append("look")
        if not (tmp_path / "b.db").exists():
            with sqlite3.connect(tmp_path / "a.db") as here, sqlite3.connect(tmp_path / "b.db") as there:
                here.backup(there)
        return "seen"

    def team(store, first, second):
        billing = named("billing", *second, tools=[look])
        return named("triage", *first, tools=[index], handoffs=[billing], store=store)

    async def run():
        store = SqliteStore(tmp_path / "a.db")
        agent = team(store, [call("index", n=1), give("billing")], [call("look"), "Done.", "Done."])
        await agent.run("go", session="s")
        await store.close()
        begun.append("died")
        store = SqliteStore(tmp_path / "b.db")
        result = await team(store, [], ["Done.", "Really done."]).resume("s")
        await store.close()
        return result

    result = virtual(run)()
    assert begun[:3] == ["index", "look", "died"]
    assert sorted(begun[3:]) == ["index", "look"]
    assert [one.name for one in result.unknown_effects] == []
    assert result.text == "Really done."


# --- repeating it --------------------------------------------------------------------------------------------------


def relay(store, *, words, first=(), second=()):
    """Three hand-offs between two agents whose prompts a function writes, each time with the next word."""
    billing = named(
        "billing", *second, tools=[refund], handoffs=["triage"], system_prompt=lambda _: f"You bill, {next(words)}."
    )
    return named("triage", *first, handoffs=[billing], store=store, system_prompt=lambda _: f"You sort, {next(words)}.")


async def record_relay(store):
    first = [give("billing"), give("billing", "again")]
    second = [call("refund", order=7), give("triage"), "Refunded."]
    agent = relay(store, words=iter("abcdefg"), first=first, second=second)
    result = await agent.run("Refund 7.", session="s")
    assert (result.text, [one["to"] for one in map(find_handoff, result.messages) if one]) == (
        "Refunded.",
        ["billing", "triage", "billing"],
    )
    return result


@virtual
async def test_a_replay_repeats_what_everybody_said_and_asks_nobody():
    store = MemoryStore()
    recorded = await record_relay(store)
    agent = relay(store, words=iter(()))  # nobody has anything more to say
    replayed = await replay(agent, store, "s")
    assert (replayed.same, replayed.whole, replayed.difference) == (True, True, "")
    assert (replayed.result.text, replayed.result.usage) == ("Refunded.", recorded.usage)


@virtual
async def test_the_same_run_under_another_limit_asks_nobody_either():
    store = MemoryStore()
    await record_relay(store)
    run = await RecordedRun.read(relay(store, words=iter("abcdefg" * 9)), store, "s")
    result, changed = await run.fly(Limits(max_iterations=2))
    assert (result.outcome, result.iterations, changed) == (LoopOutcome.WRAPPED_UP, 2, False)
