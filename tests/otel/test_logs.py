"""LogObserver: levels, text and JSON, trace ids, and nothing that anybody said unless it is asked for."""

import asyncio
import json
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider

from glidepath import Agent, Limits, tool
from glidepath.errors import ConfigurationError
from glidepath.events import RunStarted, ToolStarted
from glidepath.observe import LogObserver
from glidepath.teams import Team
from glidepath.testing import ScriptedModel, call, say

from .kit import Recorded

SECRET = "the-secret"


@tool
async def fetch(key: str) -> str:
    """Fetch."""
    return f"fetched with {key}"


class Kept(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def log():
    logger, handler = logging.getLogger("tests.otel.log"), Kept()
    logger.setLevel(logging.DEBUG)
    logger.handlers = [handler]
    yield handler.records
    logger.handlers = []


def fly(**settings):
    script = [call("fetch", key=SECRET), say(f"Done with {SECRET}.")]
    observer = LogObserver("tests.otel.log", **settings)
    limits = Limits(max_iterations=9)
    Agent(model=ScriptedModel(script), tools=[fetch], plugins=[observer], limits=limits).run_sync(f"Use {SECRET}.")


def lines(records):
    return [record.getMessage() for record in records]


def test_nothing_that_anybody_said_is_logged_by_default(log):
    fly()
    assert SECRET not in "\n".join(lines(log))
    assert SECRET not in repr([record.glidepath_event for record in log])
    (started,) = [record.glidepath_event for record in log if record.glidepath_event["event"] == "ToolStarted"]
    assert started["arguments"] == ["key"]


def test_the_name_of_a_tool_that_does_not_exist_is_not_logged(log):
    script = [call(SECRET, key="x")] * 5 + [say("done")]  # until it is withdrawn
    observer, limits = LogObserver("tests.otel.log"), Limits(max_iterations=9)
    Agent(model=ScriptedModel(script), tools=[fetch], plugins=[observer], limits=limits).run_sync("Go.")
    assert SECRET not in "\n".join(lines(log))
    ended = [record.glidepath_event for record in log if record.glidepath_event["event"] == "ToolEnded"]
    assert {one["tool_name"] for one in ended} == {None}
    assert {"unknown_tool", "withdrawn"} <= {one["kind"] for one in ended}


@pytest.mark.parametrize("content", [True, False], ids=["content", "no content"])
def test_what_a_team_works_on_is_logged_when_it_is_asked_for(log, content):
    model = ScriptedModel().forever(say(f"Done with {SECRET}."))
    member = Agent(model=model, agent_name="writer", limits=Limits(max_iterations=3))
    team = Team([member], name="crew", plugins=[LogObserver("tests.otel.log", content=content)])
    asyncio.run(team.run(f"Write about {SECRET}."))
    assert (SECRET in "\n".join(lines(log))) is content
    shown = {record.glidepath_event["event"]: record.glidepath_event for record in log}
    assert list(shown["TeamStarted"]["members"]) == ["writer"]
    assert shown["StepAttempted"]["outcome"] == "DONE"
    assert shown["TeamCompleted"]["result"]["status"] == "completed"


def test_content_is_logged_when_it_is_asked_for(log):
    fly(content=True)
    assert SECRET in "\n".join(lines(log))


def test_json_lines_can_be_read_back(log):
    fly()
    for line in lines(log):
        kind, _, fields = line.partition(" ")
        assert json.loads(fields)["event"] == kind


def test_text_lines_are_pairs(log):
    fly(format="text")
    first = lines(log)[0]
    assert first.startswith("RunStarted run_id=run_")
    assert " agent_name=agent " in f"{first} "
    assert not first.split(" ", 1)[1].startswith("{")


def test_details_are_debug_and_steps_are_info(log):
    fly()
    levels = {record.getMessage().split(" ")[0]: record.levelno for record in log}
    assert levels["RunStarted"] == levels["ToolEnded"] == levels["RunEnded"] == logging.INFO
    assert levels["BudgetReserved"] == levels["MessageAdded"] == logging.DEBUG


def test_levels_can_be_chosen_by_event(log):
    fly(levels={ToolStarted: logging.ERROR, RunStarted: logging.DEBUG})
    levels = {record.getMessage().split(" ")[0]: record.levelno for record in log}
    assert levels["ToolStarted"] == logging.ERROR
    assert levels["RunStarted"] == logging.DEBUG


def test_a_record_names_the_current_trace(log):
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("request") as span:
        fly()
    assert {record.glidepath_event["trace_id"] for record in log} == {f"{span.get_span_context().trace_id:032x}"}


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_every_record_of_a_run_names_the_runs_own_trace(log, first):
    recorded = Recorded()
    plugins = [LogObserver("tests.otel.log"), recorded.plugin]
    model, limits = ScriptedModel([call("fetch", key="x"), say("done")]), Limits(max_iterations=9)
    agent = Agent(model=model, tools=[fetch], plugins=plugins if first else plugins[::-1], limits=limits)
    agent.run_sync("Go.")
    (run,) = recorded.named("invoke_agent")
    assert {record.glidepath_event["trace_id"] for record in log} == {f"{run.context.trace_id:032x}"}
    (used,) = recorded.named("execute_tool")
    (started,) = [record.glidepath_event for record in log if record.glidepath_event["event"] == "ToolStarted"]
    assert started["span_id"] == f"{used.context.span_id:016x}"


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"format": "xml"}, "format"), ({"levels": {str: 1}}, "levels"), ({"logger": 7}, "logger")],
    ids=["format", "levels", "logger"],
)
def test_a_wrong_setting_is_named(settings, field):
    with pytest.raises(ConfigurationError, match=field):
        LogObserver(**settings)
