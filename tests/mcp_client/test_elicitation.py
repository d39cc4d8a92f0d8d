"""What a server asks a person pauses the run like an approval, with the form; the answer may come from elsewhere."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from glidepath import Agent, Limits, answer, approve, deny
from glidepath.errors import ConfigurationError
from glidepath.events import ApprovalRequested, ToolProgress
from glidepath.outcome import LoopOutcome
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call, calls, say

from .servers import ERAS, agent_with, collect, fake, results

pytestmark = pytest.mark.process


def asker(turns, era, tools=("ask", "echo"), **settings):
    return agent_with(turns, fake(era=era, setup={"tools": list(tools)}, elicitation=True), **settings)


async def paused_and(agent, decision):
    """Run until it asks, decide, and go on; in one `async with`, so that an older server keeps its call open."""
    async with agent:
        paused, events = await collect(agent)
        assert paused.outcome is LoopOutcome.PAUSED, paused
        done = await agent.resume(paused, decisions={paused.pending[0].call.id: decision})
    return paused, events, done


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_pauses_the_run_with_its_form(era):
    agent = asker([call("ask"), say("thanks")], era)
    paused, events, done = await paused_and(agent, answer({"city": "Oslo"}))
    [pending] = paused.pending
    assert pending.call.name == "ask"
    assert "'fake' asks, in the middle of ask: Which city?" in pending.reason
    assert pending.form["properties"]["city"] == {"type": "string"}
    [asked] = [event for event in events if isinstance(event, ApprovalRequested)]
    assert asked.form == pending.form
    assert (done.outcome, done.text) == (LoopOutcome.DONE, "thanks")
    assert 'accept {"city": "Oslo"}' in results(done)[0].text


async def test_the_request_state_comes_back_as_it_was():
    _, _, done = await paused_and(asker([call("ask"), say("ok")], "modern"), answer({"city": "Oslo"}))
    assert results(done)[0].text.endswith("state-1")


@pytest.mark.parametrize("era", ERAS)
async def test_a_denial_ends_the_call(era):
    _, _, done = await paused_and(asker([call("ask"), say("ok")], era), deny("not now"))
    assert (results(done)[0].kind, done.text) == ("denied", "ok")


async def test_an_address_to_visit_is_approved():
    paused, _, done = await paused_and(asker([call("ask", url=True), say("ok")], "modern"), approve())
    assert "https://example.com/sign-in" in paused.pending[0].reason
    assert results(done)[0].text.startswith("accept")


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (answer("Oslo"), "needs a form; pass answer({...})"),
        (answer({"town": "Oslo"}), "missing required field 'city'"),
        (answer({"city": 3}), "Expected `string`, got `int`"),
        (approve(), "missing required field 'city'"),
    ],
    ids=["text", "name", "type", "approve"],
)
async def test_an_answer_that_does_not_fit_the_form_is_refused_at_once(decision, said):
    agent = asker([call("ask"), say("ok")], "modern")
    paused = await agent.run("go")
    with pytest.raises(ConfigurationError) as caught:
        await agent.resume(paused, decisions={paused.pending[0].call.id: decision})
    assert said in str(caught.value)


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_that_asks_for_a_secret_is_declined(era):
    result, events = await collect(asker([call("ask", secret=True), say("ok")], era))
    assert result.outcome is LoopOutcome.DONE
    assert results(result)[0].text.startswith("decline")
    assert any("secret (password)" in str(event.progress) for event in events if isinstance(event, ToolProgress))


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_is_not_asked_unless_that_is_allowed(era):
    server = fake(era=era, setup={"tools": ["ask"]})
    result = await agent_with([call("ask"), say("ok")], server).run("go")
    assert result.outcome is LoopOutcome.DONE


async def test_the_rest_of_the_batch_is_handled_before_the_pause():
    agent = asker([calls(call("echo", text="a"), call("ask"), call("echo", text="b")), say("ok")], "modern")
    paused, _, done = await paused_and(agent, answer({"city": "Oslo"}))
    assert [one.call.name for one in paused.pending] == ["ask"]
    assert [one.text[:6] for one in results(done)] == ["a", "accept", "b"]


async def test_a_server_that_asks_for_ever_gets_its_error_after_ten_answers():
    agent = asker([call("ask_for_ever"), say("ok")], "modern", tools=["ask_for_ever"])
    result = await agent.run("go")
    for _ in range(20):
        if result.outcome is not LoopOutcome.PAUSED:
            break
        result = await agent.resume(result, decisions={result.pending[0].call.id: answer({"city": "x"})})
    assert "more than 10 times" in results(result)[0].text


OTHER = textwrap.dedent("""
    import asyncio, json, sys
    sys.path.insert(0, {folder!r})
    from glidepath import Agent, Limits, answer
    from glidepath.mcp import McpServer
    from glidepath.sessions import SqliteStore
    from glidepath.testing import ScriptedModel, say
    server = McpServer("fake", command=sys.executable, args=["-S", {fake!r}, {setup!r}], elicitation=True)
    agent = Agent(model=ScriptedModel([say("thanks")]), tools=[server], limits=Limits(max_iterations=5),
                  store=SqliteStore({store!r}))
    async def main():
        result = await agent.resume({session!r}, decisions={{{call!r}: answer({{"city": "Oslo"}})}})
        print(json.dumps([result.outcome.name, [m.text for m in result.messages if m.role == "tool_result"]]))
    asyncio.run(main())
""")


async def test_g13_a_person_can_answer_in_another_process(tmp_path):
    import json

    from .servers import FAKE

    setup = json.dumps({"era": "modern", "tools": ["ask"]})
    store = tmp_path / "runs.db"
    agent = asker([call("ask")], "modern", tools=["ask"], store=SqliteStore(store))
    paused = await agent.run("go")
    assert paused.outcome is LoopOutcome.PAUSED
    code = OTHER.format(
        folder=str(tmp_path),
        fake=FAKE,
        setup=setup,
        store=str(store),
        session=paused.session_id,
        call=paused.pending[0].call.id,
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    outcome, texts = json.loads(ran.stdout)
    assert outcome == "DONE"
    assert texts == ['accept {"city": "Oslo"} state-1']


async def test_g13_with_an_older_server_the_answer_after_a_restart_is_unknown():
    agent = asker([call("ask"), say("ok")], "legacy")
    async with agent:
        paused = await agent.run("go")
    done = await agent.resume(paused, decisions={paused.pending[0].call.id: answer({"city": "Oslo"})})
    assert results(done)[0].kind == "unknown_effect"
    assert [one.name for one in done.unknown_effects] == ["ask"]


async def test_with_an_older_server_nobody_is_asked_when_nobody_could_answer():
    result = await asker([call("ask"), say("ok")], "legacy").run("go")
    assert (result.outcome, results(result)[0].text.split()[0]) == (LoopOutcome.DONE, "cancel")


async def test_while_an_older_server_waits_for_a_person_other_calls_are_told():
    agent = Agent(
        model=ScriptedModel([call("ask"), call("echo", text="x"), say("later")]),
        tools=[fake(setup={"tools": ["ask", "echo"]}, elicitation=True)],
        limits=Limits(max_iterations=5),
    )
    async with agent:
        await agent.run("one")
        other = await agent.run("two")
    assert "waiting for a person's answer" in results(other)[0].text
    await asyncio.sleep(0)
