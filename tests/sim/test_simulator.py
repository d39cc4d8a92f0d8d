"""The simulator: contained by default, holes found where there are holes, the same flight for the same seed."""

import asyncio
import functools
import os
import time
from decimal import Decimal

import pytest

from glidepath import (
    Agent,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    Plugin,
    ResourceConstraint,
    ResourceValidation,
    Rules,
    Usage,
    tool,
)
from glidepath.models import AnthropicModel, WebSearch
from glidepath.sim import Report, fly, simulate
from glidepath.spi import Block, Gate, Replace
from glidepath.testing import SPECIMENS, ScriptedModel, call, say
from glidepath.testing.simulator import crash, encode_report
from glidepath.testing.simulator.page import page
from glidepath.testing.specimens import ANSWER, Specimen

BY_NAME = {kind.name: kind for kind in SPECIMENS}
BOUNDED = {"max_iterations": 20, "max_tokens": 50_000, "timeout": 600}


@tool(timeout=30)
async def lookup(query: str, limit: int = 3) -> str:
    """Look something up."""
    raise AssertionError("the real tool must never run")


@tool
async def slow(item: int) -> str:
    """Take your time."""
    raise AssertionError("the real tool must never run")


def agent(*, model=None, tools=(lookup,), limits=BOUNDED, **settings):
    chosen = model or ScriptedModel(name="mine", price=("3", "15"))
    return Agent(model=chosen, tools=tools, limits=Limits(**limits), **settings)


def codes(report):
    return {finding.code for finding in report.findings}


# --- the library --------------------------------------------------------------------------------------------------


def test_there_are_at_least_forty_specimens_each_named_once_and_described():
    assert len(SPECIMENS) >= 40
    assert len({kind.name for kind in SPECIMENS}) == len(SPECIMENS)
    assert all(kind.__doc__ and kind.family and issubclass(kind, Specimen) for kind in SPECIMENS)


def test_the_default_configuration_contains_every_specimen_and_reports_no_silent_success():
    report = _by_default()
    assert len(report.flights) >= 60
    assert [flight.specimen for flight in report.flights if not flight.contained] == []
    assert report.ok, report.advice()
    assert {flight.answer for flight in report.flights} <= {"model", "partial", "summary"}


def test_what_needs_real_threads_flies_in_real_time():
    report = simulate(agent(), only=["blocking_tool"])
    (flight,) = report.flights
    assert flight.contained
    assert flight.seconds < 5
    assert report.ok, report.advice()


def test_a_killed_run_goes_on_from_its_journal_and_does_nothing_twice():
    (flight,) = simulate(agent(), only=["killed_in_tool"]).flights
    assert (flight.outcome, flight.answer, flight.problems) == ("DONE", "model", ())


def test_what_is_done_twice_after_a_kill_is_a_hole():
    """A plugin that lets the killed call run again, by another name for the same effect, is found out."""

    class Again(Plugin):
        name = "again"

        def before_tool_call(self, context):
            return Replace({"query": "the same"}) if context.replaceable else None

    report = simulate(agent(plugins=[Again()]), only=["killed_in_tool"])
    assert "repeated_effect" in codes(report)
    assert not report.flights[0].contained


def test_every_answer_a_model_gives_is_handed_over_by_default():
    giving = {kind.name for kind in SPECIMENS if kind.answers and not kind.real_time}
    for flight in _by_default().flights:
        assert (flight.specimen in giving) <= ("answer_lost" not in flight.problems), flight.specimen


# --- bad configurations -------------------------------------------------------------------------------------------


class AlwaysYes(Plugin):
    """A gate that allows everything."""

    name = "always_yes"

    def tool_gate(self, context):
        return Gate(allowed=frozenset(context.tools), required=True)


NO_GUARDS = GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=0)
BAD = {
    "no output cap": ({"limits": {"max_iterations": 20, "timeout": 600}}, "unbounded_reply"),
    "unknown price": (
        {"model": ScriptedModel(name="nobody-knows"), "limits": BOUNDED | {"max_cost": "1"}},
        "unknown_price",
    ),
    "guards off": ({"guardrails": NO_GUARDS}, "unnoticed_loop"),
    "gate always allows": ({"plugins": [AlwaysYes()]}, "gate_never_denied"),
    "tool without timeout": ({"tools": [slow]}, "tool_without_timeout"),
    "no landing": ({"landing": "off"}, "answer_lost"),
    "no deadline": ({"limits": {"max_iterations": 20, "max_tokens": 50_000}, "tools": [slow]}, "runaway_seconds"),
    "no turn cap": ({"limits": {"timeout": 600}, "guardrails": NO_GUARDS}, "runaway_calls"),
}
ENOUGH = {
    "no output cap": ["huge_reply"],
    "guards off": ["loops"],
    "gate always allows": ["control", "loops"],
    "tool without timeout": ["hanging_tool"],
    "no landing": ["loops", "replies"],
    "no deadline": ["hanging_tool"],
    "no turn cap": ["fork_bomb", "same_call"],
}
"""The specimens that show it: all of them together would show no more."""


@pytest.mark.parametrize("case", BAD)
def test_a_bad_configuration_is_found_out_and_gets_advice(case):
    settings, expected = BAD[case]
    report = simulate(_config(settings), only=ENOUGH.get(case, ()), real_time=False)
    assert expected in codes(report)
    finding = next(finding for finding in report.findings if finding.code == expected)
    assert finding.advice
    assert finding.severity == ("warning" if expected == "gate_never_denied" else "hole")
    assert report.ok == (expected == "gate_never_denied")


@pytest.mark.parametrize("case", BAD)
def test_the_hole_is_gone_when_the_advice_is_followed(case):
    _, expected = BAD[case]
    assert expected not in codes(_well_configured())


def test_a_flight_that_the_simulator_ended_is_not_said_to_have_lost_its_answer():
    """Landing and grace are at their defaults there: to leave them at their defaults would be no advice."""
    report = simulate(_config({"limits": {"max_iterations": 100_000, "timeout": 600}}), only=["reads_forever"])
    assert codes(report) == {"runaway_tokens"}


def test_a_limit_that_is_far_too_high_is_not_called_missing():
    report = simulate(_config({"limits": {"max_iterations": 100_000, "timeout": 600}}), only=["fork_bomb"])
    (finding,) = (finding for finding in report.findings if finding.code == "runaway_calls")
    assert "lower" in finding.advice
    assert "Nothing bounds" not in finding.advice


def test_whoever_caps_the_output_as_advised_has_no_hole_for_it():
    report = simulate(agent(max_output_tokens=1000, tool_timeout=30), real_time=False)
    assert report.ok, report.findings
    (finding,) = (finding for finding in report.findings if finding.code == "calls_cut")
    assert "max_output_tokens_recovery" in finding.advice


@pytest.mark.parametrize("answer", [Block("not here"), RuntimeError("broken")], ids=["blocks", "crashes"])
def test_where_no_tool_may_run_nobody_is_said_to_have_gone_on_after_a_cancel(answer):
    class Never(Plugin):
        name = "never"

        def before_tool_call(self, context):
            if isinstance(answer, Exception):
                raise answer
            return answer

    only = ["cancelled_in_tool", "task_cancelled", "killed_in_tool"]
    assert codes(simulate(agent(plugins=[Never()]), only=only)) == set()


class Loose(ResourceConstraint):
    """Stops nothing."""

    async def validate(self, context):
        return ResourceValidation.ok()


def test_limits_that_were_dropped_on_purpose_are_not_a_defect():
    config = agent(constraints=[Loose()], replace_defaults=True)
    report = simulate(config, only=["reads_forever"])
    assert "over_turns" in codes(report)
    assert {"replace_defaults" in finding.advice for finding in report.findings if finding.severity == "hole"} == {True}


@functools.cache
def _by_default():
    return simulate(real_time=False)


@functools.cache
def _well_configured():
    return simulate(agent(tool_timeout=30), real_time=False)


def _config(settings):
    """The configuration as it would be, unchecked: what cannot be built must be reported, not raised."""
    from glidepath.values import replace

    limits = Limits(**settings.get("limits", BOUNDED))
    others = {name: value for name, value in settings.items() if name not in ("limits", "tools", "plugins")}
    tools = tuple(settings.get("tools", (lookup,)))
    base = agent(tools=tools).config
    return replace(base, limits=limits, plugins=tuple(settings.get("plugins", ())), **others)


def test_prices_that_are_wrong_are_not_taken_for_missing_ones():
    """The money limit is not what is in the way: without it the configuration cannot take off either."""
    with pytest.raises(ConfigurationError, match=r"prices\['mine'\]"):
        simulate(_config({"limits": BOUNDED | {"max_cost": "1"}, "prices": {"mine": "a lot"}}), only=["control"])


def test_a_first_leg_that_never_gets_to_its_kill_does_not_hold_up_the_simulator(monkeypatch):
    """A blocking plugin: the process is killed after a while, and the flight ends in what its limits say."""

    class Blocks(Plugin):
        name = "blocks"

        def before_tool_call(self, context):
            if os.getpid() != here:
                time.sleep(600)

    here = os.getpid()
    monkeypatch.setattr(crash, "PATIENCE", 4)  # long enough to get there on a busy machine
    began = time.monotonic()
    (flight,) = simulate(agent(plugins=[Blocks()]), only=["killed_in_tool"]).flights
    assert time.monotonic() - began < 200
    assert (flight.outcome, flight.problems) == ("DONE", ())


def test_a_gate_that_denies_something_is_no_finding():
    class NoLookup(Plugin):
        name = "no_lookup"

        def tool_gate(self, context):
            return Gate(allowed=frozenset(), required=True, denial_reason="not today")

    assert "gate_never_denied" not in codes(simulate(agent(plugins=[NoLookup()]), only=["control", "loops"]))


# --- flights ------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_journal_and_another_seed_another():
    config = agent().config
    for kind in SPECIMENS:
        if not kind.real_time:
            first, again = fly(config, kind, 7), fly(config, kind, 7)
            assert first == again, kind.name
            assert first.journal
    assert fly(config, BY_NAME["well_behaved"], 1).journal != fly(config, BY_NAME["well_behaved"], 2).journal


def test_tools_are_stand_ins_and_keep_their_schema_and_options():
    flight = fly(agent().config, BY_NAME["hanging_tool"], 0)
    assert flight.tool_calls == 1
    assert 30 <= flight.seconds < 32  # the tool's own timeout


def test_a_call_in_the_background_does_not_outlive_its_run():
    config = agent(limits=BOUNDED | {"timeout": 90}, tool_timeout=None).config
    flight = fly(config, BY_NAME["never_ends_in_the_background"], 0)
    assert (flight.problems, flight.outcome, flight.answer) == ((), "WRAPPED_UP", "model")
    assert 60 <= flight.seconds <= 95, "it was waited for, and then let go of"
    flight = fly(config, BY_NAME["never_collects"], 0)
    assert (flight.problems, flight.outcome, flight.answer) == ((), "DONE", "model")
    assert (flight.calls, flight.seconds < 5) == (3, True), "it was started, or nobody would have asked about it"


def test_a_tool_that_needs_a_person_is_approved_and_goes_on():
    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError("the real tool must never run")

    flight = fly(agent(tools=[pay]).config, BY_NAME["well_behaved"], 0)
    assert (flight.outcome, flight.answer, flight.tool_calls) == ("DONE", "model", 1)


def test_ground_truth_is_counted_whatever_the_model_reports():
    by_name = {kind.name: kind for kind in SPECIMENS}
    for name in ("zero_usage", "half_usage", "negative_usage"):
        flight = fly(agent().config, by_name[name], 0)
        assert flight.contained, flight
        assert 10_000 < flight.tokens <= 55_000


class OverbilledAnswer(Specimen):
    """Answers at once, and bills a trillion tokens for it."""

    name, family, succeeds = "overbilled_answer", "mine", True

    def reply(self, moment):
        return say(ANSWER, usage=Usage(10**12, 10**12))


@pytest.mark.parametrize("limits", [BOUNDED, BOUNDED | {"max_cost": "1"}], ids=["tokens", "money"])
def test_a_bill_that_nobody_could_foresee_ends_the_flight_and_is_no_hole_but_said(limits):
    """It is charged (it may be the bill), and nothing can be paid after it: not even a landing call."""
    model = ScriptedModel(price=(1, 1))
    report = simulate(agent(model=model, limits=limits), only=["absurd_usage"])
    (flight,) = report.flights
    assert (flight.contained, flight.calls, flight.outcome, flight.answer) == (True, 1, "CUT_OFF", "partial")
    assert (flight.overshoot, flight.cost) == (0.0, Decimal(2_000_000))
    assert (report.ok, codes(report)) == (True, {"overbilled"})


def test_a_paid_answer_is_kept_however_high_its_bill_is():
    flight = fly(agent().config, OverbilledAnswer, 0)
    assert (flight.answer, flight.problems, flight.calls) == ("model", (), 1)


def test_whoever_calls_on_after_such_a_bill_is_found_out():
    """Only the last bill is forgiven: here nothing holds the limits, and every call bills as much."""
    limits = BOUNDED | {"max_cost": "1"}
    settings = {"constraints": [Loose()], "replace_defaults": True, "limits": limits}
    (flight,) = simulate(agent(**settings), only=["absurd_usage"]).flights
    assert flight.calls > 1
    assert (flight.contained, {"over_tokens", "over_cost"} <= set(flight.problems)) == (False, True)


def test_a_specimen_of_ones_own_can_be_flown():
    class Whispers(Specimen):
        """Whispers."""

        name, family, succeeds = "whispers", "mine", True

        def reply(self, moment):
            return say(f"({ANSWER})")

    flight = fly(agent().config, Whispers, 0)
    assert (flight.outcome, flight.problems) == ("DONE", ())


def test_without_tools_what_needs_tools_is_listed_and_not_flown():
    report = simulate(agent(tools=()), real_time=False)
    assert "same_call" in report.skipped
    assert {flight.specimen for flight in report.flights}.isdisjoint(report.skipped)


def test_progress_is_told_of_every_flight():
    seen = []
    simulate(agent(), only=["usage"], seeds=2, progress=lambda done, of, flight: seen.append((done, of, flight.seed)))
    assert [(done, of) for done, of, _ in seen] == [(number, 12) for number in range(1, 13)]
    assert {seed for *_, seed in seen} == {0, 1}


def test_the_simulator_can_be_used_inside_a_running_loop_of_its_own_thread():
    async def main():
        return await asyncio.to_thread(simulate, agent(), only=["control"])

    assert asyncio.run(main()).ok


# --- reports ------------------------------------------------------------------------------------------------------


def test_the_report_is_written_as_json_and_read_back():
    from glidepath.values import decode

    report = simulate(agent(), only=["replies"])
    again = decode(encode_report(report), Report)
    assert again == report
    assert isinstance(again.flights[0].cost, Decimal | None)


def test_the_page_shows_every_specimen_and_escapes_what_it_shows():
    from glidepath.values import replace

    report = simulate(agent(limits={"max_iterations": 9}), only=["replies", "loops"])
    flights = (replace(report.flights[0], cause="<script>alert(1)</script>"), *report.flights[1:])
    text = page(replace(report, flights=flights))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert all(flight.specimen in text for flight in report.flights)
    assert "unbounded_reply" in text
    assert "://" not in text


def test_advice_is_plain_text():
    assert simulate(agent(), only=["control"]).advice() == "No holes found."
    advice = simulate(agent(limits={"max_iterations": 9}), only=["huge_reply"]).advice()
    assert advice.startswith("HOLE unbounded_reply: ")
    assert "max_output_tokens" in advice


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"seeds": 0}, "seeds must be"),
        ({"seeds": -1}, "seeds must be"),
        ({"seeds": True}, "seeds must be"),
        ({"seeds": "three"}, "seeds must be"),
        ({"seeds": []}, "seeds must be"),
        ({"only": ["same_cal"]}, "did you mean 'same_call'"),
        ({"only": ["zzz"]}, "no scenario or family 'zzz'"),
    ],
)
def test_bad_input_is_refused_with_the_field_named(keywords, said):
    with pytest.raises(ConfigurationError, match=said):
        simulate(agent(), **keywords)


def test_only_an_agent_or_a_config_can_be_simulated():
    with pytest.raises(ConfigurationError, match="takes an Agent or a LoopConfig, not str"):
        simulate("my agent")


def test_specimens_are_what_they_say():
    """Spot checks: a specimen that stopped misbehaving would make every configuration look good."""
    config = agent(guardrails=NO_GUARDS, limits={"max_iterations": 30}, landing="off").config
    assert fly(config, BY_NAME["same_call"], 0).tool_calls > 20
    assert fly(config, BY_NAME["huge_reply"], 0).tokens > 90_000
    assert fly(config, BY_NAME["reads_forever"], 0).calls == 26  # it answers at the notice, four turns before the cap


# --- other agents in a flight -------------------------------------------------------------------------------------


class Untouchable:
    """A model, a tool and a function of a prompt that must never be asked for anything."""

    name, max_output_tokens = "untouchable", 400

    def stream(self, request):
        raise AssertionError("the real model must never be asked")


def _refuse_to_write(context):
    raise AssertionError("the real prompt must never be written")


@tool(requires_approval=True, read_only=True)
async def peek(place: str) -> str:
    """Peek."""
    raise AssertionError("the real tool must never run")


def crowd(**settings):
    """An agent with everybody beside it that a run may ask: two that take over, in a circle, and a reviewer."""
    few = {"model": Untouchable(), "tools": [peek], "limits": Limits(**BOUNDED), "system_prompt": _refuse_to_write}
    third = Agent(agent_name="third", handoffs=["first", "second"], **few)
    second = Agent(agent_name="second", handoffs=[third], **few)
    return Agent(**{"agent_name": "first", "handoffs": [second, third], **few, **settings})


class PassesAround(Specimen):
    """Hands over to the next one, peeks, and so on."""

    family, succeeds = "mine", True

    def reply(self, moment):
        names = [one.name for one in moment.request.tools if one.name.startswith("transfer_to_")]
        if moment.number > 6 or not names:
            return say(ANSWER)
        return call(names[0], reason="yours") if moment.number % 2 else call("peek", place=f"{moment.number}")


REVIEWER = Agent(model=Untouchable(), limits=Limits(max_iterations=2), output_type=bool)


@pytest.mark.parametrize("reviewer", [None, Untouchable(), REVIEWER], ids=["none", "model", "agent"])
def test_nobody_who_takes_over_or_reviews_is_asked_for_real(reviewer):
    rules = None if reviewer is None else Rules(reviewer=reviewer)
    flight = fly(crowd(approvals=rules).config, PassesAround, 0)
    assert (flight.problems, flight.outcome, flight.answer, flight.tool_calls) == ((), "DONE", "model", 3)
    assert flight.calls == (7 if reviewer is None else 10), "each peek was reviewed"


def test_a_flight_needs_neither_the_answers_type_nor_a_tool_of_the_provider():
    typed = agent(output_type=list[int], output_validators=[_refuse_to_write], system_prompt=_refuse_to_write)
    assert fly(typed.config, BY_NAME["well_behaved"], 0).outcome == "DONE"
    claude = AnthropicModel("claude-sonnet-4-5", api_key="sk-none")
    hosted = Agent(model=claude, tools=[WebSearch(max_uses=2)], limits=Limits(**BOUNDED))
    flight = fly(hosted.config, BY_NAME["well_behaved"], 0)
    assert (flight.problems, flight.outcome) == ((), "DONE")


OTHERS = {
    "hands_back_and_forth": ("WRAPPED_UP", "model"),
    "maps_without_end": ("WRAPPED_UP", "model"),
    "reviewer_is_silent": ("WRAPPED_UP", "model"),
    "reviewer_refuses": ("WRAPPED_UP", "model"),
    "value_of_another_type": ("FAILED", "partial"),
    "value_without_end": ("CUT_OFF", "partial"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("base", [agent, crowd], ids=["alone", "crowd"])
def test_the_bounds_hold_for_whoever_else_has_a_part_in_a_flight(base, name):
    flight = fly(base(max_output_tokens=1000).config, BY_NAME[name], 0)
    assert flight.problems == ()
    assert (flight.outcome, flight.answer) == OTHERS[name]
    assert flight.calls > 1


def test_each_of_them_did_what_it_is_there_for():
    handed = fly(agent().config, BY_NAME["hands_back_and_forth"], 0)
    assert (handed.tool_calls, handed.calls > 3) == (0, True)
    silent = fly(agent(limits=BOUNDED | {"timeout": 90}).config, BY_NAME["reviewer_is_silent"], 0)
    assert 30 <= silent.seconds <= 90, "a review may take the time that the run has"
    assert fly(agent().config, BY_NAME["maps_without_end"], 0).calls > 5
