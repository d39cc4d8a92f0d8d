"""Content is off by default; when it is on, each message once, clipped and redacted."""

import json
import threading

import pytest

from glidepath import Agent, Limits, __version__, tool
from glidepath.apps.telemetry import CONTENT_SWITCH
from glidepath.testing import ScriptedModel, call, say, thinking

from .kit import Recorded, tokens

LIMITS = Limits(max_iterations=20)
SECRET = "sk-12345"
SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
NAMES = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")


@tool
async def fetch(key: str) -> str:
    """Fetch something."""
    return f"fetched with {key}"


def fly(recorded, script=None, prompt=f"My key is {SECRET}."):
    script = script or [call("fetch", key=SECRET), say(f"Done with {SECRET}.")]
    agent = Agent(
        model=ScriptedModel(script), tools=[fetch], plugins=[recorded.plugin], limits=Limits(max_iterations=9)
    )
    return agent.run_sync(prompt)


def everything(recorded):
    spans = [
        [span.name, dict(span.attributes), [dict(event.attributes) for event in span.events]] for span in recorded.spans
    ]
    return json.dumps(spans, default=str)


def test_nothing_that_anybody_said_is_recorded_by_default():
    recorded = Recorded()
    fly(recorded)
    assert SECRET not in everything(recorded)
    assert not any(name in span.attributes for span in recorded.spans for name in NAMES)


def test_the_name_of_a_tool_that_does_not_exist_is_what_the_model_said():
    recorded = Recorded()
    fly(recorded, [call(SECRET * 1000, key="x")] * 5 + [say("done")])  # until it is withdrawn
    (run,) = recorded.named("invoke_agent")
    refused = [dict(event.attributes) for event in run.events if event.name == "glidepath.tool.refused"]
    assert refused[0] == {"kind": "unknown_tool"}
    assert {"kind": "withdrawn"} in refused
    assert SECRET not in everything(recorded)


def test_a_secret_is_found_in_arguments_however_json_writes_it():
    key = 'p"w\\d\n'
    recorded = Recorded(content=True, redact=lambda text: text.replace(key, "[key]"))
    fly(recorded, [call("fetch", key=key), say("done")], "Go.")
    (used,), (asked, _) = recorded.named("execute_tool"), recorded.named("chat")
    assert json.loads(used.attributes["gen_ai.tool.call.arguments"]) == {"key": "[key]"}
    (said,) = json.loads(asked.attributes["gen_ai.output.messages"])
    assert said["parts"][0]["arguments"] == {"key": "[key]"}


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, {"key": SECRET}),
        ({"max_chars": 10}, '{"key": "s... (19 characters)'),
        ({"redact": lambda text: "***" if "{" in text else text}, "***"),  # of the whole: no object is left
        ({"redact": lambda text: "7" if "{" in text else text}, "7"),
        ({"redact": lambda text: "[" * 100_000 if "{" in text else text, "max_chars": 200_000}, "[" * 100_000),
    ],
    ids=["whole", "cut", "redacted", "number", "deep"],
)
def test_arguments_in_a_message_are_an_object_where_they_still_are_one(settings, shown):
    recorded = Recorded(content=True, **settings)
    fly(recorded)
    (said,) = json.loads(recorded.named("chat")[0].attributes["gen_ai.output.messages"])
    assert said["parts"][0]["arguments"] == shown


def test_arguments_that_a_redaction_has_made_unprintable_are_cleaned():
    recorded = Recorded(content=True, redact=lambda text: '{"key": "\\ud800"}' if "{" in text else text)
    fly(recorded)
    written = recorded.named("chat")[0].attributes["gen_ai.output.messages"]
    written.encode()
    assert json.loads(written)[0]["parts"][0]["arguments"] == {"key": "?"}


def test_content_that_cannot_be_written_leaves_the_span_without_it(monkeypatch):
    recorded = Recorded(content=True)
    monkeypatch.setattr("glidepath.apps.telemetry.span_content.clean", int)
    result = fly(recorded)
    monkeypatch.undo()
    assert tokens(recorded.spans)[:2] == (result.usage.input, result.usage.output)
    assert len(recorded.spans) == 4
    assert not any(name in span.attributes for span in recorded.spans for name in NAMES)


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "simple"])
@pytest.mark.parametrize("light", [True, False], ids=["light", "sdk"])
def test_each_call_has_only_what_is_new_to_it(light, batch):
    recorded = Recorded(light=light, batch=batch, content=True)
    fly(recorded)
    first, second = recorded.named("chat")
    (asked,) = json.loads(first.attributes["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": f"My key is {SECRET}."}]}
    (answered,) = json.loads(second.attributes["gen_ai.input.messages"])
    assert answered["role"] == "tool"
    assert answered["parts"][0]["response"] == f"fetched with {SECRET}"
    (said,) = json.loads(second.attributes["gen_ai.output.messages"])
    assert said["parts"] == [{"type": "text", "content": f"Done with {SECRET}."}]
    assert said["finish_reason"] == "stop"
    (used,) = recorded.named("execute_tool")
    assert json.loads(used.attributes["gen_ai.tool.call.arguments"]) == {"key": SECRET}
    assert used.attributes["gen_ai.tool.call.result"] == f"fetched with {SECRET}"


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "simple"])
def test_a_slow_redaction_runs_on_a_thread_of_its_own(batch):
    threads = set()

    def redact(text):
        threads.add(threading.current_thread().name)
        return text

    fly(Recorded(content=True, batch=batch, redact=redact))
    assert threads == {"glidepath-otel"}


def test_a_long_run_records_no_message_twice():
    recorded = Recorded(content=True)
    script = [call("fetch", key=f"key number {number}") for number in range(12)]
    fly(recorded, [*script, say("Done.")], "The one and only prompt.")
    text = everything(recorded)
    assert text.count("The one and only prompt.") == 2  # as what the run began with, and what its first call saw
    # As the tool's result, as what the next call saw, and in the summary that is this run's answer.
    assert text.count("fetched with key number 7") == 3


def test_text_passes_the_redaction_first():
    recorded = Recorded(content=True, redact=lambda text: text.replace(SECRET, "***"))
    fly(recorded)
    text = everything(recorded)
    assert SECRET not in text
    assert "My key is ***." in text


@pytest.mark.parametrize("redact", [lambda text: 1 / 0, lambda text: None], ids=["raises", "answers nonsense"])
def test_a_redaction_that_fails_shows_nothing(redact):
    recorded = Recorded(content=True, redact=redact)
    assert fly(recorded).text == f"Done with {SECRET}."
    assert SECRET not in everything(recorded)
    assert "the redaction failed" in everything(recorded)


def test_megabytes_and_broken_text_are_cut_and_cleaned():
    recorded = Recorded(content=True, max_chars=100)
    huge = "x\ud800" * 1_000_000
    fly(recorded, [thinking("hm " * 1000, then=say(huge))], "y" * 3_000_000)
    chat = recorded.named("chat")[0]
    assert len(chat.attributes["gen_ai.output.messages"]) < 1_000
    chat.attributes["gen_ai.input.messages"].encode()


@pytest.mark.parametrize(("value", "shown"), [("SPAN_ONLY", True), ("NO_CONTENT", False), ("EVENT_ONLY", False)])
def test_the_usual_variable_switches_it_on(monkeypatch, value, shown):
    monkeypatch.setenv(CONTENT_SWITCH, value)
    recorded = Recorded()
    fly(recorded)
    assert (SECRET in everything(recorded)) is shown


def test_the_run_has_its_input_and_output_and_the_instructions_are_told_once():
    recorded = Recorded(content=True, redact=lambda text: text.replace(SECRET, "***"))

    @tool
    async def look(place: str) -> str:
        """Look somewhere."""
        return place

    agent = Agent(
        model=ScriptedModel([call("look", place="here"), say(f"Done with {SECRET}.")]),
        tools=[look],
        system_prompt=f"Be kind to {SECRET}.",
        temperature=0.5,
        plugins=[recorded.plugin],
        limits=Limits(max_iterations=5),
    )
    agent.run_sync("hello")
    (run,), chats = recorded.named("invoke_agent"), recorded.named("chat")
    for span in (run, chats[0]):
        (instruction,) = json.loads(span.attributes["gen_ai.system_instructions"])
        assert instruction == {"type": "text", "content": "Be kind to ***."}
        (definition,) = json.loads(span.attributes["gen_ai.tool.definitions"])
        assert (definition["name"], definition["description"]) == ("look", "Look somewhere.")
        assert definition["parameters"]["required"] == ["place"]
    assert "gen_ai.system_instructions" not in chats[1].attributes
    (question,) = json.loads(run.attributes["gen_ai.input.messages"])
    assert question == {"role": "user", "parts": [{"type": "text", "content": "hello"}]}
    (answer,) = json.loads(run.attributes["gen_ai.output.messages"])
    assert (answer["role"], answer["parts"][0]["content"]) == ("assistant", "Done with ***.")
    assert [span.attributes["gen_ai.request.temperature"] for span in chats] == [0.5, 0.5]
    session = run.attributes["gen_ai.conversation.id"]
    assert {span.attributes["gen_ai.conversation.id"] for span in chats} == {session}
    (called,) = recorded.named("execute_tool")
    assert called.attributes["gen_ai.tool.type"] == "function"
    scope = run.instrumentation_scope
    assert (scope.name, scope.version, scope.schema_url) == ("glidepath", __version__, SCHEMA)
    assert chats[0].instrumentation_scope == scope
