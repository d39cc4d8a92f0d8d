"""What a provider bills is what is charged: {every adapter} x {how it reports} x {the vendor's own address, another}.

`billed` is what the server has reported, kept by the test itself. An own address is one that the adapter knows as its
vendor's; the server here is on this machine, so the adapter is told.
"""

import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.events import BudgetSettled
from glidepath.messages import Usage
from glidepath.run import Price
from glidepath.testing import EventRecorder
from glidepath.values import SATURATED

from .dialects import Anthropic, Chat, Google, Responses, event
from .server import Answer, Late, Wire, run

PRICE = ("1", "5")
TASK = "Tell me what you see there, in a few words. " * 40  # about 600 tokens by our count, 400 by a tokenizer's
SAID = "Nothing of interest can be seen there."
FEWEST = (len(TASK) // 8, len(SAID) // 8 - 4)  # no tokenizer puts more than eight characters into a token


class ChatReports(Chat):
    def report(self, *reports, stop="end", after=()):
        def used(given, output):
            return event({"id": "c", "choices": [], "usage": {"prompt_tokens": given, "completion_tokens": output}})

        ends = [self.chunk({}, self.stops[stop])]
        return [*ends, *[used(*one) for one in reports], event("[DONE]"), *[used(*one) for one in after]]


class RouterReports(ChatReports):
    """OpenRouter, which also says what the call cost."""

    name = "openrouter"

    def report(self, *reports, stop="end", after=()):
        def used(given, output):
            bill = {"prompt_tokens": given, "completion_tokens": output, "cost": dollars_of(given, output)}
            return event({"id": "c", "choices": [], "usage": bill})

        ends = [self.chunk({}, self.stops[stop])]
        return [*ends, *[used(*one) for one in reports], event("[DONE]"), *[used(*one) for one in after]]


class ResponsesReports(Responses):
    def report(self, *reports, stop="end", after=()):
        def done(usage):
            return self.say("response.completed", response={"id": "r", "status": "completed", "usage": usage})

        used = [{"input_tokens": given, "output_tokens": output} for given, output in (*reports, *after)]
        # It says it once, with its last event; what an event before or after has is not of the protocol.
        before = [self.say("response.in_progress", response={"id": "r", "usage": one}) for one in used[:-1]]
        return [*before, done(used[-1] if reports else None), *([done(used[-1])] if used else [])]


class AnthropicReports(Anthropic):
    first = None

    def start(self):
        usage = None if self.first is None else {"input_tokens": self.first, "output_tokens": 1}
        return [self.say("message_start", message={"id": "m", "role": "assistant", "usage": usage})]

    def report(self, *reports, stop="end", after=()):
        def used(usage):
            return self.say("message_delta", delta={"stop_reason": self.stops[stop]}, usage=usage)

        pairs = [{"input_tokens": given, "output_tokens": output} for given, output in reports]
        late = [used({"input_tokens": given, "output_tokens": output}) for given, output in after]
        return [*[used(one) for one in pairs or [None]], self.say("message_stop"), *late]


class GoogleReports(Google):
    def report(self, *reports, stop="end", after=()):
        def used(given, output):
            return event({"usageMetadata": {"promptTokenCount": given, "candidatesTokenCount": output}})

        ends = [event({"candidates": [{"index": 0, "finishReason": self.stops[stop]}]})]
        return [*ends, *[used(*one) for one in (*reports, *after)]]


ADAPTERS = [ChatReports(), RouterReports(), ResponsesReports(), AnthropicReports(), GoogleReports()]
HOSTS = [pytest.param(True, id="own address"), pytest.param(False, id="foreign address")]
each = pytest.mark.parametrize("dialect", ADAPTERS, ids=lambda one: one.name)
anywhere = pytest.mark.parametrize("own", HOSTS)
# Plausible reports are those that the call explains: at most 16 times our count and 100,000 more.
plain = st.tuples(st.integers(250, 600), st.integers(4, 40))
higher = st.tuples(st.integers(1_000, 90_000), st.integers(50, 90_000))
lower = st.tuples(st.integers(*sorted((FEWEST[0] + 40, 400))), st.integers(max(1, FEWEST[1] + 4), 9))
absurd = st.tuples(st.integers(10**6, 10**19), st.integers(10**6, 10**19))
nonsense = st.tuples(st.integers(-(10**9), -1), st.integers(-(10**9), 0))
some = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def dollars_of(given, output):
    """What OpenRouter says: twice the price that we know."""
    return 2 * cost_of(given, output) / 10**12 if min(given, output) >= 0 else -1.0


def cost_of(given, output):
    return Price.per_million(PRICE, field="p").cost(Usage(given, output))


def model_of(dialect, url, own):
    model = dialect.model(url)
    model.usage_is_billed = own
    return model


def fly(dialect, own, chunks):
    async def main():
        recorder = EventRecorder()
        async with Wire([Answer([*dialect.text(SAID), *chunks])]) as wire:
            model = model_of(dialect, wire.url, own)
            agent = Agent(model=model, limits=Limits(max_iterations=1), prices={model.name: PRICE}, event_sink=recorder)
            result = await agent.run(TASK)
            await model.aclose()
        assert result.text == SAID
        return result, recorder.of(BudgetSettled)

    return run(main)


def charged(result):
    return result.usage.input, result.usage.output


def must_cover(dialect, result, report):
    """Charged is what was billed, as far as every meter can count, in tokens and in money."""
    given, output = (min(one, SATURATED) for one in report)
    assert charged(result) == (given, output)
    least = min(cost_of(given, output), SATURATED)
    assert int(result.cost * 10**12) >= least
    if isinstance(dialect, RouterReports):
        assert int(result.cost * 10**12) >= min(2 * least, SATURATED) - 10**3  # its bill is a float
    else:
        assert int(result.cost * 10**12) == least


def is_our_own(result):
    """What nobody has reported is our own count, which errs on the high side, and says so."""
    assert result.usage.estimated
    assert result.usage.input >= FEWEST[0]
    assert result.usage.output >= 8


@each
@anywhere
@some
@given(report=plain)
def test_a_report_is_what_is_charged(dialect, own, report):
    result, (settled,) = fly(dialect, own, dialect.report(report))
    must_cover(dialect, result, report)
    assert not settled.implausible


@each
@anywhere
@some
@given(report=higher)
def test_a_higher_report_is_what_is_charged(dialect, own, report):
    result, _ = fly(dialect, own, dialect.report(report))
    must_cover(dialect, result, report)


@each
@anywhere
@some
@given(report=lower)
def test_a_lower_report_that_can_be_true_is_what_is_charged(dialect, own, report):
    result, (settled,) = fly(dialect, own, dialect.report(report))
    must_cover(dialect, result, report)
    assert not settled.implausible


@each
@anywhere
@some
@given(report=absurd)
def test_an_absurd_report_is_charged_and_said(dialect, own, report):
    seen = []
    log = logging.getLogger("glidepath")
    catch = logging.Handler()
    catch.emit = lambda record: seen.append(record.getMessage())
    log.addHandler(catch)
    try:
        result, (settled,) = fly(dialect, own, dialect.report(report))
    finally:
        log.removeHandler(catch)
    assert charged(result) == tuple(min(one, SATURATED) for one in report)
    assert settled.implausible
    assert any("the provider reports" in one for one in seen)


@each
@anywhere
@some
@given(report=nonsense)
def test_a_negative_report_is_replaced(dialect, own, report):
    result, _ = fly(dialect, own, dialect.report(report))
    is_our_own(result)


@each
@anywhere
def test_a_missing_report_is_replaced(dialect, own):
    result, _ = fly(dialect, own, dialect.report())
    is_our_own(result)


@each
@anywhere
@some
@given(report=higher)
def test_a_report_after_the_end_is_charged_if_it_is_read_and_else_replaced(dialect, own, report):
    result, _ = fly(dialect, own, dialect.report(after=[report]))
    if result.usage.estimated:
        is_our_own(result)
    else:
        must_cover(dialect, result, report)


@each
@anywhere
@settings(max_examples=2, deadline=None)
@given(report=higher)
def test_a_report_that_comes_late_is_waited_for(dialect, own, report):
    first, *rest = dialect.report(report)
    result, _ = fly(dialect, own, [first, *map(Late, rest)] if rest else [Late(first)])
    must_cover(dialect, result, report)


@each
@anywhere
@some
@given(report=st.one_of(plain, higher))
def test_a_report_that_comes_twice_counts_once(dialect, own, report):
    result, _ = fly(dialect, own, dialect.report(report, report))
    must_cover(dialect, result, report)


@each
@anywhere
@some
@given(first=plain, more=st.tuples(st.integers(1, 50_000), st.integers(1, 50_000)))
def test_of_totals_that_grow_the_last_one_is_charged(dialect, own, first, more):
    total = first[0] + more[0], first[1] + more[1]
    result, _ = fly(dialect, own, dialect.report(first, total))
    must_cover(dialect, result, total)


@each
@anywhere
@some
@given(report=higher, last=st.one_of(st.just((0, 0)), plain, nonsense))
def test_a_report_that_shrinks_takes_nothing_back(dialect, own, report, last):
    if isinstance(dialect, ResponsesReports):
        return  # it has one report, in its last event
    result, _ = fly(dialect, own, dialect.report(report, last))
    assert charged(result) == report


# --- limits -------------------------------------------------------------------------------------------------------


@tool
async def look(page: int) -> str:
    """Look."""
    return f"page {page}: nothing new"


def is_offered_tools(request):
    """Whether the model may call a tool: the landing has none, or may not use them."""
    body = request.body
    rules = json.dumps([body.get("tool_choice"), body.get("toolConfig"), body.get("tool_config")]).lower()
    return bool(body.get("tools")) and '"none"' not in rules


@each
@anywhere
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cents=st.integers(1, 60),
    reports=st.lists(
        st.one_of(plain, higher, st.tuples(st.integers(10**5, 10**6), st.just(20))), min_size=1, max_size=4
    ),
)
def test_over_a_limit_goes_only_the_one_call_that_nobody_could_foresee(dialect, own, cents, reports):
    """The last report is repeated for ever: a prompt that the provider keeps, a tool that runs there."""
    limit, bills, seen = cents * 10**10, [], []

    def answers(request):
        report = reports[min(len(bills), len(reports) - 1)]
        bills.append(cost_of(*report) * (2 if isinstance(dialect, RouterReports) else 1))
        page = len(bills)
        if is_offered_tools(request):
            called = dialect.calls((f"c{page}", "look", f'{{"page": {page}}}'))
            begun = dialect.start() if isinstance(dialect, Anthropic) else []
            return Answer([*begun, *called, *dialect.report(report, stop="tools")])
        return Answer([*dialect.text(SAID), *dialect.report(report)])

    async def main():
        async with Wire([answers] * 40) as wire:
            model = model_of(dialect, wire.url, own)
            agent = Agent(
                model=model,
                tools=[look],
                limits=Limits(max_iterations=12, max_cost=f"{cents / 100:.2f}"),
                prices={model.name: PRICE},
                max_output_tokens=400,
                event_sink=recorder,
            )
            result = await agent.run("Look around.")
            await model.aclose()
        return result

    recorder = EventRecorder()
    result = run(main)
    billed = sum(bills)
    assert int(result.cost * 10**12) >= billed - 10**4
    settled = recorder.of(BudgetSettled)
    seen = [one.implausible for one in settled]
    if billed > limit:
        # Without the calls of which the first was a surprise, it is within the limit: from then on we know.
        before, surprise = 0, 0
        for bill in bills:
            if bill > surprise:
                before, surprise = before + surprise, bill
            else:
                before += bill
        assert before <= limit, (cents, reports, bills)
        assert len(seen) == len(bills)
        assert result.outcome is not LoopOutcome.DONE
        assert result.cause is not None
