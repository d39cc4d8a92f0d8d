"""A tool that has run is never told to the model as one that failed, because of what it returned."""

import logging

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.events import ToolEnded
from glidepath.testing import EventRecorder, ScriptedModel, call, say, virtual


async def returning(value):
    recorder = EventRecorder()

    @tool
    async def act() -> object:
        """Act."""
        return value

    model = ScriptedModel([call("act"), say("answer")])
    result = await Agent(model=model, tools=[act], limits=Limits(max_iterations=3), event_sink=recorder).run("go")
    assert result.outcome is LoopOutcome.DONE
    return recorder.one(ToolEnded)


@pytest.mark.parametrize(
    "value", [object(), {(1, 2): 3}, float("inf"), 3j, iter([1])], ids=lambda value: type(value).__name__
)
@virtual
async def test_a_result_that_is_not_json_is_a_result(value):
    ended = await returning(value)
    assert not ended.result.is_error
    assert "[shown as text:" in ended.result.text


@virtual
async def test_bytes_tell_the_model_that_the_tool_ran_and_people_what_to_change(caplog):
    with caplog.at_level(logging.WARNING, logger="glidepath"):
        ended = await returning(b"12345")
    assert (ended.result.is_error, ended.result.kind) == (True, "not_shown")
    assert ended.result.text.startswith("The tool ran to its end")
    assert "decode them to str" not in ended.result.text
    assert "act: the tool returned 5 bytes" in ended.traceback
    assert "decode them to str" in caplog.text
