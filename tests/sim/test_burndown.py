"""How limits were used up: in a stored run, on the simulator's page, in a notebook."""

import asyncio
from xml.etree import ElementTree as ET

from glidepath import Agent, Limits
from glidepath.agent.replay import replay
from glidepath.errors import RejectedError
from glidepath.events import BudgetSettled
from glidepath.sessions import MemoryStore, read_journal
from glidepath.sim import simulate
from glidepath.testing import ScriptedModel, VirtualClock, call, say
from glidepath.testing.simulator.page import page
from glidepath.testing.simulator.whatif import session_runs
from glidepath.tools import tool
from glidepath.values import Burn, svg_burndown, text_burndown


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
    assert any(flight.burn and flight.burn[-1][1] != flight.tokens for flight in report.flights)
    assert shown.index("Tokens sent and written") < shown.index("Tokens here are what was charged")
    assert shown.count("what was left of each limit") == 6
    for flight in report.flights:
        assert list(flight.burn) == sorted(flight.burn)  # what is used is never given back


def busy(request):
    return call("look", number=len(request.messages)) if request.tools else say("That is all.")


def test_a_result_in_a_notebook_shows_every_limit_that_was_set():
    limits = Limits(max_iterations=3, grace_iterations=0, max_tokens=50_000, max_cost="0.5", timeout=60)
    agent = Agent(model=ScriptedModel().forever(busy), tools=[look], limits=limits, prices={"scripted": ("3", "15")})
    result = VirtualClock().run(agent.run("go"))
    shown = result._repr_html_()
    drawing = shown[shown.index("<svg") : shown.index("</svg>") + 6]
    texts = [text.text for text in ET.fromstring(drawing).iter("text")]
    assert [text for text in texts if " of " in text] == [
        "turns: 3 of 3 (100%)",
        f"tokens: {result.usage.total} of 50,000 (<1%)",
        f"dollars: {float(result.cost):.4g} of 0.5 (<1%)",
        "seconds: 0 of 60 (0%)",
    ]
    assert (result.iterations, "turn 3, then the landing" in texts) == (
        3,
        True,
    )  # the axis counts turns as they are limited
    assert "<script" not in shown


def test_a_result_in_a_notebook_is_escaped_and_has_no_chart_without_a_reply():
    done = Agent(model=ScriptedModel([say("<b>hi</b>")]), limits=Limits(max_iterations=3)).run_sync("go")._repr_html_()
    assert "&lt;b&gt;hi" in done
    assert "turns: 1 of 3" in done
    dead = Agent(model=ScriptedModel([RejectedError("no key")]), limits=Limits(max_iterations=3)).run_sync("go")
    assert "<svg" not in dead._repr_html_()


def test_what_a_result_says_was_used_is_what_was_charged_after_each_reply():
    charged = []

    def sink(event):
        if isinstance(event, BudgetSettled):
            charged.append(event.usage.total + (charged[-1] if charged else 0))

    agent = Agent(model=ScriptedModel().forever(busy), tools=[look], limits=Limits(max_iterations=6), event_sink=sink)
    result = agent.run_sync("go")
    assert [point.tokens for point in result.burn] == charged
    assert [point.turns for point in result.burn] == [1, 2, 3, 4, 5, 6]
    assert result.burn[-1].tokens == result.usage.total
    assert result.burn[-1].tool_calls == result.tool_calls
    assert result.limits == {"turns": 6}


def test_children_and_earlier_parts_of_a_run_count_in_what_was_used():
    inner = Agent(model=ScriptedModel().forever(say("Inside.")), limits=Limits(max_iterations=2), agent_name="inner")
    script = [call("inner", task="a"), call("inner", task="b"), say("Outside.")]
    outer = Agent(
        model=ScriptedModel(script), tools=[inner.as_tool("inner", "Ask it.")], limits=Limits(max_iterations=9)
    )
    result = outer.run_sync("go")
    assert [point.turns for point in result.burn] == [1, 3, 5]
    assert result.burn[-1].tokens == result.usage.total
    cut = Agent(model=ScriptedModel().forever(busy), tools=[look], limits=Limits(max_iterations=2)).run_sync("go")
    more = Agent(model=ScriptedModel().forever(busy), tools=[look], limits=Limits(max_iterations=4))
    assert [point.turns for point in more.resume_sync(cut).burn] == [3, 4]


def test_a_long_run_keeps_a_hundred_points():
    limits = Limits(max_iterations=250, grace_iterations=0)
    agent = Agent(model=ScriptedModel().forever(busy), tools=[look], limits=limits)
    result = agent.run_sync("go")
    turns = [point.turns for point in result.burn]
    assert (len(turns), turns[0], turns[-1]) == (100, 1, 250)
    assert turns == sorted(set(turns))


def test_a_replay_that_takes_less_time_has_used_the_same():
    @tool
    async def wait() -> str:
        """Wait a while."""
        await asyncio.sleep(3)
        return "waited"

    async def flight():
        store = MemoryStore()
        agent = Agent(
            model=ScriptedModel([call("wait"), say("done")]), tools=[wait], limits=Limits(timeout=60), store=store
        )
        result = await agent.run("go", session="talk")
        return result, await replay(agent, store, "talk")

    result, replayed = VirtualClock().run(flight())
    assert [point.seconds for point in result.burn] == [0.0, 3.0]
    assert replayed.same, replayed.difference


def test_a_stored_run_has_the_turns_of_its_result_when_withdrawn_tools_are_called_and_it_is_resumed():
    def stubborn(request):
        return call("look", number=1)

    async def flight():
        store = MemoryStore()
        found = []
        for turns in (6, 12):
            agent = Agent(
                model=ScriptedModel().forever(stubborn), tools=[look], limits=Limits(max_iterations=turns), store=store
            )
            result = await (agent.resume("talk") if found else agent.run("go", session="talk"))
            assert result.cause.reason == "it keeps calling tools that were withdrawn"
            found += [(point.turns, point.tokens) for point in result.burn]
        return found, await read_journal(store, "talk")

    found, journal = VirtualClock().run(flight())
    (run,) = session_runs("talk", journal.commits)
    assert [(moment.turns, moment.tokens) for moment in run.moments] == found
    assert [moment.turns for moment in run.moments] == [1, 2, 3, 4, 5, 5, 6, 6]
    assert [moment.landing_calls for moment in run.moments] == [0, 0, 0, 0, 0, 1, 1, 2]
