"""Every sentence the runtime tells a model can be set, is checked when it is set, and reaches the model."""

import asyncio
import io
import re
from pathlib import Path

import pytest

import glidepath
from glidepath import (
    Agent,
    AgentBuilder,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    Plugin,
    Texts,
    tool,
)
from glidepath.apps.cli import CliContext
from glidepath.cli import main
from glidepath.events import NoticeSent
from glidepath.sessions import MemoryStore
from glidepath.spi import Block
from glidepath.testing import EventRecorder, ScriptedModel, call, say, truncated, virtual
from glidepath.values import LONGEST_TEXT, PLACEHOLDERS

FIELDS = Texts.__struct_fields__


@tool
async def look(page: int = 0) -> str:
    """Look."""
    return "nothing"


@tool
async def fail(item: int = 0) -> str:
    """Fail."""
    raise PermissionError("token expired")


async def told(turns, texts, limits=None, **more):
    """The notices a run with these texts sent, and its result."""
    recorder = EventRecorder()
    model = ScriptedModel(turns).forever(say("done"))
    agent = Agent(
        model=model,
        tools=[look, fail],
        limits=limits or Limits(max_iterations=40),
        texts=texts,
        event_sink=recorder,
        **more,
    )
    result = await agent.run("the task")
    return [event.text for event in recorder.of(NoticeSent)], result


def test_the_default_wind_down_names_the_budget_asks_for_delivery_and_names_no_tool():
    text = Texts().fill("wind_down", limit="turn budget")
    assert "turn budget" in text
    assert "final answer" in text
    assert "Ask for input only if" in text
    assert "tool" not in text


@pytest.mark.parametrize("name", FIELDS)
def test_every_text_is_used_by_the_runtime(name):
    house = Path(glidepath.__file__).parent
    files = [path.read_text() for path in house.rglob("*.py") if path.name != "texts.py"]
    assert any(re.search(rf'"{name}"', text) for text in files)


@pytest.mark.parametrize("name", FIELDS)
def test_every_text_can_use_its_placeholders_and_literal_braces(name):
    names = sorted(PLACEHOLDERS.get(name, ()))
    text = "mine {{}} " + " ".join(f"{{{one}}}" for one in names)
    filled = Texts(**{name: text}).fill(name, **dict.fromkeys(names, "{x}"))
    assert filled == "mine {} " + " ".join("{x}" for _ in names)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize(
    "wrong",
    [
        *["", " \n", None, 3, b"x", "x" * (LONGEST_TEXT + 1), "\ud800", "a\0b"],
        *["{nobody}", "{0}", "{}", "{", "}", "{limit:9}", "{tools.x}"],
    ],
)
def test_a_text_that_cannot_be_sent_or_filled_in_is_refused_by_name(name, wrong):
    with pytest.raises(ConfigurationError, match=rf"Texts\.{name}"):
        Texts(**{name: wrong})


def test_a_misspelt_text_is_named_with_the_one_that_was_meant():
    with pytest.raises(ConfigurationError, match="no text named 'landin'; did you mean 'landing'"):
        Texts(landin="x")


def test_the_configuration_file_sets_them_in_a_table(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('model = "openai:gpt-5"\n[texts]\nlandin = "Land."\n')
    err = io.StringIO()
    world = CliContext(folder=tmp_path, stdout=io.StringIO(), stderr=err)
    assert main(["sim", "--config", str(file), "--only", "same_call"], world) == 2
    assert "did you mean 'landing'?" in err.getvalue()
    file.write_text('model = "openai:gpt-5"\n[texts]\nlanding = "Land."\n')
    assert main(["sim", "--config", str(file), "--only", "same_call"], world) == 0


def test_an_agent_takes_texts_and_nothing_else_for_them():
    with pytest.raises(ConfigurationError, match="texts must be a Texts"):
        Agent(model=ScriptedModel([]), texts={"landing": "x"}, limits=Limits(max_iterations=1))


def test_children_inherit_the_texts():
    texts = Texts(landing="Land.")
    config = AgentBuilder().model(ScriptedModel([])).texts(texts).max_iterations(3).build()
    assert config.child_builder().max_iterations(2).build().texts is texts


@virtual
async def test_the_wind_down_and_the_landing_speak_the_words_that_were_set():
    texts = Texts(wind_down="Only little {limit} left!", landing="Call deliver.")
    work = [call("look", page=n) for n in range(9)]
    notices, _ = await told(work, texts, Limits(max_iterations=4, grace_iterations=1))
    assert notices == ["Only little turn budget left!", "Call deliver."]


@virtual
async def test_a_message_provider_still_goes_before_the_text():
    texts = Texts(wind_down="not this")
    work = [call("look", page=n) for n in range(3)]
    limits = Limits(max_iterations=4, grace_iterations=1)
    notices, _ = await told(work, texts, limits, graceful_turn_limit_message_provider=lambda: "but this")
    assert notices == ["but this"]


@virtual
async def test_the_ladder_of_repetition_speaks_the_words_that_were_set():
    texts = Texts(repetition="Circle of {tools} x{times}", withdrawn="Gone: {tools}")
    notices, result = await told([call("look")] * 4, texts)
    assert notices == ["Circle of look x3"]
    assert [m.text for m in result.messages if m.role == "tool_result"][-1] == "Gone: look"


@virtual
async def test_the_error_nudge_speaks_the_words_that_were_set():
    notices, _ = await told([call("fail", item=n) for n in range(3)], Texts(error_streak="No: {reason}"))
    assert notices == ["No: fail failed 3 times in a row with PermissionError"]


@virtual
async def test_continuation_and_empty_answers_speak_the_words_that_were_set():
    texts = Texts(continuation="More.", empty_answer="Speak.")
    notices, result = await told([truncated("half "), call("look"), say(" "), say("an answer")], texts)
    assert notices == ["More.", "Speak."]
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_what_a_call_is_answered_instead_of_a_result_speaks_the_words_that_were_set():
    class Guard(Plugin):
        def before_tool_call(self, context):
            if context.call.arguments.get("n") == 1:
                return Block("no ones")
            if context.call.arguments.get("n") == 2:
                raise OSError("the policy server is gone")
            return None

    @tool
    async def count(n: int) -> str:
        if n == 3:
            asyncio.current_task().cancel()
        await asyncio.sleep(100)
        return "late"

    texts = Texts(
        unknown_tool="U: {advice}",
        bad_arguments="B: {problem}",
        blocked="X: {reason}",
        guard_failed="G.",
        stopped="S: {reason}.",
        cancelled_inside="C.",
    )
    turns = [call("cuont", n=1), call("count", n="many"), *[call("count", n=n) for n in (1, 2, 3, 4)], say("done")]
    agent = Agent(
        model=ScriptedModel(turns),
        tools=[count],
        plugins=[Guard()],
        limits=Limits(max_iterations=20),
        guardrails=GuardrailsConfig(max_error_streak=0),
        tool_timeout=1,
        texts=texts,
    )
    result = await agent.run("go")
    said = [message.text for message in result.messages if message.role == "tool_result"]
    assert [text.partition(" ")[0].rstrip(".") for text in said] == ["U:", "B:", "X:", "G", "C", "S:"]
    assert "Did you mean 'count'?" in said[0]
    assert said[2] == "X: no ones"


@virtual
async def test_a_run_that_crashed_and_is_not_resumed_is_closed_with_the_words_that_were_set():
    store = MemoryStore()

    @tool
    async def pay(n: int) -> str:
        raise KeyboardInterrupt if n else OSError

    first = Agent(model=ScriptedModel([call("pay", n=1)]), tools=[pay], store=store, limits=Limits(max_iterations=5))
    await first.run("go", session="s")
    commits = (await store.load("s"))[1]
    lease = await store.claim("s", "me")
    intent = next(number for number, commit in enumerate(commits, 1) if b'"intent"' in bytes(commit.body))
    await store.cut(lease, intent, commits[intent - 1].hash)
    await store.release(lease)
    texts = Texts(unknown_effect="Nobody knows.")
    again = Agent(
        model=ScriptedModel([say("ok")]), tools=[pay], store=store, limits=Limits(max_iterations=5), texts=texts
    )
    result = await again.run("next", session="s")
    assert "Nobody knows." in [message.text for message in result.messages if message.role == "tool_result"]
