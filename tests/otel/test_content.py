"""Content is off by default; when it is on, each message once, clipped and redacted."""

import json
import threading

import pytest

from glidepath import Agent, Limits, tool
from glidepath.apps.telemetry import CONTENT_SWITCH
from glidepath.testing import ScriptedModel, call, say, thinking

from .kit import Recorded, tokens

LIMITS = Limits(max_iterations=20)
SECRET = "sk-12345"
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
    assert json.loads(said["parts"][0]["arguments"]) == {"key": "[key]"}


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
    assert text.count("The one and only prompt.") == 1
    assert text.count("fetched with key number 7") == 2  # as the tool's result, and as what the next call saw


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
