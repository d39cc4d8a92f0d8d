"""Small courtesies: what people write gets the value it means, or one sentence with the fix."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
from datetime import timedelta
from decimal import Decimal

import pytest

from glidepath import Agent, ConfigurationError, Limits, tool
from glidepath.errors import RejectedError, RunInterrupted, RunNotCompleted
from glidepath.events import RunEnded, StreamChunk
from glidepath.testing import ScriptedModel, call, fail, say


def agent(*turns):
    return Agent(model=ScriptedModel(turns or [say("Hello there.")]), limits=Limits(max_iterations=3))


@pytest.mark.parametrize(
    ("given", "seconds"), [("30s", 30), ("1h30m", 5400), ("90", 90), (timedelta(minutes=2), 120), (5, 5)], ids=str
)
def test_a_time_may_be_written_as_in_a_file(given, seconds):
    assert Limits(timeout=given).timeout == seconds
    assert Limits(timeout=60, landing_seconds=given).landing_seconds == seconds


@pytest.mark.parametrize("given", ["soon", "", "-3s", timedelta(0), timedelta(-1), float("nan")], ids=str)
def test_what_is_not_a_time_is_refused_with_an_example(given):
    with pytest.raises(ConfigurationError, match=r"Limits\.timeout must be"):
        Limits(timeout=given)


def test_money_may_be_a_float_and_is_what_it_looks_like():
    assert Limits(max_cost=0.1).max_cost == Decimal("0.1")
    assert Limits(max_cost=0.1) == Limits(max_cost=Decimal("0.1"))
    for wrong in (float("nan"), float("inf"), -0.5, 0.0):
        with pytest.raises(ConfigurationError, match="max_cost"):
            Limits(max_cost=wrong)


def test_the_command_lines_word_for_turns_leads_to_the_python_one():
    with pytest.raises(ConfigurationError, match="no limit 'max_turns'; did you mean 'max_iterations'"):
        Limits(max_turns=3)


def test_one_run_may_have_its_own_limits():
    endless = Agent(
        model=ScriptedModel().forever(lambda request: call("look") if request.tools else say("Enough.")),
        tools=[tool(_look, name="look")],
        unbounded=True,
    )
    result = endless.run_sync("hi", limits=Limits(max_iterations=3))
    assert (result.text, result.iterations) == ("Enough.", 3)


def _look() -> str:
    """Look around."""
    return "nothing new"


def test_the_traceback_of_a_mistake_in_run_sync_begins_with_the_mistake():
    with pytest.raises(ConfigurationError) as refused:
        agent().run_sync("")
    assert refused.value.__context__ is None


def test_ok_tells_an_answer_from_a_failure():
    assert agent().run_sync("hi").ok
    failed = agent(fail(RejectedError("no"))).run_sync("hi")
    assert not failed.ok
    with pytest.raises(RunNotCompleted, match="no"):
        failed.unwrap()


def test_a_stream_in_a_plain_for_loop_says_how():
    with pytest.raises(TypeError, match=r"async with agent\.stream.*agent\.stream_sync"):
        list(agent().stream("hi"))


def test_stream_sync_gives_the_events_and_the_result():
    with agent().stream_sync("hi") as stream:
        with pytest.raises(RuntimeError, match="not ended yet"):
            _ = stream.result
        events = list(stream)
    assert isinstance(events[-1], RunEnded)
    assert "".join(event.text for event in events if isinstance(event, StreamChunk)) == "Hello there."
    assert stream.result.text == "Hello there."
    with pytest.raises(RuntimeError, match="only once"):
        list(stream)


def test_leaving_stream_sync_early_lands_the_run():
    from glidepath.testing import hang

    with agent(hang("This much.")).stream_sync("hi") as stream:
        for event in stream:
            if isinstance(event, StreamChunk) and event.text:
                break
    assert stream.result.outcome.name == "CANCELLED"


def test_what_is_wrong_with_the_agent_is_raised_by_stream_sync():
    with pytest.raises(ConfigurationError, match="prompt is empty"):
        list(agent().stream_sync(""))


def test_stream_sync_raises_when_no_event_loop_can_be_made(monkeypatch):
    import asyncio
    import threading

    def exhausted():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio.events, "new_event_loop", exhausted)
    raised = []

    def consume():
        with pytest.raises(OSError, match="Too many open files") as caught:
            list(agent().stream_sync("hi"))
        raised.append(caught.value)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    consumer.join(20)
    assert len(raised) == 1, "the consumer still waits for an event"


def test_stream_sync_works_inside_a_running_loop():
    import asyncio

    async def notebook():
        return [type(event).__name__ for event in agent().stream_sync("hi")][-1]

    assert asyncio.run(notebook()) == "RunEnded"


def test_a_tool_that_tells_the_model_nothing_is_logged_once(caplog):
    def make():
        def bare(x, y: int = 3):
            return x + y

        return bare

    with caplog.at_level(logging.WARNING, logger="glidepath"):
        tool(make())
        tool(make())
    [record] = caplog.records
    assert "tool 'bare': there is no description" in record.getMessage()
    assert "parameter 'x' has no annotation" in record.getMessage()
    assert "'y'" not in record.getMessage()


def test_a_default_of_none_makes_a_parameter_optional():
    @tool
    def look(x: int = None) -> str:  # noqa: RUF013 - what people write
        """Look at x."""
        return f"{x}"

    kinds = look.parameters["properties"]["x"]
    assert "null" in str(kinds)
    assert look.parameters.get("required", []) == []


def test_ctrl_c_in_run_sync_lands_and_the_text_travels_in_the_exception(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, threading
            from glidepath import Agent, Limits
            from glidepath.errors import RejectedError, RunInterrupted, RunNotCompleted
            from glidepath.testing import ScriptedModel, hang

            agent = Agent(model=ScriptedModel([hang("Half of the answer")]), limits=Limits(timeout=60))
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                agent.run_sync("go")
            except KeyboardInterrupt as stopped:
                print(type(stopped).__name__, "|", stopped, "|", stopped.result.outcome.name)
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "RunInterrupted | Half of the answer | CANCELLED", done.stderr


def test_whoever_handles_ctrl_c_already_goes_on_doing_so():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:

        @tool
        def press() -> str:
            """Press Ctrl-C."""
            os.kill(os.getpid(), signal.SIGINT)
            return "pressed"

        from glidepath.testing import call

        model = ScriptedModel([call("press"), say("Done.")])
        result = Agent(model=model, tools=[press], limits=Limits(max_iterations=3)).run_sync("go")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.text, seen) == ("Done.", [1])
    assert issubclass(RunInterrupted, KeyboardInterrupt)


def test_ctrl_c_in_run_sync_inside_a_running_loop_lands_too(tmp_path):
    """As in a notebook, whose kernel has a loop of its own and leaves Ctrl-C to Python."""
    script = tmp_path / "waits.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio, os, signal
            from glidepath import Agent, Limits
            from glidepath.events import StreamChunk
            from glidepath.testing import ScriptedModel, hang

            def press(event):
                if isinstance(event, StreamChunk) and "answer" in event.text:
                    os.kill(os.getpid(), signal.SIGINT)

            model = ScriptedModel([hang("Half of the answer")])
            agent = Agent(model=model, limits=Limits(timeout=60), event_sink=press)

            async def cell():
                try:
                    agent.run_sync("go")
                except KeyboardInterrupt as stopped:
                    print(type(stopped).__name__, "|", stopped, "|", stopped.result.outcome.name)

            asyncio.new_event_loop().run_until_complete(cell())
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "RunInterrupted | Half of the answer | CANCELLED", done.stderr
