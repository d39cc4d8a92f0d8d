"""G11 through the whole agent: every loop is noticed, answered by the ladder, and landed with an answer."""

import pytest

from glidepath import AgentState, GuardrailsConfig, Limits, LoopOutcome, tool
from glidepath.events import GuardTripped, MessageAdded, NoticeSent, ToolStarted
from glidepath.messages import AssistantMessage
from glidepath.testing import ScriptedModel, call, calls, say, virtual

from .loops import ANSWER, LOOPS, fly, looping

GUARDS = {"repetition", "error_streak"}
UNKNOWN = {"an unknown tool", "unknown tools that vary"}


def ladder(recorder):
    """The rungs in order, and how many replies with calls came after the first of them."""
    rungs, replies = [], 0
    for event in recorder:
        if isinstance(event, GuardTripped) and event.guard in GUARDS | {"withdrawn"}:
            rungs.append(event.action)
        elif isinstance(event, MessageAdded) and isinstance(event.message, AssistantMessage):
            replies += bool(rungs) and bool(event.message.tool_calls)
    return rungs, replies


every = pytest.mark.parametrize("kind", LOOPS)


@every
@virtual
async def test_g11_a_loop_is_nudged_withdrawn_and_answered_within_three_repeats(kind):
    model = looping(kind, "listens")
    result, recorder = await fly(model)
    rungs, repeats = ladder(recorder)
    assert rungs[0] == "nudge"
    assert rungs[-1] == ("land" if kind in UNKNOWN else "withdraw")
    period = 4 if "4" in kind else 3 if "3" in kind else 2 if "2" in kind or "changing" in kind or "turn" in kind else 1
    assert repeats <= 3 * period
    assert (result.outcome, result.text, result.partial) == (LoopOutcome.WRAPPED_UP, ANSWER, False)
    assert result.cause.source in GUARDS
    assert result.state is (AgentState.ERROR if kind in UNKNOWN else AgentState.COMPLETED)


@pytest.mark.parametrize(
    ("kind", "period"),
    [("period 1", 1), ("period 2 of one tool", 2), ("period 3", 3), ("period 4", 4), ("two batches in turn", 2)],
)
@virtual
async def test_a_circle_is_told_with_its_period(kind, period):
    _, recorder = await fly(looping(kind, "listens"))
    told = [(event.action, event.period) for event in recorder if isinstance(event, GuardTripped)]
    assert told == [("nudge", period), ("withdraw", period)]


@virtual
async def test_what_repeats_without_a_circle_has_no_period():
    _, recorder = await fly(looping("incrementing arguments", "listens"))
    assert {event.period for event in recorder if isinstance(event, GuardTripped)} == {None}


@every
@virtual
async def test_g11_a_model_that_does_not_listen_is_landed_on_the_next_call_with_its_own_answer(kind):
    model = looping(kind, "lands")
    result, recorder = await fly(model)
    rungs, _ = ladder(recorder)
    assert rungs[-1] == "land"
    assert (result.state, result.outcome, result.text) == (AgentState.ERROR, LoopOutcome.WRAPPED_UP, ANSWER)
    assert result.landing_calls == 1
    assert result.iterations < 25


@every
@virtual
async def test_g11_a_model_that_ignores_everything_is_cut_off(kind):
    model = looping(kind, "deaf")
    result, _ = await fly(model)
    assert (result.state, result.outcome, result.partial) == (AgentState.ERROR, LoopOutcome.CUT_OFF, True)
    assert result.iterations < 25
    assert result.text.startswith("step ")


@pytest.mark.parametrize(("kind", "turns"), [("period 1", 5), ("period 2", 9), ("period 3", 13), ("period 4", 17)])
@virtual
async def test_the_exact_number_of_turns_until_a_loop_is_landed(kind, turns):
    """One round, then three repeats of it of which the last does not run, then the next call lands."""
    result, recorder = await fly(looping(kind, "lands"))
    period = int(kind[-1])
    assert result.iterations == turns
    assert len(recorder.of(ToolStarted)) == 4 * period - 1


@virtual
async def test_the_call_that_completes_the_last_repeat_is_not_executed_and_is_told_why():
    result, recorder = await fly(looping("period 1", "listens"))
    assert len(recorder.of(ToolStarted)) == 3
    last = [message for message in result.messages if message.role == "tool_result"][-1]
    assert (last.is_error, last.kind) == (True, "withdrawn")
    assert "can no longer be used" in last.text


@virtual
async def test_a_nudge_is_an_internal_message_with_the_reason_of_its_guard():
    result, recorder = await fly(looping("period 1", "listens"))
    nudge = next(message for message in result.messages if message.role == "user" and message.internal)
    assert (nudge.reason, "circles" in nudge.text) == ("repetition", True)
    assert recorder.of(NoticeSent)[0].reason == "repetition"
    result, _ = await fly(looping("the same error with varied arguments", "listens"))
    assert next(m.reason for m in result.messages if m.role == "user" and m.internal) == "error_streak"


@virtual
async def test_only_the_tools_of_the_loop_are_withdrawn():
    model = looping("period 2", "listens")
    await fly(model)
    assert model.requests[-1].tools == ("fetch", "fail", "write")


@virtual
async def test_work_with_other_tools_goes_on_after_a_withdrawal_and_is_wrapped_up():
    turns = [*[call("search", query="a")] * 4, call("read", doc="x"), call("read", doc="y"), say("done")]
    model = ScriptedModel(turns)
    result, recorder = await fly(model)
    assert [event.tool_name for event in recorder.of(ToolStarted)] == ["search"] * 3 + ["read"] * 2
    assert (result.outcome, result.state, result.cause.source) == (
        LoopOutcome.WRAPPED_UP,
        AgentState.COMPLETED,
        "repetition",
    )


@virtual
async def test_after_the_wind_down_notice_the_ladder_skips_its_nudge():
    model = looping("period 1", "deaf")
    _, recorder = await fly(model, Limits(max_iterations=30, grace_iterations=29))
    rungs, _ = ladder(recorder)
    assert "nudge" not in rungs
    assert rungs[:1] == ["withdraw"]


# --- switches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["period 1", "period 4", "incrementing arguments"])
@virtual
async def test_zero_switches_the_repetition_guard_off(kind):
    guardrails = GuardrailsConfig(max_repeated_tool_steps=0)
    result, recorder = await fly(looping(kind, "lands"), Limits(max_iterations=30), guardrails=guardrails)
    assert (result.state, result.iterations) == (AgentState.MAX_STEPS, 30)
    assert ladder(recorder)[0] == []


@virtual
async def test_zero_switches_the_error_guard_off():
    guardrails = GuardrailsConfig(max_error_streak=0)
    kind = "the same error with varied arguments"
    result, _ = await fly(looping(kind, "lands"), Limits(max_iterations=30), guardrails=guardrails)
    assert result.iterations == 30


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8])
@virtual
async def test_the_limit_on_repeats_is_what_it_says(limit):
    guardrails = GuardrailsConfig(max_repeated_tool_steps=limit)
    _, recorder = await fly(looping("period 1", "listens"), guardrails=guardrails)
    assert len(recorder.of(ToolStarted)) == limit


@pytest.mark.parametrize("limit", [2, 5, 9])
@virtual
async def test_the_limit_on_errors_is_what_it_says(limit):
    guardrails = GuardrailsConfig(max_error_streak=limit, max_repeated_tool_steps=0)
    kind = "the same error with varied arguments"
    _, recorder = await fly(looping(kind, "listens"), guardrails=guardrails)
    assert len(recorder.of(ToolStarted)) == limit


# --- progress is forgiven -----------------------------------------------------------------------------------------


@virtual
async def test_a_new_result_in_the_middle_starts_the_count_anew():
    answers = iter(["same", "same", "new", "same", "same", "again new", "same", "same"])

    @tool
    async def look() -> str:
        """Look."""
        return next(answers)

    model = ScriptedModel([*[call("look")] * 8, say("done")])
    result, recorder = await fly(model, tools=[look])
    assert result.outcome is LoopOutcome.DONE
    assert "withdraw" not in ladder(recorder)[0]


@virtual
async def test_one_success_ends_an_error_streak():
    outcomes = iter([0, 0, 0, 0, 1, 0, 0, 0, 0, 1])

    @tool
    async def flaky(item: int) -> str:
        """Fail at times."""
        if not next(outcomes):
            raise TimeoutError("slow")
        return f"item {item}"

    model = ScriptedModel([*[call("flaky", item=n) for n in range(10)], say("done")])
    result, recorder = await fly(model, tools=[flaky])
    assert (result.outcome, result.cause) == (LoopOutcome.DONE, None)
    assert set(ladder(recorder)[0]) == {"nudge"}


@virtual
async def test_another_class_of_error_is_another_streak():
    kinds = iter([ValueError, ValueError, ValueError, ValueError, KeyError, KeyError, KeyError, KeyError])

    @tool
    async def flaky(item: int) -> str:
        """Fail."""
        raise next(kinds)(f"{item}")

    model = ScriptedModel([*[call("flaky", item=n) for n in range(8)], say("done")])
    result, _ = await fly(model, tools=[flaky])
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_polling_tools_do_not_count():
    @tool(polling=True)
    async def status() -> str:
        """Poll."""
        return "running"

    model = ScriptedModel([*[call("status")] * 40, say("done")])
    result, recorder = await fly(model, tools=[status])
    assert (result.outcome, ladder(recorder)) == (LoopOutcome.DONE, ([], 0))


@virtual
async def test_a_polling_call_beside_a_repeated_one_does_not_hide_the_repetition():
    states = iter(range(1000))

    @tool(polling=True)
    async def status() -> str:
        """Poll."""
        return f"state {next(states)}"

    @tool
    async def search() -> str:
        """Search."""
        return "nothing"

    model = ScriptedModel().forever(
        lambda request: (
            calls(call("status"), call("search")) if "search" in {t.name for t in request.tools} else say("ok")
        )
    )
    result, _ = await fly(model, tools=[status, search])
    assert (result.outcome, result.cause.source) == (LoopOutcome.WRAPPED_UP, "repetition")


# --- state --------------------------------------------------------------------------------------------------------


@virtual
async def test_the_guards_keep_their_state_in_the_session_and_a_new_run_starts_anew():
    from glidepath import Agent, Session

    from .loops import TOOLS

    session = Session()
    for _ in range(3):
        model = ScriptedModel([*[call("search", query="a")] * 3, say("done")])
        result = await Agent(model=model, tools=TOOLS, limits=Limits(max_iterations=9)).run("go", session=session)
        assert result.outcome is LoopOutcome.DONE
        assert "repetition" in session.metadata["guardrails"]


@virtual
async def test_g9_a_guard_that_crashes_lands_the_run(monkeypatch):
    from glidepath.guards import RepetitionGuard

    def crash(*_):
        raise ZeroDivisionError("guard")

    monkeypatch.setattr(RepetitionGuard, "after", crash)
    result, _ = await fly(looping("unknown tools that vary", "lands"))
    assert (result.state, result.text, result.iterations) == (AgentState.ERROR, ANSWER, 1)
    assert "ZeroDivisionError" in result.cause.reason


# --- read only ----------------------------------------------------------------------------------------------------


def reading(turns):
    @tool(read_only=True)
    async def look(page: int) -> str:
        """Look."""
        return f"page {page}"

    @tool
    async def act() -> str:
        """Act."""
        return "acted"

    return ScriptedModel([*turns, say("done")]), [look, act]


@pytest.mark.parametrize(
    ("threshold", "steps", "nudges"), [(None, 20, 0), (0, 20, 0), (8, 7, 0), (8, 8, 1), (8, 20, 1)]
)
@virtual
async def test_looking_without_doing_is_nudged_once(threshold, steps, nudges):
    model, tools = reading([call("look", page=n) for n in range(steps)])
    guardrails = GuardrailsConfig(read_only_loop_threshold=threshold)
    result, recorder = await fly(model, tools=tools, guardrails=guardrails)
    told = [event for event in recorder.of(NoticeSent) if event.reason == "read_only"]
    assert (len(told), result.outcome) == (nudges, LoopOutcome.DONE)


@virtual
async def test_doing_something_starts_the_count_of_looking_anew():
    looks = [call("look", page=n) for n in range(6)]
    model, tools = reading([*looks[:3], call("act"), *looks[3:], call("act")])
    _, recorder = await fly(model, tools=tools, guardrails=GuardrailsConfig(read_only_loop_threshold=4))
    assert [event for event in recorder.of(NoticeSent) if event.reason == "read_only"] == []
