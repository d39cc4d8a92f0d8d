"""The landing at a token or money limit: noticed in time, always affordable (G5), and no paid answer is lost (G3)."""

from decimal import Decimal

import pytest

from glidepath import AgentState, GuardrailsConfig, Limits, LoopOutcome, Texts, Usage, tool
from glidepath.errors import RejectedError, TransientError
from glidepath.events import BudgetReserved, NoticeSent, StreamStarted
from glidepath.models import StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.testing import ScriptedModel, call, calls, fail, raw, say, truncated, virtual

from .pilots import ANSWER, deaf, fly, obedient, told

PRICE = {"price": (10, 10)}  # $10 per million: 1,000 tokens are one cent
EXCEEDED = AgentState.BUDGET_EXCEEDED
WRAPPED, CUT, DONE = LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF, LoopOutcome.DONE


@virtual
@pytest.mark.parametrize("limits", [{"max_cost": "0.0000001"}, {"max_cost": "0.00001"}], ids=str)
async def test_g4_no_landing_call_is_made_that_the_budget_cannot_pay(limits):
    model = ScriptedModel(**PRICE).forever(say("Hello there, how are you today?"))
    result, _ = await fly(model, limits=Limits(**limits))
    assert (result.outcome, result.state) == (CUT, EXCEEDED)
    assert (model.requests, result.usage.total, result.cost or 0, result.landing_calls) == ([], 0, 0, 0)


def heavy(tokens, decide=told, **options):
    """A worker whose every turn is said to cost so many tokens."""
    count = iter(range(1, 10**6))

    def step(request):
        number = next(count)
        if decide(request):
            return say(ANSWER)
        turn = call("work", item=number).with_text(f"step {number}")
        return turn.with_usage(Usage(input=tokens - 10, output=10))

    return ScriptedModel(**options).forever(step)


LIMITED = [
    ({"max_tokens": 20_000}, {}, "TokenBudgetConstraint"),
    ({"max_cost": "0.20"}, PRICE, "CostLimitConstraint"),
    ({"max_tokens": 10**6, "max_cost": "0.20"}, PRICE, "CostLimitConstraint"),
    ({"max_tokens": 20_000, "max_cost": "100"}, PRICE, "TokenBudgetConstraint"),
]


@pytest.mark.parametrize(("given", "options", "source"), LIMITED)
@virtual
async def test_near_the_budget_the_model_is_told_once_and_its_answer_is_wrapped_up(given, options, source):
    model = heavy(500, **options)
    guardrails = GuardrailsConfig(reserve_tokens=6000, reserve_cost_fraction="0.3")
    result, recorder = await fly(model, Limits(**given), guardrails=guardrails)
    assert (result.state, result.outcome, result.cause.source) == (AgentState.COMPLETED, WRAPPED, source)
    assert (result.cause.action, result.text, result.landing_calls) == ("wind_down", ANSWER, 0)
    limit = "token budget" if source == "TokenBudgetConstraint" else "cost budget"
    notice = Texts().fill("wind_down", limit=limit)
    assert [event.text for event in recorder.of(NoticeSent)] == [notice]
    assert model.requests[-1].tools == ()  # one turn of grace: notice and withdrawal come together


@pytest.mark.parametrize(("given", "options", "source"), LIMITED)
@virtual
async def test_a_model_that_ignores_the_notice_gets_the_landing_call_after_one_turn(given, options, source):
    model = heavy(500, decide=lambda _: False, **options)
    guardrails = GuardrailsConfig(reserve_tokens=6000, reserve_cost_fraction="0.3")
    result, _recorder = await fly(model, Limits(**given), guardrails=guardrails)
    assert (result.state, result.outcome, result.cause.source) == (EXCEEDED, CUT, source)
    told = [any(getattr(m, "reason", None) == "wind_down" for m in r.messages) for r in model.requests]
    noticed = told.index(True)
    assert len(model.requests) == noticed + 2
    assert result.landing_calls == 1


@pytest.mark.parametrize(("given", "options", "source"), LIMITED)
@virtual
async def test_a_budget_that_runs_out_without_warning_still_pays_for_the_landing(given, options, source):
    model = heavy(6_500, **options)
    result, recorder = await fly(model, Limits(**given))
    assert (result.state, result.outcome, result.cause.source, result.text) == (EXCEEDED, WRAPPED, source, ANSWER)
    assert [event.landing for event in recorder.of(StreamStarted)][-1] is True
    if "max_tokens" in given:
        assert result.usage.total <= given["max_tokens"]
    if "max_cost" in given:
        assert result.cost <= Decimal(given["max_cost"])


@pytest.mark.parametrize("landing", ["withdraw", "steer", "force", "off"])
@virtual
async def test_every_mode_at_a_token_limit(landing):
    model = heavy(500)
    guardrails = GuardrailsConfig(reserve_tokens=6000)
    result, _ = await fly(model, Limits(max_tokens=20_000), guardrails=guardrails, landing=landing)
    forced = landing == "force"
    assert (result.state, result.landing_calls) == ((EXCEEDED, 1) if forced else (AgentState.COMPLETED, 0))
    assert (result.outcome, result.text) == (WRAPPED, ANSWER)
    assert bool(model.requests[-1].tools) is (landing in ("steer", "off"))


# --- G3: a paid answer is never discarded -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "options"), [({"max_tokens": 3_000}, {}), ({"max_cost": "0.03"}, PRICE), ({"max_iterations": 1}, {})]
)
@virtual
async def test_g3_an_answer_that_crosses_the_budget_is_the_answer(given, options):
    model = ScriptedModel([say(ANSWER, usage=Usage(input=2_900, output=200))], **options)
    result, _ = await fly(model, Limits(**given))
    assert (result.state, result.outcome, result.text, result.cause) == (AgentState.COMPLETED, DONE, ANSWER, None)
    assert (result.partial, model.calls) == (False, 1)


@virtual
async def test_g3_the_text_of_a_reply_that_crosses_the_budget_with_calls_is_the_best_text():
    turns = [call("work", item=1).with_text("half of it").with_usage(Usage(input=2_900, output=200))]
    model = ScriptedModel(turns).forever(call("work", item=2))
    result, _ = await fly(model, Limits(max_tokens=3_000))
    assert (result.state, result.outcome, result.text) == (EXCEEDED, CUT, "half of it")


@virtual
async def test_a_reply_that_outgrows_the_budget_is_cut_its_text_kept_and_the_run_lands_at_once():
    model = ScriptedModel([say("word " * 40_000), say(ANSWER)])
    result, _recorder = await fly(model, Limits(max_tokens=10_000))
    assert (result.state, result.outcome, result.text) == (EXCEEDED, WRAPPED, ANSWER)
    assert result.cause.source == "TokenBudgetConstraint"
    assert (result.iterations, result.landing_calls, model.calls) == (1, 1, 2)
    cut = result.messages[1]
    assert (cut.text[:10], cut.stop_reason.value) == ("word word ", "max_tokens")
    assert model.closed_early == 1
    assert result.usage.total <= 10_000


@virtual
async def test_a_reply_that_outgrows_a_money_limit_names_the_money_limit():
    model = ScriptedModel([say("word " * 40_000), say(ANSWER)], **PRICE)
    result, _ = await fly(model, Limits(max_cost="0.10"))
    assert (result.cause.source, result.text) == ("CostLimitConstraint", ANSWER)
    assert result.cost <= Decimal("0.10")


@virtual
async def test_a_reply_that_outgrows_the_budget_is_the_best_text_when_the_landing_fails():
    model = ScriptedModel([say("word " * 40_000), fail(RejectedError("no"))])
    result, _ = await fly(model, Limits(max_tokens=10_000))
    assert (result.state, result.outcome, result.partial) == (EXCEEDED, CUT, True)
    assert result.text.startswith("word word ")
    assert len(result.text) > 4 * 5_000


def pieces(kind, text):
    if kind == "text":
        return [TextDelta(part) for part in text]
    if kind == "thinking":
        return [ThinkingDelta(part) for part in text]
    return [ToolCallDelta(index=0, id="c", name="work", arguments=part) for part in text]


@pytest.mark.parametrize("kind", ["text", "thinking", "arguments"])
@pytest.mark.parametrize("piece", ["abcdefgh", "字字字字", "\U0001f6eb\U0001f6ec", "é"])
@virtual
async def test_g4_a_reply_is_metered_in_bytes_whatever_it_is_written_in(kind, piece):
    endless = raw(*pieces(kind, [piece] * 20_000), StreamEnd("end_turn"))
    model = ScriptedModel([endless, say(ANSWER)])
    result, _ = await fly(model, Limits(max_tokens=6_000))
    assert (result.state, result.outcome, result.text) == (EXCEEDED, WRAPPED, ANSWER)
    written = result.messages[1].usage.output
    assert written > 2_000
    assert result.usage.total <= 6_000
    assert model.closed_early == 1


@virtual
async def test_a_reply_may_grow_past_its_first_reservation_while_the_budget_has_room():
    text = "word " * 12_000  # 15,000 tokens; 4,096 are reserved at first
    model = ScriptedModel([say(text)])
    result, _ = await fly(model, Limits(max_tokens=40_000))
    assert (result.outcome, result.text) == (DONE, text)


# --- G5: the landing is affordable --------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [700, 1_000, 1_500, 2_000, 3_000, 5_000, 20_000])
@pytest.mark.parametrize("words", [1, 400, 4_000])
@virtual
async def test_g5_however_tight_the_token_limit_a_model_that_answers_has_answered(tokens, words):
    @tool
    async def work(item: int) -> str:
        """Work."""
        return f"item {item}: " + "fact " * words

    model = obedient()
    result, _ = await fly(model, Limits(max_tokens=tokens, max_iterations=90), tools=[work])
    assert (result.outcome, result.text) == (WRAPPED, ANSWER)
    assert result.usage.total <= tokens


@pytest.mark.parametrize("cost", ["0.007", "0.015", "0.03", "0.1", "1"])
@pytest.mark.parametrize("price", [(10, 10), (3, 15), (15, 3), (10, 0), (0, 10)])
@virtual
async def test_g5_however_tight_the_money_limit_a_model_that_answers_has_answered(cost, price):
    model = obedient(price=price)
    result, _ = await fly(model, Limits(max_cost=cost, max_iterations=90))
    assert (result.outcome, result.text) == (WRAPPED, ANSWER)
    assert result.cost <= Decimal(cost)


@pytest.mark.parametrize("price", [(1, 1), (3, 15), (15, 3), (1, 100), (100, 1), (0, 10), (10, 0)])
@pytest.mark.parametrize(
    "given", [{"max_cost": "0.03"}, {"max_tokens": 3_000}, {"max_cost": "0.03", "max_tokens": 3_000}]
)
@virtual
async def test_g4_a_landing_call_that_uses_all_it_may_stays_within_the_limit(price, given):
    """Every reply is as long as its cap allows, the last one too."""

    def step(request):
        cap = request.max_output_tokens or 2_000
        text = say("abcd" * 5 + "abc " * (cap - 20 if request.tools else cap - 5))
        return (
            truncated(text)
            if not request.tools
            else calls(call("work", item=len(request.messages)), text=text.parts[0].text)
        )

    model = ScriptedModel(price=price).forever(step)
    result, _ = await fly(model, Limits(**given, max_iterations=30))
    assert result.landing_calls == 1
    assert "max_tokens" not in given or result.usage.total <= given["max_tokens"]
    assert "max_cost" not in given or result.cost <= Decimal(given["max_cost"])


@virtual
async def test_g5_the_landing_call_of_a_long_run_is_compacted_into_its_reserve():
    @tool
    async def work(item: int) -> str:
        """Work."""
        return f"item {item}: " + "fact " * 500

    model = obedient()
    result, _ = await fly(model, Limits(max_tokens=12_000), tools=[work], guardrails=GuardrailsConfig(reserve_tokens=0))
    assert (result.state, result.text) == (EXCEEDED, ANSWER)
    landing = model.requests[-1]
    assert landing.tools == ()
    assert landing.max_output_tokens is not None
    assert sum(len(message.text) for message in landing.messages) < 4 * 1_500
    assert landing.messages[0].text == "the task"


@pytest.mark.parametrize(
    ("given", "options"), [({"max_tokens": 2_000}, {}), ({"max_cost": "0.02"}, PRICE), ({"max_tokens": 2_000}, PRICE)]
)
@virtual
async def test_g4_attempts_at_the_landing_call_share_one_reserve(given, options):
    """A landing call that dies again and again does not get the reserve anew each time."""
    dying = fail(TransientError("reset"), text="word " * 200)
    model = ScriptedModel([say("word " * 2_000), *[dying] * 4], **options)
    result, _ = await fly(model, Limits(**given))
    assert (result.outcome, result.partial) == (CUT, True)
    assert result.usage.total <= 2_000 + 2  # it obeys no cap, so it is cut after the piece that goes over
    assert 2 <= model.calls <= 4


@virtual
async def test_a_landing_call_that_failed_before_it_cost_anything_is_tried_again_in_full():
    model = ScriptedModel([say("word " * 2_000), *[fail(TransientError("reset"))] * 3, say(ANSWER)])
    result, _ = await fly(model, Limits(max_tokens=2_000))
    assert (result.outcome, result.text) == (WRAPPED, ANSWER)
    assert result.usage.total <= 2_000


@virtual
async def test_without_a_landing_nothing_is_held_back_for_it():
    model = deaf()
    result, _ = await fly(model, Limits(max_tokens=3_000), landing="off")
    assert (result.outcome, result.landing_calls) == (CUT, 0)
    with_landing, _ = await fly(deaf(), Limits(max_tokens=3_000))
    assert result.iterations >= with_landing.iterations


@virtual
async def test_a_call_that_does_not_fit_is_first_lowered():
    model = ScriptedModel([say(ANSWER)])
    result, recorder = await fly(model, Limits(max_tokens=3_000))
    reserved = recorder.one(BudgetReserved)
    assert reserved.tokens <= 3_000 - 750
    assert model.requests[0].max_output_tokens is not None
    assert model.requests[0].max_output_tokens * 1.1 <= reserved.tokens
    assert result.outcome is DONE


@virtual
async def test_a_call_that_still_does_not_fit_is_compacted():
    from glidepath.events import ContextShaped

    @tool
    async def work(item: int) -> str:
        """Work."""
        return f"item {item}: " + "fact " * 300

    model = ScriptedModel().forever(lambda request: call("work", item=len(request.messages)))
    result, recorder = await fly(model, Limits(max_tokens=9_000, max_iterations=9), tools=[work])
    assert recorder.of(ContextShaped)
    assert result.usage.total <= 9_000


@virtual
async def test_the_remaining_figures_never_count_the_landing_reserve():
    from glidepath import ToolContext

    left = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look at what is left."""
        left.append(context.remaining().tokens)
        return "seen"

    model = ScriptedModel([call("look").with_usage(Usage(input=900, output=100)), say(ANSWER)])
    await fly(model, Limits(max_tokens=20_000), tools=[look])
    assert left == [20_000 - 1_024 - 1_000]


def test_a_prompt_that_can_never_fit_the_limit_is_a_configuration_error():
    from glidepath import Agent, ConfigurationError

    with pytest.raises(ConfigurationError, match="max_tokens"):
        Agent(model=ScriptedModel([]), system_prompt="word " * 5_000, limits=Limits(max_tokens=4_000))


@virtual
async def test_g2_when_the_notice_was_about_turns_and_the_budget_ends_it_the_cause_is_the_budget():
    model = heavy(3_000, decide=lambda request: not request.tools)
    result, _ = await fly(model, Limits(max_iterations=8, grace_iterations=6, max_tokens=16_000), landing="steer")
    assert (result.state, result.cause.source) == (EXCEEDED, "TokenBudgetConstraint")
    assert result.text == ANSWER
