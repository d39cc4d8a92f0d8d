"""`glidepath send` and `glidepath decide`: what is said to a run waits in its store."""

import asyncio
import json
import shlex

import pytest

from glidepath import Agent, Limits, tool
from glidepath.apps.cli import LoadedSettings, suggest_next_commands
from glidepath.messages import ToolCall
from glidepath.outcome import AgentState, LoopOutcome, PendingCall, RunResult
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call as say_call

from .shell_user import glidepath

STORE = ("--store", "sqlite:runs.db")
FLIGHT = ("--model", "python:flights:shell", "--tools", "shell", *STORE)


@pytest.fixture
def paused(tmp_path):
    """The session of a run that waits for a person, and the call that it waits with."""
    ran = glidepath("run", "go", *FLIGHT, "--output-format", "json", folder=tmp_path)
    assert ran.code == 6
    result = json.loads(ran.out)
    return result["session_id"], result["pending"][0]["call"]["id"]


def test_a_decision_and_a_message_wait_for_whoever_resumes(tmp_path, paused):
    session, call = paused
    assert glidepath("decide", session, call, "deny", "not", "here", *STORE, folder=tmp_path).code == 0
    sent = glidepath("send", session, "-", *STORE, folder=tmp_path, stdin="mind the gap")
    assert (sent.code, sent.out) == (0, "")
    assert f"sent to {session}" in sent.err
    resumed = glidepath("resume", session, *FLIGHT, "--output-format", "json", folder=tmp_path)
    messages = json.loads(resumed.out)["messages"]
    assert "not here" in next(one["content"] for one in messages if one["role"] == "tool_result")
    assert "mind the gap" in [one["content"] for one in messages if one["role"] == "user"]
    assert not (tmp_path / "made.txt").exists()


def test_a_second_decision_is_refused_because_the_first_one_counts(tmp_path, paused):
    session, call = paused
    assert glidepath("decide", session, call, "approve", *STORE, folder=tmp_path).code == 0
    same = glidepath("decide", session, call, "approve", *STORE, folder=tmp_path)
    assert (same.code, "noted; to continue: glidepath resume" in same.err) == (0, True), same
    other = glidepath("decide", session, call, "deny", "too late", *STORE, folder=tmp_path)
    assert other.code == 2
    assert f"{call} is already decided: approve. The first decision counts" in other.err
    assert "noted" not in other.err


def test_a_message_sent_on_the_way_is_not_the_task_of_a_fork(tmp_path, paused):
    session, call = paused
    assert glidepath("send", session, "mind the gap", *STORE, folder=tmp_path).code == 0
    assert glidepath("decide", session, call, "deny", *STORE, folder=tmp_path).code == 0
    glidepath("resume", session, *FLIGHT, folder=tmp_path)
    assert glidepath("fork", session, "--as", "copy", *STORE, folder=tmp_path).code == 0
    listed = glidepath("sessions", "list", "--json", *STORE, folder=tmp_path)
    assert {json.loads(line)["task"] for line in listed.out.splitlines()} == {"go"}


def test_a_new_task_instead_of_a_decision_says_which_call_it_gives_up(tmp_path, paused):
    session, _ = paused
    ran = glidepath("run", "-r", session, "leave it", "--model", "python:flights:hello", *STORE, folder=tmp_path)
    assert ran.out == "Hello from the script.\n"
    assert 'given up, because a new task comes instead of a decision: shell(command="echo' in ran.err


def test_a_new_task_does_not_take_the_place_of_a_call_that_was_approved(tmp_path, paused):
    session, call = paused
    assert glidepath("decide", session, call, "approve", *STORE, folder=tmp_path).code == 0
    refused = glidepath("run", "-r", session, "leave it", "--model", "python:flights:hello", *STORE, folder=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert 'shell(command="echo' in refused.err
    assert "was approved in this session and has not run yet" in refused.err
    way = refused.err.partition("with: ")[2].split()
    assert way[:3] == ["glidepath", "resume", session]
    glidepath(*way[1:], "--sandbox", "off", folder=tmp_path)
    assert (tmp_path / "made.txt").exists()
    ran = glidepath("run", "-r", session, "now this", "--model", "python:flights:hello", *STORE, folder=tmp_path)
    assert (ran.code, ran.out) == (0, "Hello from the script.\n")


def test_a_new_task_may_take_the_place_of_a_call_that_was_denied(tmp_path, paused):
    session, call = paused
    assert glidepath("decide", session, call, "deny", *STORE, folder=tmp_path).code == 0
    ran = glidepath("run", "-r", session, "leave it", "--model", "python:flights:hello", *STORE, folder=tmp_path)
    assert (ran.code, ran.out) == (0, "Hello from the script.\n")


def test_a_call_that_waits_is_not_lost_when_its_tool_is_forgotten(tmp_path, paused):
    session, call = paused
    assert glidepath("decide", session, call, "approve", *STORE, folder=tmp_path).code == 0
    forgot = glidepath("resume", session, "--model", "python:flights:shell", *STORE, folder=tmp_path)
    assert forgot.code == 2
    assert "a call of shell is waiting in this run" in forgot.err
    assert "pass --tools shell" in forgot.err
    glidepath("resume", session, *FLIGHT, "--sandbox", "off", folder=tmp_path)
    assert (tmp_path / "made.txt").exists()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("send", "nobody", "hello"), "there is no session 'nobody'"),
        (("send", "SESSION", " "), "a non-empty text"),
        (("decide", "SESSION", "CALL", "answer"), "CALL answer TEXT"),
        (("decide", "SESSION", "CALL", "approve", "why not"), "CALL approve"),
        (("decide", "SESSION", "CALL", "maybe"), "invalid choice"),
        (("decide", "nobody", "CALL", "approve"), "there is no session 'nobody'"),
        (("decide", "SESSION", "other", "approve"), "no call 'other' is waiting in this session; waiting: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, paused, argv, says):
    session, call = paused
    words = [{"SESSION": session, "CALL": call}.get(word, word) for word in argv]
    said = glidepath(*words, *STORE, folder=tmp_path)
    assert said.code == 2
    assert says in said.err
    assert "Traceback" not in said.err


def test_a_run_that_has_ended_has_nothing_to_decide(tmp_path):
    ran = glidepath("run", "go", "--model", "python:flights:hello", *STORE, "--name", "talk", folder=tmp_path)
    assert ran.code == 0
    said = glidepath("decide", "talk", "call_1", "approve", *STORE, folder=tmp_path)
    assert (said.code, "no call 'call_1' is waiting in this session; nothing is waiting" in said.err) == (2, True), said


def test_a_paused_run_says_how_to_decide_and_the_decision_how_to_continue(tmp_path):
    ran = glidepath("run", "go", *FLIGHT, folder=tmp_path)
    assert ran.code == 6
    waits, approves, continues = ran.err.splitlines()
    assert waits.startswith('[paused: waiting for a decision about shell(command="echo from the shell')
    head, _, line = approves.partition(": glidepath ")
    assert head == "to approve it (or write deny, or answer TEXT)"
    assert continues.startswith("to continue: glidepath resume ")
    noted = glidepath(*shlex.split(line), folder=tmp_path)
    assert noted.code == 0, noted
    head, _, line = noted.err.partition("noted; to continue: glidepath ")
    assert shlex.split(line) == shlex.split(continues.partition(" glidepath ")[2])
    glidepath(*shlex.split(line), folder=tmp_path)
    assert (tmp_path / "made.txt").read_text() == "from the shell\n"


def test_a_call_with_a_form_is_not_to_be_approved_and_its_id_cannot_run_a_command():
    waiting = PendingCall(call=ToolCall("c1; rm x", "ask", {}), form={"type": "object"})
    result = RunResult(
        run_id="r", session_id="s", state=AgentState.IDLE, outcome=LoopOutcome.PAUSED, pending=(waiting,)
    )
    decides, _ = suggest_next_commands("s", LoadedSettings({}, None, found=False), result)
    assert decides.startswith("it asks for a form: ")
    assert decides.endswith("glidepath decide s 'c1; rm x' deny")


def test_a_message_to_a_run_that_has_ended_says_what_it_waits_for(tmp_path, paused):
    session, _ = paused
    waits = glidepath("send", session, "hello", *STORE, folder=tmp_path).err
    assert waits == (
        f"sent to {session}\nit waits until the run continues: glidepath resume {session} "
        "--store sqlite:runs.db --model python:flights:shell --tools shell\n"
    )
    echoes = ("--model", "python:flights:echoes", *STORE)
    assert glidepath("run", "go", *echoes, "--name", "six", folder=tmp_path).code == 0
    sent, _, line = glidepath("send", "six", "hello", *STORE, folder=tmp_path).err.partition(": glidepath ")
    assert sent.endswith("\nthe run has ended, and the message waits for the next one")
    *words, text = shlex.split(line)
    assert text == "TEXT"
    ran = glidepath(*words, "and now?", "--output-format", "json", folder=tmp_path)
    asked = [one["content"] for one in json.loads(ran.out)["messages"] if one["role"] == "user"]
    assert sorted(asked) == ["and now?", "go", "hello"]


def test_several_waiting_calls_are_named_each_with_its_way_to_decide():
    waiting = [PendingCall(call=ToolCall(f"c{number}", "ask", {"n": number})) for number in (1, 2)]
    result = RunResult(run_id="r", session_id="s", state=AgentState.IDLE, outcome=LoopOutcome.PAUSED, pending=waiting)
    one, first, two, second, _ = suggest_next_commands("s", LoadedSettings({}, None, found=False), result)
    assert (one, two) == ("waiting for a decision: ask(n=1)", "waiting for a decision: ask(n=2)")
    assert (first.endswith(" s c1 approve"), second.endswith(" s c2 approve")) == (True, True)


def test_what_waits_in_a_child_is_decided_at_its_root(tmp_path):
    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    async def fly():
        store = SqliteStore(tmp_path / "runs.db")
        clerk = Agent(model=ScriptedModel([say_call("pay", amount=3)]), tools=[pay], limits=Limits(max_iterations=3))
        turns = ScriptedModel([say_call("clerk", task="pay")])
        lead = Agent(model=turns, tools=[clerk.as_tool("clerk", "Pays")], limits=Limits(max_iterations=3), store=store)
        result = await lead.run("go", session="lead")
        below = [entry.session_id for entry in await store.entries("lead/")]
        await store.close()
        return result, below

    result, (child,) = asyncio.run(fly())
    (here,), (there,) = result.pending, result.children[0].pending
    refused = glidepath("decide", child, there.call.id, "approve", *STORE, folder=tmp_path)
    assert refused.code == 2
    assert f"glidepath decide lead with the call {here.call.id}" in refused.err
    assert glidepath("decide", "lead", here.call.id, "approve", *STORE, folder=tmp_path).code == 0
