"""How limits were used up: in a stored run, on the simulator's page, in a notebook."""

from xml.etree import ElementTree as ET

from glidepath import Agent, Limits
from glidepath.burndown import Burn, svg_burndown, text_burndown
from glidepath.sim import simulate
from glidepath.sim.page import page
from glidepath.testing import ScriptedModel, call, say
from glidepath.tools import tool


@tool
def look(number: int) -> str:
    """Look at something."""
    return f"{number} is fine"


def test_a_bar_for_each_turn_shows_what_is_left():
    lines = text_burndown([Burn("tokens", [25, 100], 100), Burn("turns", [1, 2])])
    assert lines[0] == "tokens: 100 of 100 (100%)"
    assert lines[1] == f"  turn    1 |{'#' * 30}{' ' * 10}| 75 left"
    assert lines[2] == f"  turn    2 |{' ' * 40}| 0 left"
    assert lines[-1] == "turns: 2, no limit"
    assert len(text_burndown([Burn("tokens", range(1, 1001), 1000)])) == 17


def test_the_svg_is_well_formed_and_there_is_none_without_limits():
    ET.fromstring(svg_burndown([Burn("a<b", [1.0, 2.5], 10), Burn("c", [3, 4], 4)]))
    assert svg_burndown([Burn("tokens", [1, 2])]) == ""


def test_the_page_of_the_simulator_shows_how_limits_were_used_up():
    report = simulate(real_time=False)
    shown = page(report)
    assert "How the limits were used up" in shown
    assert shown.count("what was left of each limit") == 6
    for flight in report.flights:
        assert list(flight.burn) == sorted(flight.burn)  # what is used is never given back


def test_a_result_in_a_notebook_shows_the_limit_that_ended_it():
    model = ScriptedModel().forever(
        lambda request: call("look", number=len(request.messages)) if request.tools else say("That is all.")
    )
    agent = Agent(model=model, tools=[look], limits=Limits(max_iterations=3, grace_iterations=0))
    shown = agent.run_sync("go")._repr_html_()
    assert "<svg" in shown
    assert "turns: " in shown
    done = Agent(model=ScriptedModel([say("<b>hi</b>")]), limits=Limits(max_iterations=3)).run_sync("go")._repr_html_()
    assert "<svg" not in done
    assert "&lt;b&gt;hi" in done
