"""What a set of flights reveals about a configuration: the holes, and how to close them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from glidepath._wire import Value, replace
from glidepath.agent import LoopConfig
from glidepath.testing.simulator.flight import Flight
from glidepath.testing.simulator.sim_world import CEILING
from glidepath.values import pluralize

_DEFECT = "This must not happen with any configuration. Check your plugins and constraints first, then report it."
_TOO_LATE = "No limit of yours ended the run; the simulator did, after"

_ADVICE: Mapping[str, str] = {
    "over_tokens": f"More tokens were used than limits.max_tokens allows. {_DEFECT}",
    "over_cost": f"More money was spent than limits.max_cost allows. {_DEFECT}",
    "over_time": f"The run continued past limits.timeout. {_DEFECT}",
    "over_turns": f"More turns were taken than limits.max_iterations allows. {_DEFECT}",
    "over_tool_calls": f"More tools ran than limits.max_tool_calls allows. {_DEFECT}",
    "runaway_calls": f"{_TOO_LATE} {CEILING.calls:,} model calls. Set limits.max_iterations, or a lower one.",
    "runaway_tokens": (
        f"{_TOO_LATE} {CEILING.tokens:,} tokens. Set limits.max_tokens, or limits.max_cost with a price, or lower ones."
    ),
    "runaway_seconds": (
        f"{_TOO_LATE} {CEILING.seconds:,.0f} seconds. Set limits.timeout, or a lower one, and tool_timeout for tools "
        "that may hang."
    ),
    "runaway_tool_calls": f"{_TOO_LATE} {CEILING.tool_calls:,} tool calls. Set limits.max_tool_calls, or a lower one.",
    "unbounded_reply": (
        "One reply can have more than 30,000 tokens: you set no cap. Set max_output_tokens, limits.max_tokens, or "
        "limits.max_cost with a price."
    ),
    "never_ended": "A run can wait forever. Set limits.timeout, tool_timeout and stall_timeout.",
    "raised": f"The run raised instead of returning a result. {_DEFECT}",
    "left_running": f"Something was still running after the run had ended, and was not listed. {_DEFECT}",
    "untyped": f"The result does not say how the run ended. {_DEFECT}",
    "silent_success": f"A run without an answer was reported as DONE. {_DEFECT}",
    "broken_transcript": f"A tool call has no result, or more than one. {_DEFECT}",
    "went_on_after_cancel": f"The run continued after it was cancelled. {_DEFECT}",
    "answer_lost": (
        "The model had an answer and nobody got it. Leave landing at its default, allow one turn of grace, and keep "
        "limits.landing_tokens large enough for an answer."
    ),
    "calls_cut": (
        "Its calls were longer than one reply may be: they were cut, asked for again, and the run ended, as it should. "
        "If your tools take arguments of that length, raise max_output_tokens or set max_output_tokens_recovery."
    ),
    "overbilled": (
        "The provider billed one call far beyond what the call can explain. It was charged, the run ended with what it "
        "had, and no call was made after it: nothing was left to ask for an answer. No setting prevents that bill; see "
        "BudgetSettled.implausible."
    ),
    "unnoticed_loop": (
        "The model went in circles until a limit ended it. Turn the guards on: guardrails.max_repeated_tool_steps=3 "
        "and guardrails.max_error_streak=5."
    ),
    "unmarked_tools": (
        "One tool gave the same answer to every call, until a limit ended the run. For a tool that acts this is "
        "ordinary; if yours only read, mark them read_only=True, and the repetition guard will notice."
    ),
    "honest_work_stopped": (
        "A guard spoke to a run that was making progress. Raise guardrails.max_repeated_tool_steps and "
        "guardrails.max_error_streak; `glidepath sim tune` proposes values from your own runs."
    ),
    "tool_without_timeout": (
        "One tool that hangs uses up all the time of the run. Set tool_timeout, or timeout= on the tool."
    ),
    "repeated_effect": f"After a kill and a resume a tool did something twice that is not idempotent. {_DEFECT}",
    "no_text": "A run ended without any text.",
    "gate_never_denied": (
        "This plugin can hold tools back, but it never did in any flight. If it is a guard, it guards nothing: check "
        "what it allows. If these flights have nothing for it to deny, ignore this."
    ),
    "cost_unknown": (
        "The configuration has neither a price nor a money limit, so no cost is counted. Set prices, or "
        "limits.max_cost: a limit looks the price up where the extra glidepath[prices] is installed."
    ),
}
_WARNINGS = frozenset(
    {
        "calls_cut",
        "overbilled",
        "unmarked_tools",
        "honest_work_stopped",
        "gate_never_denied",
        "cost_unknown",
        "no_text",
    }
)
_DROPPED = (
    "replace_defaults=True has dropped the constraints that hold the limits, so that their numbers bound nothing. "
    "Leave it out: your own constraints are asked beside the built-in ones, and only between calls."
)


class Finding(Value, frozen=True, kw_only=True):
    """One problem. A `hole` lets a run escape or lose its answer; a `warning` is for you to judge."""

    code: str
    severity: str
    specimens: tuple[str, ...] = ()
    flights: int = 0
    what: str
    advice: str


def find(config: LoopConfig, flights: Sequence[Flight]) -> tuple[Finding, ...]:
    """All findings, the holes first."""
    refusals = {flight.refused for flight in flights if flight.refused}
    found = [_make_refused_finding(text, flights) for text in sorted(refusals)]
    flown = [flight for flight in flights if not flight.refused]
    codes = sorted({code for flight in flown for code in flight.problems})
    for code in codes:
        finding = _finding(code, [flight for flight in flown if code in flight.problems])
        dropped = config.replace_defaults and code.startswith(("over_", "runaway_"))
        found.append(replace(finding, advice=_DROPPED) if dropped else finding)
    found += _idle_gates(config, flown)
    if flown and all(flight.cost is None for flight in flown) and config.limits.max_cost is None:
        found.append(_finding("cost_unknown", ()))
    return tuple(sorted(found, key=lambda finding: (finding.severity != "hole", finding.code)))


def _finding(code: str, flights: Iterable[Flight], what: str = "") -> Finding:
    hit = list(flights)
    names = tuple(sorted({flight.specimen for flight in hit}))
    worst = max(hit, key=lambda flight: (flight.overshoot, flight.tokens), default=None)
    seen = what
    if not seen and worst is not None:
        seen = (
            f"seen in {pluralize(len(hit), 'flight')}, {'at its worst in' if len(hit) > 1 else 'in'} {worst.specimen} "
            f"(seed {worst.seed}): "
            f"{pluralize(worst.calls, 'call')}, {pluralize(worst.tokens, 'token')}, "
            f"{worst.seconds:g} s, {worst.outcome or 'no result'}"
        )
    return Finding(
        code=code,
        severity="warning" if code in _WARNINGS else "hole",
        specimens=names,
        flights=len(hit),
        what=seen or "seen in the configuration",
        advice=_ADVICE.get(code, _DEFECT),
    )


def _make_refused_finding(text: str, flights: Sequence[Flight]) -> Finding:
    hit = [flight for flight in flights if flight.refused == text]
    return replace(_finding(hit[0].problems[0], hit, "this configuration cannot take off"), advice=text)


def _idle_gates(config: LoopConfig, flights: Sequence[Flight]) -> list[Finding]:
    if not flights or any(flight.gated for flight in flights) or not config.tools:
        return []
    names = config.plugin_names()
    idle = sorted({*names.tool_gate, *names.before_tool_call})
    return [_finding("gate_never_denied", (), f"plugin {name!r} let every call pass in all flights") for name in idle]
