"""The landing at a turn limit: outcome, state, cause, text and number of calls for every cap, grace and temper."""

import pytest

from glidepath import AgentState, Limits, LoopOutcome
from glidepath.events import HookFailed, LandingStarted, NoticeSent
from glidepath.guards import DEFAULT_NOTICE, LANDING_NOTICE
from glidepath.testing import ScriptedModel, call, calls, say, virtual

from .pilots import ANSWER, deaf, fly, obedient, slow_to_notice, work

CAPS = [1, 2, 3, 6, 10, 50]
GRACES = [None, 0, 1, 5, 99]
DONE, WRAPPED, CUT = LoopOutcome.DONE, LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF
SOFT, HARD = "GracefulTurnLimit", "MaxIterationConstraint"


def soft_limit(cap, grace):
    """Turns after which the notice is due, None when there is none; worked out from SPEC 7.1 alone."""
    if cap == 1 or grace == 0:
        return None
    if grace is None:
        grace = max(1, min(5, cap // 4))
    return cap - max(1, min(grace, cap - 1))


def landed(cap, calls_made, text=ANSWER):
    return (AgentState.MAX_STEPS, WRAPPED, HARD, text, False, cap, 1, calls_made)


def cut(cap, calls_made, text):
    return (AgentState.MAX_STEPS, CUT, HARD, text, True, cap, 1, calls_made)


def wrapped(turns):
    return (AgentState.COMPLETED, WRAPPED, SOFT, ANSWER, False, turns, 0, turns)


def seen(result, model):
    return (
        result.state,
        result.outcome,
        result.cause.source,
        result.text,
        result.partial,
        result.iterations,
        result.landing_calls,
        model.calls,
    )


def limits(cap, grace):
    return Limits(max_iterations=cap, grace_iterations=grace)


every = pytest.mark.parametrize(("cap", "grace"), [(cap, grace) for cap in CAPS for grace in GRACES])


@every
@virtual
async def test_a_model_that_answers_when_told_to_stop(cap, grace):
    model = obedient()
    result, _ = await fly(model, limits(cap, grace))
    soft = soft_limit(cap, grace)
    assert seen(result, model) == (landed(cap, cap + 1) if soft is None else wrapped(soft + 1))


@every
@virtual
async def test_a_model_that_needs_two_turns_of_notice(cap, grace):
    model = slow_to_notice()
    result, _ = await fly(model, limits(cap, grace))
    soft = soft_limit(cap, grace)
    if soft is None:  # the landing call is the first it hears of it
        expected = cut(cap, cap + 1, f"step {cap + 1}")
    elif cap - soft >= 2:
        expected = wrapped(soft + 2)
    else:
        expected = landed(cap, cap + 1)
    assert seen(result, model) == expected


@every
@virtual
async def test_a_model_that_ignores_everything(cap, grace):
    model = deaf()
    result, _ = await fly(model, limits(cap, grace))
    assert seen(result, model) == cut(cap, cap + 1, f"step {cap + 1}")


@every
@virtual
async def test_the_notice_is_sent_once_when_it_is_due_and_the_landing_call_has_no_tools(cap, grace):
    model = deaf()
    result, recorder = await fly(model, limits(cap, grace))
    soft = soft_limit(cap, grace)
    notices = [event for event in recorder.of(NoticeSent) if event.text == DEFAULT_NOTICE]
    assert len(notices) == (soft is not None)
    with_notice = [any(m.text == DEFAULT_NOTICE for m in request.messages) for request in model.requests]
    assert with_notice == [soft is not None and number >= soft for number in range(cap + 1)]
    assert [bool(request.tools) for request in model.requests] == [
        not (soft is not None and number == cap - 1) for number in range(cap)
    ] + [False]
    assert [m.reason for m in result.messages if m.role == "user" and m.internal] == ["wind_down"] * (
        1 + (soft is not None)
    )


# --- the modes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", CAPS)
@virtual
async def test_steer_leaves_the_tools_until_the_landing_call(cap):
    model = deaf()
    await fly(model, limits(cap, 1), landing="steer")
    assert [bool(request.tools) for request in model.requests] == [True] * cap + [False]


@pytest.mark.parametrize("cap", CAPS)
@virtual
async def test_force_lands_at_the_soft_limit(cap):
    model = obedient()
    result, recorder = await fly(model, limits(cap, 1), landing="force")
    soft = soft_limit(cap, 1) or cap
    source = HARD if cap == 1 else SOFT
    assert seen(result, model) == (AgentState.MAX_STEPS, WRAPPED, source, ANSWER, False, soft, 1, soft + 1)
    assert [event.text for event in recorder.of(NoticeSent)] == [LANDING_NOTICE]


@pytest.mark.parametrize("cap", CAPS)
@virtual
async def test_off_makes_no_landing_call(cap):
    model = deaf()
    result, recorder = await fly(model, limits(cap, None), landing="off")
    assert seen(result, model) == (AgentState.MAX_STEPS, CUT, HARD, f"step {cap}", True, cap, 0, cap)
    assert recorder.of(LandingStarted) == []


@pytest.mark.parametrize("cap", CAPS[1:])
@virtual
async def test_off_still_gives_the_notice_and_an_answer_to_it_counts(cap):
    model = obedient()
    result, _ = await fly(model, limits(cap, None), landing="off")
    assert seen(result, model) == wrapped(soft_limit(cap, None) + 1)


@virtual
async def test_a_delivery_tool_stays_when_the_work_tools_are_withdrawn():
    from glidepath import tool

    @tool(terminal=True)
    async def deliver(text: str) -> str:
        """Deliver."""
        return text

    def step(request):
        assert "deliver" in request.tools or [spec.name for spec in request.tools]
        names = [spec.name for spec in request.tools]
        return call("work", item=len(request.messages)) if "work" in names else call("deliver", text=ANSWER)

    model = ScriptedModel().forever(step)
    result, _ = await fly(model, limits(4, 1), tools=[work, deliver])
    assert seen(result, model) == (AgentState.COMPLETED, WRAPPED, SOFT, ANSWER, False, 4, 0, 4)
    assert model.requests[-1].tools == ("deliver",)


@virtual
async def test_a_call_to_a_withdrawn_work_tool_is_answered_with_the_reason():
    result, _ = await fly(deaf(), limits(3, 1))
    last = [message for message in result.messages if message.role == "tool_result"][2]
    assert (last.is_error, last.kind) == (True, "withdrawn")
    assert "final answer" in last.text


# --- a delivery beats a landing (7.5) -----------------------------------------------------------------------------


@pytest.mark.parametrize("cap", CAPS)
@virtual
async def test_an_answer_on_the_last_allowed_turn_is_done_when_no_notice_was_sent(cap):
    model = ScriptedModel([call("work", item=n) for n in range(cap - 1)] + [say(ANSWER)])
    result, _ = await fly(model, limits(cap, 0))
    assert (result.state, result.outcome, result.cause, result.text) == (AgentState.COMPLETED, DONE, None, ANSWER)
    assert (model.calls, result.landing_calls) == (cap, 0)


@pytest.mark.parametrize("cap", CAPS[1:])
@virtual
async def test_an_answer_on_the_last_allowed_turn_is_wrapped_up_when_the_notice_was_sent(cap):
    model = ScriptedModel([call("work", item=n) for n in range(cap - 1)] + [say(ANSWER)])
    result, _ = await fly(model, limits(cap, 1))
    assert (result.outcome, result.cause.source, model.calls) == (WRAPPED, SOFT, cap)


@virtual
async def test_a_terminal_tool_on_the_last_allowed_turn_is_a_delivery():
    from glidepath import tool

    @tool(terminal=True)
    async def deliver(text: str) -> str:
        """Deliver."""
        return text

    model = ScriptedModel([call("work", item=1), call("deliver", text=ANSWER)])
    result, _ = await fly(model, limits(2, 0), tools=[work, deliver])
    assert (result.outcome, result.text, model.calls) == (DONE, ANSWER, 2)


@virtual
async def test_a_delivery_on_the_turn_that_uses_the_last_tool_call_wins():
    from glidepath import tool

    @tool(terminal=True)
    async def deliver(text: str) -> str:
        """Deliver."""
        return text

    model = ScriptedModel([calls(call("work", item=1), call("deliver", text=ANSWER))])
    result, _ = await fly(model, Limits(max_iterations=9, max_tool_calls=2), tools=[work, deliver])
    assert (result.outcome, result.text, result.landing_calls) == (DONE, ANSWER, 0)


# --- providers ----------------------------------------------------------------------------------------------------


@virtual
async def test_the_message_provider_is_asked_only_when_the_notice_is_due_and_its_words_are_used():
    asked = []

    def words():
        asked.append(1)
        return "Land now, please: final answer!"

    model = ScriptedModel([call("work", item=1), call("work", item=2), call("work", item=3), say(ANSWER)])
    result, recorder = await fly(model, limits(4, 1), graceful_turn_limit_message_provider=words)
    assert len(asked) == 1
    assert [event.text for event in recorder.of(NoticeSent)] == ["Land now, please: final answer!"]
    assert result.outcome is WRAPPED
    model = ScriptedModel([say(ANSWER)])
    await fly(model, limits(4, 1), graceful_turn_limit_message_provider=words)
    assert len(asked) == 1


@pytest.mark.parametrize("words", [lambda: 1 / 0, lambda: None, lambda: "  ", lambda: 5])
@virtual
async def test_a_message_provider_that_fails_is_reported_and_the_default_words_are_used(words):
    result, recorder = await fly(obedient(), limits(4, 1), graceful_turn_limit_message_provider=words)
    assert [event.text for event in recorder.of(NoticeSent)] == [DEFAULT_NOTICE]
    failed = recorder.one(HookFailed)
    assert (failed.hook, failed.effect) == ("message_provider", "default text")
    assert result.outcome is WRAPPED


def test_the_default_words_direct_delivery_and_name_no_tool():
    assert "final answer" in DEFAULT_NOTICE
    for word in ("tool", "message_result", "finish("):
        assert word not in DEFAULT_NOTICE


@virtual
async def test_the_grace_provider_is_asked_at_every_poll_so_that_it_can_widen_the_window():
    grace = [1]
    model = obedient()
    turns = []

    def provide():
        turns.append(grace[0])
        grace[0] = 6 if len(turns) >= 4 else 1
        return grace[0]

    result, _ = await fly(model, limits(10, 1), graceful_turn_limit_grace_provider=provide)
    assert len(turns) >= 4
    assert result.outcome is WRAPPED
    assert result.iterations == 5  # soft limit 4 when it was first asked for more


@pytest.mark.parametrize(("grace", "turns"), [(0, 10), (-3, 10), (1, 10), (4, 7), (9, 2), (999, 2)])
@virtual
async def test_what_the_grace_provider_says_is_brought_into_range(grace, turns):
    model = obedient()
    result, _ = await fly(model, limits(10, 3), graceful_turn_limit_grace_provider=lambda: grace)
    assert seen(result, model) == wrapped(turns)


@pytest.mark.parametrize("provider", [lambda: 1 / 0, lambda: None, lambda: "3", lambda: True])
@virtual
async def test_a_grace_provider_that_fails_leaves_the_static_grace(provider):
    model = obedient()
    result, _ = await fly(model, limits(10, 3), graceful_turn_limit_grace_provider=provider)
    assert seen(result, model) == wrapped(8)


@virtual
async def test_steering_comes_before_the_notice():
    from glidepath import Plugin

    class Steers(Plugin):
        def steering(self, context):
            return ["one more thing"] if context.iteration == 1 else None

    model = ScriptedModel([call("work", item=1), say(ANSWER)])
    result, _ = await fly(model, limits(2, 1), plugins=[Steers()])
    texts = [message.text for message in result.messages]
    assert texts.index("one more thing") < texts.index(DEFAULT_NOTICE)


@virtual
async def test_steering_that_came_on_the_last_turn_reaches_the_landing_call():
    from glidepath import Plugin

    class Steers(Plugin):
        def steering(self, context):
            return ["one more thing"] if context.iteration == 2 else None

    model = obedient()
    result, _ = await fly(model, limits(2, 0), plugins=[Steers()])
    assert "one more thing" in [message.text for message in model.requests[-1].messages]
    assert result.undelivered == ()
