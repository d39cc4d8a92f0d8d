"""Settings of one run: extras, tool_choice, metadata and user, checked, sent, seen by hooks, and kept over a resume."""

import asyncio

import pytest

from glidepath import Agent, Limits, LoopOutcome, Plugin, ToolContext, tool
from glidepath.errors import ConfigurationError
from glidepath.events import RunStarted
from glidepath.messages import UserMessage
from glidepath.models import AnthropicModel, GoogleModel, ModelRequest, OpenAIChatModel, OpenAIResponsesModel
from glidepath.run import approve
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.teams import Team, TeamExecutionRequest, TeamStatus
from glidepath.testing import EventRecorder, ScriptedModel, call, say, virtual

LIMITS = Limits(max_iterations=6)
GIVEN = {
    "extras": {"seed": 7, "top_p": None},
    "tool_choice": "required",
    "metadata": {"order": "A-17"},
    "user": "u-1",
}


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool(requires_approval=True)
async def send() -> str:
    """Send."""
    return "sent"


def agent_with(script, **settings):
    return Agent(**{"model": ScriptedModel(script), "tools": [look, send], "limits": LIMITS} | settings)


@virtual
async def test_the_request_has_what_the_run_was_given_and_the_next_run_does_not():
    agent = agent_with([say("a"), say("b")], extras={"top_p": 0.5, "store": True})
    await agent.run("go", **GIVEN)
    await agent.run("go")
    first, second = agent.config.model.requests
    assert first.extras == {"store": True, "seed": 7}, "None takes the agent's own out"
    assert (first.tool_choice, first.user, first.metadata) == ("required", "u-1", {"order": "A-17"})
    assert (second.extras, second.tool_choice) == ({"top_p": 0.5, "store": True}, "auto")
    assert (second.user, second.metadata) == (None, None)


@virtual
async def test_none_reaches_the_adapter_where_the_agent_has_no_such_extra():
    agent = agent_with([say("a")])
    await agent.run("go", extras={"stream_options": None})
    assert agent.config.model.requests[0].extras == {"stream_options": None}


@virtual
async def test_a_stream_takes_the_same():
    agent = agent_with([say("a")])
    async with agent.stream("go", **GIVEN) as stream:
        started = [event async for event in stream if isinstance(event, RunStarted)]
    assert [(event.user, event.metadata) for event in started] == [("u-1", {"order": "A-17"})]
    assert agent.config.model.requests[0].tool_choice == "required"


def test_run_sync_takes_the_same():
    agent = agent_with([say("a")])
    agent.run_sync("go", **GIVEN)
    assert agent.config.model.requests[0].user == "u-1"


@virtual
async def test_every_hook_sees_user_and_metadata_and_cannot_change_them():
    seen = {}

    class Looks(Plugin):
        def _note(self, name, context):
            seen[name] = (context.user, dict(context.metadata))
            with pytest.raises(TypeError):
                context.metadata["order"] = "B"

        def before_tool_call(self, context):
            self._note("before", context)

        def after_tool_call(self, context):
            self._note("after", context)

        def context_transform(self, context):
            self._note("transform", context)

        def tool_gate(self, context):
            self._note("gate", context)

        def steering(self, context):
            self._note("steering", context)

    result = await agent_with([call("look"), say("done")], plugins=[Looks()]).run("go", **GIVEN)
    assert result.outcome is LoopOutcome.DONE
    assert len(seen) == 5
    assert set(map(str, seen.values())) == {str(("u-1", {"order": "A-17"}))}


# --- children ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["spawn", "run", "as_tool"])
@virtual
async def test_children_have_user_and_metadata_and_neither_extras_nor_tool_choice(how):
    child = agent_with([say("child")], agent_name="child", tools=[])

    @tool
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        result = await (context.spawn(child, "task") if how == "spawn" else child.run("task"))
        return result.text

    tools = [child.as_tool("delegate", "Delegates.")] if how == "as_tool" else [delegate]
    script = [call("delegate", task="x") if how == "as_tool" else call("delegate"), say("done")]
    await agent_with(script, tools=tools).run("go", **GIVEN)
    (request,) = child.config.model.requests
    assert (request.user, request.metadata) == ("u-1", {"order": "A-17"})
    assert (request.extras, request.tool_choice) == (None, "auto")


@pytest.mark.parametrize("parent", [False, True], ids=["inside", "with its context"])
@virtual
async def test_a_child_that_is_given_its_own_has_those_on_top(parent):
    child = agent_with([say("child")], agent_name="child")

    @tool
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        more = {"parent": context} if parent else {}
        return (await child.run("task", user="u-2", metadata={"part": "1"}, tool_choice="none", **more)).text

    result = await agent_with([call("delegate"), say("done")], tools=[delegate]).run("go", **GIVEN)
    (request,) = child.config.model.requests
    assert (request.user, request.metadata) == ("u-2", {"order": "A-17", "part": "1"})
    assert request.tool_choice == "none"
    assert len(result.children) == 1


# --- going on ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True], ids=["from its result", "from a store"])
def test_a_resumed_run_continues_with_what_it_was_given(tmp_path, kept):
    async def flight():
        store = SqliteStore(tmp_path / "s.db") if kept else None
        script = [call("send"), say("done")]
        agent = agent_with(script, store=store)
        paused = await agent.run("go", **GIVEN)
        (pending,) = paused.pending
        target = paused.session_id if kept else paused
        result = await agent.resume(target, decisions={pending.call.id: approve()}, user="u-9")
        assert result.outcome is LoopOutcome.DONE
        return agent.config.model.requests[-1]

    request = asyncio.run(flight())
    assert request.extras == {"seed": 7, "top_p": None}
    assert (request.tool_choice, request.metadata) == ("required", {"order": "A-17"})
    assert request.user == "u-9", "what resume() is given replaces it"


def test_a_run_in_an_imported_session_has_none_of_it_until_it_is_given_again(tmp_path):
    from glidepath.sessions import export_journal, import_journal

    async def flight():
        one, other = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db")
        paused = await agent_with([call("send")], store=one).run("go", session="talk", **GIVEN)
        data = await export_journal(one, "talk")
        await import_journal(other, data)
        agent = agent_with([say("done")], store=other)
        (pending,) = paused.pending
        await agent.resume("talk", decisions={pending.call.id: approve()}, metadata={"mine": "yes"})
        return agent.config.model.requests[-1]

    request = asyncio.run(flight())
    assert (request.extras, request.tool_choice, request.user) == (None, "auto", None)
    assert request.metadata == {"mine": "yes"}


def test_a_replay_flies_with_what_the_run_was_given(tmp_path):
    from glidepath.agent.replay import replay

    async def flight():
        store = SqliteStore(tmp_path / "s.db")
        agent = agent_with([call("look"), say("done")], store=store)
        result = await agent.run("go", session="talk", **GIVEN)
        assert result.outcome is LoopOutcome.DONE
        return await replay(agent_with([]), store, "talk")

    replayed = asyncio.run(flight())
    assert replayed.same, replayed.difference


# --- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"extras": [1]}, "extras must be a mapping with str keys"),
        ({"extras": {1: 2}}, "extras must be a mapping with str keys"),
        ({"extras": {"a": object()}}, "extras cannot be written as JSON"),
        ({"tool_choice": "lok"}, "tool_choice must be auto, required, none or the name of a tool; got 'lok'"),
        ({"tool_choice": 3}, "tool_choice must be"),
        ({"metadata": "x"}, "metadata must be a mapping of str to str"),
        ({"metadata": {"a": 1}}, r"metadata\['a'\] must be a str of at most 512 characters, not 1"),
        ({"metadata": {"a" * 65: "x"}}, "a key must be a str of 1 to 64 characters"),
        ({"metadata": {"a": "x" * 513}}, r"metadata\['a'\] must be a str of at most 512"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata has 17 entries; 16 are the most"),
        ({"metadata": {"a": "\ud800"}}, "lone surrogate"),
        ({"user": ""}, "user must be a str of 1 to 64 characters"),
        ({"user": "u" * 65}, "user must be a str of 1 to 64 characters"),
        ({"user": "a\0b"}, "user contains a NUL"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_refused_by_name_before_the_first_call(given, said):
    agent = agent_with([])
    for start in (agent.run_sync, agent.stream):
        with pytest.raises(ConfigurationError, match=said):
            start("go", **given)


# --- providers --------------------------------------------------------------------------------------------------

REQUEST = ModelRequest(messages=[UserMessage("hi")], user="u-1", metadata={"order": "A-17"})
STORED = ModelRequest(messages=[UserMessage("hi")], user="u-1", metadata={"order": "A-17"}, extras={"store": True})


def fields(model, request=REQUEST):
    body = model._body(request)
    return {name: body[name] for name in ("user", "safety_identifier", "metadata", "store") if name in body}


def test_anthropic_gets_the_user_as_its_metadata():
    assert fields(AnthropicModel("claude-sonnet-4-5", api_key="x")) == {"metadata": {"user_id": "u-1"}}


def test_openai_gets_both_and_chat_completions_the_metadata_only_of_what_is_stored():
    chat, responses = OpenAIChatModel("gpt-5", api_key="x"), OpenAIResponsesModel("gpt-5", api_key="x")
    assert fields(chat) == {"safety_identifier": "u-1"}
    assert fields(chat, STORED) == {"safety_identifier": "u-1", "metadata": {"order": "A-17"}, "store": True}
    assert fields(responses) == {"safety_identifier": "u-1", "metadata": {"order": "A-17"}, "store": False}


@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIChatModel, OpenAIResponsesModel])
def test_another_host_gets_neither(kind):
    found = fields(kind("m", base_url="http://127.0.0.1:9/v1", api_key="x"))
    assert set(found) <= {"store"}


def test_what_extras_say_wins():
    request = ModelRequest(messages=[UserMessage("hi")], user="u-1", extras={"safety_identifier": "mine"})
    assert fields(OpenAIChatModel("gpt-5", api_key="x"), request) == {"safety_identifier": "mine"}


def test_gemini_has_no_such_field():
    assert fields(GoogleModel("gemini-2.5-flash", api_key="x")) == {}


@virtual
async def test_the_recorder_tells_the_user_of_the_run():
    recorder = EventRecorder()
    await agent_with([say("a")], event_sink=recorder).run("go", user="u-1")
    assert recorder.of(RunStarted)[0].user == "u-1"


# --- tools, teams --------------------------------------------------------------------------------------------------


def reporting(seen):
    @tool
    async def whose(context: ToolContext) -> str:
        """Say for whom this is."""
        seen.append((context.user, dict(context.metadata)))
        with pytest.raises(TypeError):
            context.metadata["x"] = "y"
        return "ok"

    return whose


@virtual
async def test_a_tool_reads_for_whom_the_run_is():
    seen = []
    agent = agent_with([call("whose"), say("a"), call("whose"), say("b")], tools=[reporting(seen)])
    await agent.run("go", user="u-1", metadata={"order": "A-17"})
    await agent.run("go", user="u-2", metadata={})
    assert seen == [("u-1", {"order": "A-17"}), ("u-2", {})]


def test_a_context_for_tests_says_what_it_is_told():
    made = ToolContext.for_testing(user="u-1", metadata={"a": "b"})
    assert (made.user, made.metadata) == ("u-1", {"a": "b"})
    plain = ToolContext.for_testing()
    assert (plain.user, plain.metadata) == (None, {})


@virtual
async def test_every_member_of_a_team_works_for_its_user_also_after_a_pause():
    seen, store = [], MemoryStore()
    script = [call("whose"), call("send"), call("whose"), say("done")]
    member = Agent(model=ScriptedModel(script), tools=[reporting(seen), send], limits=LIMITS, agent_name="one")
    crew = Team([member], store=store)
    paused = await crew.run(TeamExecutionRequest(goal="go", id="r"), user="u-1", metadata={"order": "A-17"})
    assert paused.status is TeamStatus.PAUSED
    [waiting] = [one for outcome in paused.step_outcomes for one in outcome.pending]
    crew = Team([member], store=store)
    result = await crew.resume("r", decisions={waiting.call.id: approve()})
    assert result.status is TeamStatus.COMPLETED
    assert seen == [("u-1", {"order": "A-17"})] * 2
    assert (result.request.user, result.request.metadata) == ("u-1", {"order": "A-17"})


@virtual
async def test_a_team_inside_a_run_works_for_the_user_of_that_run():
    seen = []
    member = Agent(
        model=ScriptedModel([call("whose"), say("done")]), tools=[reporting(seen)], limits=LIMITS, agent_name="one"
    )

    @tool
    async def delegate() -> str:
        """Let a team do it."""
        return (await Team([member]).run("go", metadata={"part": "1"})).text

    agent = agent_with([call("delegate"), say("a")], tools=[delegate])
    await agent.run("go", user="u-1", metadata={"order": "A-17"})
    assert seen == [("u-1", {"order": "A-17", "part": "1"})]


@pytest.mark.parametrize(
    ("given", "said"),
    [({"user": ""}, "user must be"), ({"metadata": {"a": 1}}, "metadata"), ({"metadata": "a"}, "metadata")],
)
@virtual
async def test_a_team_refuses_what_no_vendor_takes(given, said):
    member = agent_with([])
    with pytest.raises(ConfigurationError, match=said):
        await Team([member]).run("go", **given)
    with pytest.raises(ConfigurationError, match=said):
        TeamExecutionRequest(goal="go", **given)
