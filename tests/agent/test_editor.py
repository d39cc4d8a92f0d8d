"""What a person's editor and eye get: an agent with other settings, and results that say how they went."""

import pytest

from glidepath import Agent, Limits, LoopOutcome
from glidepath.errors import ConfigurationError
from glidepath.testing import ScriptedModel, say, virtual

FEW = Limits(max_iterations=3)


def test_replace_makes_another_agent_and_leaves_this_one():
    one = Agent(model=ScriptedModel(["hi"]), limits=FEW)
    two = one.replace(limits=Limits(max_iterations=7), system_prompt="Be brief.")
    assert (one.config.limits, one.config.system_prompt) == (FEW, "")
    assert (two.config.limits.max_iterations, two.config.system_prompt) == (7, "Be brief.")
    assert two.config.model is one.config.model


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"limit": FEW}, "did you mean 'limits'"),
        ({"limits": "many"}, "limits must be"),
        ({"output_type": int}, "output_type"),
    ],
    ids=["misspelt", "wrong", "output"],
)
def test_replace_names_what_is_wrong(changes, said):
    with pytest.raises(ConfigurationError, match=said):
        Agent(model=ScriptedModel(["hi"]), limits=FEW).replace(**changes)


def test_a_result_is_ok_when_the_run_delivered():
    done = Agent(model=ScriptedModel(["hi"]), limits=FEW).run_sync("Hi.")
    assert done.outcome is LoopOutcome.DONE
    assert done.ok
    failed = Agent(model=ScriptedModel([]), limits=FEW, max_retries=0).run_sync("Hi.")
    assert failed.outcome is LoopOutcome.FAILED
    assert not failed.ok


def test_a_notebook_shows_state_spend_and_text_and_no_markup_of_the_models():
    shown = Agent(model=ScriptedModel([say("<script>alert(1)</script>")]), limits=FEW).run_sync("Hi.")._repr_html_()
    assert "COMPLETED / DONE" in shown
    assert "tokens" in shown
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


@virtual
async def test_a_stream_shows_where_its_run_stands():
    stream = Agent(model=ScriptedModel([say("<b>hi</b>")]), limits=FEW).stream("Hi.")
    assert repr(stream) == "<RunStream IDLE>"
    assert "IDLE" in stream._repr_html_()
    async with stream:
        async for _ in stream:
            assert "RUNNING" in repr(stream) or "COMPLETED" in repr(stream)
    assert "COMPLETED/DONE, 1 turn," in repr(stream)
    assert "&lt;b&gt;hi" in stream._repr_html_()
