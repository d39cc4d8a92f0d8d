"""A program pauses, dies and is flown again behind the last call that has its result."""

import os
from pathlib import Path

import pytest

from glidepath import Agent, CancelToken, Limits, LoopOutcome, Plugin, RunResult, answer, approve, deny, tool
from glidepath.agent.replay import replay
from glidepath.code import CodeMode
from glidepath.sessions import MemoryStore, RedactingStore, export_journal, import_journal
from glidepath.sessions.fold import fold
from glidepath.spi import Ask
from glidepath.testing import ScriptedModel, VirtualClock, call, calls, say, virtual
from glidepath.values import decode, encode

from .desk import Desk, outputs

pytest.importorskip("pydantic_monty", reason="code mode needs pydantic-monty: pip install 'glidepath[code]'")

MAIL = "a = look(1)['n']\nprint('looked')\nb = send('ann')\nc = look(2)['n']\n[a, b, c]"
GUARDED = (
    "try:\n    send('ann')\nexcept PermissionError as error:\n    print('denied:', 'later' in str(error))\nlook(3)['n']"
)


@pytest.mark.parametrize("stored", [False, True])
@virtual
async def test_a_program_pauses_for_an_approval_and_goes_on_behind_it(stored):
    desk = Desk(MAIL, store=MemoryStore() if stored else None)
    result = await desk.run(session="s")
    assert result.outcome is LoopOutcome.PAUSED
    (waiting,) = result.pending
    assert (waiting.call.name, waiting.call.arguments, waiting.inside) == ("send", {"to": "ann"}, "call_1")
    assert desk.done == [("look", 1)]
    result = await desk.resume("s" if stored else result, decisions={waiting.call.id: approve()})
    assert outputs(result) == [(None, 'looked\n[1,"sent to ann",2]')]
    assert desk.done == [("look", 1), ("send", "ann"), ("look", 2)]


@virtual
async def test_a_paused_program_is_plain_json():
    desk = Desk(MAIL)
    result = await desk.run()
    again = decode(encode(result), RunResult)
    result = await desk.resume(again, decisions={"call_1.2": approve({"to": "bob"})})
    assert desk.done == [("look", 1), ("send", "bob"), ("look", 2)]


@virtual
async def test_a_denied_call_is_an_error_in_the_program():
    desk = Desk(GUARDED, store=MemoryStore())
    await desk.run(session="s")
    result = await desk.resume("s", decisions={"call_1.1": deny("later")})
    assert outputs(result) == [(None, "denied: True\n3")]
    assert desk.done == [("look", 3)]


@virtual
async def test_an_answer_stands_for_the_result():
    desk = Desk("send('ann')", store=MemoryStore())
    await desk.run(session="s")
    assert outputs(await desk.resume("s", decisions={"call_1.1": answer("I did it")})) == [(None, "I did it")]


@virtual
async def test_a_program_pauses_as_often_as_it_has_to():
    desk = Desk("[send(name) for name in ('a', 'b', 'c')]", store=MemoryStore())
    result = await desk.run(session="s")
    for number in (1, 2, 3):
        assert result.outcome is LoopOutcome.PAUSED
        assert [one.call.id for one in result.pending] == [f"call_1.{number}"]
        result = await desk.resume("s", decisions={f"call_1.{number}": approve()})
    assert outputs(result) == [(None, '["sent to a","sent to b","sent to c"]')]
    assert desk.done == [("send", "a"), ("send", "b"), ("send", "c")]


@virtual
async def test_what_is_not_decided_waits_on():
    code = "import asyncio\nawait asyncio.gather(send('a'), look(1), send('b'))"
    desk = Desk(code, store=MemoryStore())
    result = await desk.run(session="s")
    assert [one.call.id for one in result.pending] == ["call_1.1", "call_1.3"]
    result = await desk.resume("s", decisions={"call_1.3": approve()})
    assert [one.call.id for one in result.pending] == ["call_1.1"]
    assert desk.done == [("look", 1), ("send", "b")]
    result = await desk.resume("s", decisions={"call_1.1": approve()})
    assert desk.done == [("look", 1), ("send", "b"), ("send", "a")]
    assert result.outcome is LoopOutcome.DONE


@pytest.mark.parametrize("stored", [False, True])
@virtual
async def test_a_program_that_had_begun_is_unknown_when_its_resume_is_cancelled(stored):
    booked = []

    @tool
    async def book(seat: str) -> str:
        """Book a seat."""
        booked.append(seat)
        return f"booked {seat}"

    desk = Desk("book('4A')\nsend('ann')", tools=[book], store=MemoryStore() if stored else None)
    paused = await desk.run(session="s")
    assert (paused.outcome, booked) == (LoopOutcome.PAUSED, ["4A"])
    token = CancelToken()
    token.cancel("enough")
    result = await desk.resume("s" if stored else paused, cancel=token)
    [(kind, text)] = outputs(result)
    assert (result.outcome, kind) == (LoopOutcome.CANCELLED, "unknown_effect")
    assert "had begun" in text
    assert [one.name for one in result.unknown_effects] == ["run_code"]


@virtual
async def test_a_hook_may_ask_about_an_inner_call():
    class Careful(Plugin):
        async def before_tool_call(self, context):
            return Ask("are you sure?") if context.call.name == "look" and not context.approved else None

    desk = Desk("look(1)['n']", plugins=[Careful()])
    result = await desk.run()
    assert result.pending[0].reason == "are you sure?"
    result = await desk.resume(result, decisions={"call_1.1": approve()})
    assert outputs(result) == [(None, "1")]


@virtual
async def test_approving_the_program_itself_comes_first():
    desk = Desk("look(1)['n']", mode=CodeMode(requires_approval=True))
    result = await desk.run()
    assert [one.call.name for one in result.pending] == ["run_code"]
    result = await desk.resume(result, decisions={"call_1": approve()})
    assert outputs(result) == [(None, "1")]


# --- flown again ------------------------------------------------------------------------------------------------


@virtual
async def test_a_replay_of_programs_has_every_hash():
    store = MemoryStore()
    done = []

    @tool
    async def look(n: int) -> dict[str, int]:
        done.append(n)
        return {"n": n}

    code = "import random, time\nfound = [look(n)['n'] for n in range(3)]\nprint(random.random(), time.time())\nfound"
    both = "import asyncio\nawait asyncio.gather(look(8), look(9))"
    turns = [call("run_code", code=code), calls(call("run_code", code=both), call("look", n=5)), say("done")]
    limits = Limits(max_iterations=9, max_tokens=100_000)
    agent = Agent(model=ScriptedModel(turns), tools=[look, CodeMode()], store=store, limits=limits)
    result = await agent.run("go", session="s")
    assert result.outcome is LoopOutcome.DONE
    before = list(done)
    other = MemoryStore()
    await import_journal(other, await export_journal(store, "s"))
    again = Agent(model=ScriptedModel([]), tools=[look, CodeMode()], limits=limits)
    replayed = await replay(again, other, "s")
    assert replayed.difference == ""
    assert replayed.whole
    assert done == before


@virtual
async def test_a_replay_of_a_pause_in_a_program_has_every_hash():
    desk = Desk(MAIL, store=MemoryStore())
    await desk.run(session="s")
    await desk.resume("s", decisions={"call_1.2": approve()})
    done = list(desk.done)
    replayed = await replay(desk.agent, desk.agent.config.store, "s")
    assert replayed.difference == ""
    assert desk.done == done


def test_the_same_seed_flies_the_same_program():
    code = "import random\n[random.random(), look(1)['n']]"

    def flown(seed):
        return outputs(VirtualClock(seed=seed).run(Desk(code).run()))

    assert flown(1) == flown(1)
    assert flown(1) != flown(2)


@virtual
async def test_what_may_not_be_stored_cannot_go_on():
    store = RedactingStore(MemoryStore(), lambda text: text.replace("ann", "***"))
    desk = Desk(MAIL, store=store)
    await desk.run(session="s")
    result = await desk.resume("s", decisions={"call_1.2": deny("no")})
    kind, _ = outputs(result)[0]
    assert kind == "unknown_effect"
    assert [one.name for one in result.unknown_effects] == ["run_code"]
    assert desk.done == [("look", 1)]


@virtual
async def test_a_strangers_program_does_not_go_on():
    desk = Desk(MAIL, store=MemoryStore())
    await desk.run(session="s")
    other = MemoryStore()
    await import_journal(other, await export_journal(desk.agent.config.store, "s"))
    again = Desk(MAIL, turns=[say("done")], store=other)
    result = await again.resume("s")
    assert outputs(result)[0][0] == "unknown_effect"
    assert again.done == []


@virtual
async def test_a_program_whose_tool_is_gone_is_said():
    desk = Desk(MAIL, store=MemoryStore())
    await desk.run(session="s")
    without = Agent(model=ScriptedModel([say("ok")]), store=desk.agent.config.store, limits=Limits(max_iterations=9))
    result = await without.resume("s", decisions={"call_1.2": approve()})
    assert outputs(result)[0][0] == "unknown_effect"  # it had made a call before


@virtual
async def test_g17_nothing_of_a_program_is_left():
    def children():
        return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())

    before = children()
    for code in (MAIL, "look(1)", "while True:\n    pass"):
        await Desk(code, mode=CodeMode(seconds=0.2)).run()
    assert children() <= before


async def cut_off(store, session_id, commits):
    """A store that has only the first commits of a session: what a crash leaves behind."""
    other = MemoryStore()
    _, whole = await store.load(session_id)
    lease = await other.claim(session_id, "then")
    for commit in whole[:commits]:
        other.append(lease, commit)
    await other.release(lease)
    return other, fold(whole[:commits])


BOTH = "import asyncio\nx = await asyncio.gather(act(0), put(1), act(2))\ny = await act(3)\nx + [y]"


@pytest.mark.parametrize("code", ["[act(0), act(1), put(2), act(3)]", BOTH], ids=["one by one", "together"])
@virtual
async def test_g13_a_program_cut_off_at_any_commit_repeats_nothing_that_has_its_result(code):
    done = []

    @tool
    async def act(n: int) -> str:
        done.append(n)
        return f"acted {n}"

    @tool(idempotent=True)
    async def put(n: int) -> str:
        done.append(n)
        return f"put {n}"

    safe = code if "await" in code else f"out = []\nfor f, n in ((act, 0), (act, 1), (put, 2), (act, 3)):\n{TRIED}out"

    def agent(store):
        model = ScriptedModel().forever(lambda request: say("done") if request.messages[-1].role != "user" else first)
        return Agent(model=model, tools=[act, put, CodeMode()], store=store, limits=Limits(max_iterations=9))

    first = call("run_code", code=safe)
    store = MemoryStore()
    await agent(store).run("go", session="s")
    _, whole = await store.load("s")
    unknown = 0
    for commits in range(1, len(whole)):
        left, folded = await cut_off(store, "s", commits)
        programs = folded.snapshot.programs.values() if folded.snapshot else ()
        known = {int(one.text.split()[1]) for program in programs for one in program.results}
        known |= {int(one.text.split()[1]) for one in folded.results.values() if "." in one.call_id}
        done.clear()
        result = await agent(left).resume("s")
        assert result.outcome is LoopOutcome.DONE
        assert not known & set(done), commits
        assert len(done) == len(set(done))
        unknown += len(result.unknown_effects)
        assert all(one.name == "act" for one in result.unknown_effects)
    assert unknown


@virtual
async def test_g13_a_program_cut_off_at_any_commit_is_never_called_not_executed_by_a_cancelled_resume():
    @tool
    async def act(n: int) -> str:
        return f"acted {n}"

    def agent(store):
        model = ScriptedModel([call("run_code", code="act(0)\nact(1)"), say("done")])
        return Agent(model=model, tools=[act, CodeMode()], store=store, limits=Limits(max_iterations=9))

    store, token, listed = MemoryStore(), CancelToken(), set()
    token.cancel("enough")
    await agent(store).run("go", session="s")
    _, whole = await store.load("s")
    for commits in range(1, len(whole)):
        left, folded = await cut_off(store, "s", commits)
        result = await agent(left).resume("s", cancel=token)
        if "call_1" in folded.intents:
            assert [kind for kind, _ in outputs(result)] == ["unknown_effect"], commits
        unknown = {one.id for one in result.unknown_effects}
        results = {one.call_id for program in folded.snapshot.programs.values() for one in program.results}
        program = {one.id for made in folded.snapshot.programs.values() for one in made.calls}
        assert unknown >= (folded.intents.keys() & program) - results - folded.results.keys(), commits
        listed |= unknown
    assert listed == {"call_1", "call_1.1", "call_1.2"}


TRIED = "    try:\n        out.append(f(n))\n    except RuntimeError:\n        out.append('unknown')\n"


@pytest.mark.parametrize("stored", [False, True])
@virtual
async def test_a_program_whose_agent_waits_for_a_person_goes_on_behind_it(stored):
    sent = []

    @tool(requires_approval=True)
    async def post(to: str) -> str:
        sent.append(to)
        return f"posted to {to}"

    def clerk():
        turns = [call("post", to="ann"), call("post", to="bob"), say("both posted")]
        return Agent(model=ScriptedModel(turns), tools=[post], agent_name="clerk").as_tool("clerk", "The clerk.")

    code = "first = look(1)['n']\nsaid = clerk(task='post')\n[first, said, look(2)['n']]"
    desk = Desk(code, tools=[clerk()], limits=Limits(max_iterations=30), store=MemoryStore() if stored else None)
    result = await desk.run(session="s")
    assert result.outcome is LoopOutcome.PAUSED
    (waiting,) = result.pending
    assert [(frame.tool, frame.agent) for frame in waiting.path] == [("run_code", ""), ("clerk", "clerk")]
    assert (waiting.call.id, waiting.inside) == ("call_1.2/call_1", "call_1")
    again = await desk.resume("s" if stored else result)
    assert (again.outcome, again.pending, sent) == (LoopOutcome.PAUSED, result.pending, [])
    result = await desk.resume("s" if stored else again, decisions={waiting.call.id: approve()})
    assert (result.outcome, sent) == (LoopOutcome.PAUSED, ["ann"])
    result = await desk.resume("s" if stored else result, decisions={result.pending[0].call.id: approve()})
    assert outputs(result) == [(None, '[1,"both posted",2]')]
    assert (sent, desk.done) == (["ann", "bob"], [("look", 1), ("look", 2)])
    assert (result.outcome, len(result.children), result.pending) == (LoopOutcome.DONE, 1, ())
    (spent,) = [one for one in result.breakdown if one.kind == "child"]
    assert (spent.calls, spent.usage) == (1, result.children[0].usage)
