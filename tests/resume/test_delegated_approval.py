"""An agent that was made a tool waits for a person: its parents wait with it, and continue with the decision."""

import asyncio

import pytest

from glidepath import Limits, ToolContext, answer, approve, deny, tool
from glidepath.errors import ConfigurationError
from glidepath.outcome import AgentState, LoopOutcome, RunResult
from glidepath.sessions import MemoryStore, Session, SqliteStore
from glidepath.testing import call, calls, say, virtual
from glidepath.tools import NeedsInput
from glidepath.values import decode, encode

from .desk import Desk, ids, results

ROOMY = Limits(max_iterations=40)
PAUSED, DONE = LoopOutcome.PAUSED, LoopOutcome.DONE


def boss_of(*children, asks=None, store=None, limits=ROOMY, **more):
    """A parent that hands a task to each child in one turn, then says what it heard."""
    asks = asks or [call(name, task=f"task of {name}") for name, _ in children]
    turns = [calls(*asks), lambda request: say(" | ".join(_heard(request)))]
    tools = [child.as_tool(name, f"The {name}.") for name, child in children]
    return Desk(turns, tools=[*tools, *more.pop("tools", ())], store=store, limits=limits, **more)


def _heard(request):
    return [message.text for message in request.messages if message.role == "tool_result"]


def stores(tmp_path):
    return {"none": None, "memory": MemoryStore(), "sqlite": SqliteStore(tmp_path / "runs.db")}


@pytest.fixture(params=["none", "memory", "sqlite"])
def store(request, tmp_path):
    return stores(tmp_path)[request.param]


@virtual
async def test_the_root_waits_and_names_the_child_and_the_call(store):
    clerk = Desk([call("send", to="eve"), "sent it"], agent_name="clerk")
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    assert (paused.state, paused.outcome) == (AgentState.WAITING_FOR_INPUT, PAUSED)
    (waiting,) = paused.pending
    (frame,) = waiting.path
    child = paused.children[0]
    mine = paused.messages[-1].tool_calls[0].id
    assert (frame.call_id, frame.tool, frame.agent, frame.run_id) == (mine, "expert", "clerk", child.run_id)
    assert waiting.call.id == f"{mine}/{child.pending[0].call.id}"
    assert (waiting.call.name, waiting.call.arguments) == ("send", {"to": "eve", "n": 0})
    assert waiting.inside == mine
    assert "clerk" in waiting.reason
    assert (clerk.done, boss.model.calls) == ([], 1)


@virtual
@pytest.mark.parametrize(
    ("decision", "done", "said"),
    [
        (approve(), [("send", "eve", 0)], "sent to eve"),
        (approve({"to": "bob", "n": 3}), [("send", "bob", 3)], "sent to bob"),
        (deny("she is on leave"), [], "Denied by a person: she is on leave"),
        (answer("I called her"), [], "I called her"),
    ],
)
async def test_deciding_at_the_root_continues_child_and_parent(store, decision, done, said):
    clerk = Desk([call("send", to="eve"), lambda request: say(f"clerk: {_heard(request)[-1]}")])
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    result = await boss.resume(paused, decisions={paused.pending[0].call.id: decision})
    assert (result.outcome, result.text, clerk.done) == (DONE, f"clerk: {said}", done)
    assert (result.pending, len(result.children)) == ((), 1)
    assert result.children[0].outcome is DONE
    assert results(result) == [("expert", None, f"clerk: {said}")]


@virtual
async def test_what_the_child_cost_is_counted_once(store):
    def family():
        clerk = Desk([call("send", to="eve"), "sent it"], agent_name="clerk")
        return boss_of(("expert", clerk.agent), store=store)

    straight = Desk([call("look"), "sent it"], agent_name="clerk")
    once = await boss_of(("expert", straight.agent)).run()
    boss = family()
    paused = await boss.run(session="s" if store else None)
    result = await boss.resume(paused, decisions={paused.pending[0].call.id: approve()})
    (spent,) = [one for one in result.breakdown if one.kind == "child"]
    (expected,) = [one for one in once.breakdown if one.kind == "child"]
    assert (spent.calls, result.all_turns, result.all_tool_calls) == (1, once.all_turns, once.all_tool_calls)
    assert spent.usage == result.children[0].usage
    assert result.usage.total == sum(child.usage.total for child in result.children) + sum(
        one.usage.total for one in result.breakdown if one.kind == "model"
    )
    assert expected.calls == 1
    assert result.tool_calls == once.tool_calls == 1


@virtual
async def test_three_levels_deep(store):
    clerk = Desk([call("send", to="eve"), "sent it"], agent_name="clerk")
    head = Desk(
        [call("clerk", task="send"), lambda request: say(f"head: {_heard(request)[-1]}")],
        tools=[clerk.agent.as_tool("clerk", "The clerk.")],
        agent_name="head",
    )
    boss = boss_of(("head", head.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    (waiting,) = paused.pending
    assert [frame.agent for frame in waiting.path] == ["head", "clerk"]
    again = await boss.resume(paused)
    assert (again.outcome, [one.call.id for one in again.pending]) == (PAUSED, [waiting.call.id])
    result = await boss.resume(again, decisions={waiting.call.id: approve()})
    assert (result.outcome, result.text, clerk.done) == (DONE, "head: sent it", [("send", "eve", 0)])
    assert [child.outcome for child in (result.children[0], *result.children[0].children)] == [DONE, DONE]


@virtual
async def test_siblings_finish_and_each_is_decided_for_itself(store):
    one = Desk([call("send", to="a"), "one sent it"], agent_name="one")
    two = Desk([call("send", to="b"), "two sent it"], agent_name="two")
    three = Desk([call("look"), "three looked"], agent_name="three")
    asks = [call("one", task="x"), call("two", task="x"), call("three", task="x"), call("send", to="c"), call("look")]
    boss = boss_of(("one", one.agent), ("two", two.agent), ("three", three.agent), asks=asks, store=store)
    paused = await boss.run(session="s" if store else None)
    assert [text for _, _, text in results(paused)] == ["three looked", "saw 0"]
    by_name = {waiting.path[0].tool if waiting.path else "": waiting.call.id for waiting in paused.pending}
    assert set(by_name) == {"one", "two", ""}
    assert (one.done, two.done, boss.done) == ([], [], [("look", 0)])
    again = await boss.resume(paused, decisions={by_name["two"]: approve()})
    assert (again.outcome, two.done, one.done) == (PAUSED, [("send", "b", 0)], [])
    assert [waiting.call.id for waiting in again.pending] == [by_name["one"], by_name[""]]
    result = await boss.resume(again, decisions={by_name["one"]: deny("no"), by_name[""]: approve()})
    assert (result.outcome, result.text) == (
        DONE,
        "one sent it | two sent it | three looked | sent to c | saw 0",
    )
    assert (one.done, boss.done) == ([], [("look", 0), ("send", "c", 0)])
    assert sorted(child.outcome for child in result.children) == [DONE] * 3


@virtual
async def test_a_child_may_ask_again_and_again(store):
    clerk = Desk([call("send", to="a"), call("send", to="b"), "both sent"])
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    first = paused.pending[0].call.id
    paused = await boss.resume(paused, decisions={first: approve()})
    assert (paused.outcome, clerk.done) == (PAUSED, [("send", "a", 0)])
    assert paused.pending[0].call.id != first
    result = await boss.resume(paused, decisions={paused.pending[0].call.id: approve()})
    assert (result.text, clerk.done) == ("both sent", [("send", "a", 0), ("send", "b", 0)])


@virtual
async def test_another_process_decides_and_the_journal_remembers(tmp_path):
    def family():
        store = SqliteStore(tmp_path / "runs.db")
        clerk = Desk([], agent_name="clerk")
        clerk.model.forever(
            lambda rq: say("sent it") if rq.messages[-1].role == "tool_result" else call("send", to="eve")
        )
        boss = Desk([], tools=[clerk.agent.as_tool("expert", "The expert.")], store=store)
        boss.model.forever(
            lambda rq: say(rq.messages[-1].text) if rq.messages[-1].role == "tool_result" else call("expert", task="x")
        )
        return boss, clerk

    boss, _ = family()
    paused = await boss.agent.run("go", session="s")
    key = paused.pending[0].call.id
    boss, clerk = family()
    result = await boss.agent.resume("s", decisions={key: approve()})
    assert (result.outcome, result.text, clerk.done) == (DONE, "sent it", [("send", "eve", 0)])
    again = await boss.agent.resume("s", decisions={key: approve()})  # a handler that is retried
    assert (again.text, clerk.done) == ("sent it", [("send", "eve", 0)])


@virtual
async def test_a_result_without_a_store_survives_being_written_down():
    clerk = Desk([call("send", to="eve"), "sent it"])
    boss = boss_of(("expert", clerk.agent))
    paused = decode(encode(await boss.run()), RunResult)
    result = await boss.resume(paused, decisions={paused.pending[0].call.id: approve()})
    assert (result.text, clerk.done) == ("sent it", [("send", "eve", 0)])


@virtual
async def test_a_decision_about_nothing_that_waits_is_refused(store):
    clerk = Desk([call("send", to="eve"), "sent it"])
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    own, inner = paused.pending[0].inside, paused.children[0].pending[0].call.id
    for name in {own, inner} - {paused.pending[0].call.id}:
        with pytest.raises(ConfigurationError, match="no pending call"):
            await boss.agent.resume(paused, decisions={name: approve()})
    assert clerk.done == []


@virtual
async def test_a_new_prompt_instead_of_a_decision_tells_the_parent(store):
    clerk = Desk([call("send", to="eve"), "sent it"])
    boss = Desk([call("expert", task="x"), "never mind"], tools=[clerk.agent.as_tool("expert", "x")], store=store)
    session = Session("s")
    await boss.run(session=session if store is None else "s")
    result = await boss.agent.run("forget it", session=session if store is None else "s")
    assert (result.outcome, result.text, clerk.done) == (DONE, "never mind", [])
    ((_, kind, text),) = results(result)
    assert kind == "paused"
    assert "send" in text


@virtual
async def test_a_root_that_must_land_does_not_wait(store):
    clerk = Desk([call("send", to="eve"), "sent it"])

    @tool(parallel_safe=True)
    async def slow() -> str:
        await asyncio.sleep(100)
        return "slow"

    asks = [call("expert", task="x"), call("slow")]
    boss = boss_of(
        ("expert", clerk.agent), asks=asks, store=store, tools=[slow], limits=Limits(max_iterations=9, timeout=5)
    )
    result = await boss.run(session="s" if store else None)
    assert result.outcome is not PAUSED
    kinds = {name: kind for name, kind, _ in results(result)}
    assert (kinds["expert"], result.pending, clerk.done) == ("paused", (), [])


@virtual
async def test_a_function_of_the_user_gets_the_paused_result_as_before(store):
    clerk = Desk([call("send", to="eve"), "sent it"])

    @tool
    async def hand_over(context: ToolContext) -> str:
        result = await context.spawn(clerk.agent, "x")
        return f"{result.outcome.name} {len(result.pending)}"

    boss = Desk([call("hand_over"), "ok"], tools=[hand_over], store=store)
    result = await boss.run(session="s" if store else None)
    assert (result.outcome, result.pending) == (DONE, ())
    assert results(result) == [("hand_over", None, "PAUSED 1")]
    assert result.children[0].outcome is PAUSED


@virtual
async def test_a_delegate_that_is_gone_leaves_an_unknown_effect(store):
    clerk = Desk([call("send", to="eve"), "sent it"])
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    other = Desk(["ok"], store=store)
    still = await other.agent.resume(paused)
    assert (still.outcome, ids(still)) == (PAUSED, ids(paused))
    result = await other.agent.resume(still, decisions={ids(still)[0]: approve()})
    assert (result.outcome, clerk.done) == (DONE, [])
    assert [one.name for one in result.unknown_effects] == ["expert"]


@virtual
async def test_a_fork_does_not_begin_the_child_again(tmp_path):
    clerk = Desk([calls(call("look"), call("send", to="eve")), "sent it"])
    boss = boss_of(("expert", clerk.agent), store=SqliteStore(tmp_path / "runs.db"))
    paused = await boss.run(session="s")
    fork = await boss.agent.fork("s")
    result = await boss.agent.resume(fork.session_id, decisions={ids(paused)[0]: approve()})
    assert (result.outcome, clerk.done) == (DONE, [("look", 0), ("send", "eve", 0)])


@virtual
async def test_a_child_whose_journal_is_gone_is_not_begun_again(tmp_path):
    clerk = Desk([calls(call("look"), call("send", to="eve")), "sent it"])
    store = SqliteStore(tmp_path / "runs.db")
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s")
    await store.remove(paused.children[0].session_id)
    result = await boss.agent.resume("s", decisions={ids(paused)[0]: approve()})
    assert (result.outcome, clerk.done) == (DONE, [("look", 0)])
    assert [one.name for one in result.unknown_effects] == ["expert"]


@virtual
async def test_the_question_is_told_once_with_its_path(store):
    clerk = Desk([call("send", to="eve"), "sent it"])
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    asked = [event for event in boss.recorder.events if type(event).__name__ == "ApprovalRequested"]
    assert [event.call_id for event in asked] == ids(paused)
    await boss.resume(paused)
    asked = [event for event in boss.recorder.events if type(event).__name__ == "ApprovalRequested"]
    assert [event.call_id for event in asked] == ids(paused)


@virtual
async def test_limits_of_the_root_hold_over_the_pause(store):
    clerk = Desk([call("send", to="a"), call("send", to="b"), "done"])
    boss = boss_of(("expert", clerk.agent), store=store, limits=Limits(max_iterations=9, max_tool_calls=2))
    paused = await boss.run(session="s" if store else None)
    result = await boss.resume(paused, decisions={ids(paused)[0]: approve()})
    assert clerk.done == [("send", "a", 0)]
    assert result.all_tool_calls == 2


@virtual
async def test_a_form_of_a_child_is_filled_in_at_the_root(store):
    form = {"properties": {"pin": {"type": "integer"}}, "required": ["pin"]}
    heard = []

    @tool
    async def ask_pin(context: ToolContext) -> str:
        """Ask for the pin."""
        if context.continuation is None:
            raise NeedsInput("the pin, please", form=form, state="half way")
        heard.append((context.continuation.state, dict(context.continuation.answer)))
        return "thank you"

    clerk = Desk([call("ask_pin"), "it has the pin"], tools=[ask_pin.asking_back()])
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    (waiting,) = paused.pending
    assert (waiting.form, waiting.state) == (form, "")
    with pytest.raises(ConfigurationError, match="pin"):
        await boss.agent.resume(paused, decisions={waiting.call.id: answer({"pin": "no number"})})
    result = await boss.resume(paused, decisions={waiting.call.id: answer({"pin": 7})})
    assert (result.text, heard) == ("it has the pin", [("half way", {"pin": 7})])


@virtual
async def test_two_tasks_for_one_agent_are_told_apart(store):
    def sends(request):
        said = [message.text for message in request.messages]
        return say(said[-1]) if len(said) > 1 else call("send", to=said[0])

    clerk = Desk([])
    clerk.model.forever(sends)
    asks = [call("expert", task="ann"), call("expert", task="bob")]
    boss = boss_of(("expert", clerk.agent), asks=asks, store=store)
    paused = await boss.run(session="s" if store else None)
    ann, bob = ids(paused)
    result = await boss.resume(paused, decisions={ann: deny("not ann"), bob: approve()})
    assert [text for _, _, text in results(result)] == ["Denied by a person: not ann", "sent to bob"]
    assert (clerk.done, len(result.children)) == ([("send", "bob", 0)], 2)


@virtual
async def test_a_decision_with_the_digest_of_what_was_shown_goes_through_and_another_is_refused(store):
    clerk = Desk([call("send", to="eve"), "sent it"])
    boss = boss_of(("expert", clerk.agent), store=store)
    paused = await boss.run(session="s" if store else None)
    (waiting,) = paused.pending
    assert waiting.digest == paused.children[0].pending[0].digest
    with pytest.raises(ConfigurationError, match="other arguments than those that wait"):
        await boss.agent.resume(paused, decisions={waiting.call.id: approve(digest="0" * 32)})
    assert clerk.done == []
    with pytest.raises(ConfigurationError, match=r"approve\(digest\) takes the digest of a PendingCall, not 5"):
        approve(digest=5)
    result = await boss.resume(paused, decisions={waiting.call.id: approve(digest=waiting.digest)})
    assert (result.text, clerk.done) == ("sent it", [("send", "eve", 0)])
