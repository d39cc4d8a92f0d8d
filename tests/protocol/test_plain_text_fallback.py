"""Plain text where a delivery was expected (SPEC 10.2): narrowed, eager, eager with nudges."""

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, Plugin, ProtocolPolicy, RunResult, approve, tool
from glidepath.events import GuardTripped, HookFailed, NoticeSent
from glidepath.kernel.plain_text import is_question
from glidepath.messages import StopReason
from glidepath.spi import Gate
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, say, transcript_errors, virtual
from glidepath.values import decode, encode

LIMITS = Limits(max_iterations=9)
DELIVERED = []


@tool(terminal=True)
async def deliver(answer: str) -> str:
    DELIVERED.append(answer)
    return f"delivered {answer}"


@tool
async def work(n: int = 0) -> str:
    return f"worked {n}"


@tool(requires_approval=True)
async def sign() -> str:
    return "signed"


class OnlyDeliver(Plugin):
    """Narrows the allow-list to the delivery tool from a turn on."""

    def __init__(self, turn=0, allowed=("deliver",)):
        self.turn, self.names = turn, frozenset(allowed)

    def tool_gate(self, context):
        return Gate(allowed=self.names) if context.iteration >= self.turn else None


async def fly(
    turns, *, plugins=(), recorder=None, limits=LIMITS, fallback="deliver", tools=(deliver, work, sign), **more
):
    DELIVERED.clear()
    recorder = recorder or EventRecorder()
    names = {"eager", "eager_nudge"} & set(more)
    flags = {f"plain_text_terminal_fallback_{name}": more.pop(name) for name in names}
    with ScriptedModel(turns) as model:
        agent = Agent(
            model=model,
            tools=(deliver, work, sign),
            limits=limits,
            plugins=[*plugins, recorder.as_plugin()],
            plain_text_terminal_fallback_tool=fallback,
            **flags,
            **more,
        )
        result = await agent.run("go")
    recorder.assert_legal()
    assert transcript_errors(result.messages, result.pending) == []
    return result, recorder, model


def synthesized(result):
    """The call and the result that were made of plain text."""
    *_, reply, answer = result.messages
    (made,) = reply.tool_calls
    return made, answer


TABLE = [
    # mode, gate, texts, synthesized text (None: a natural end), nudges
    ({}, None, ["plain"], None, 0),
    ({}, OnlyDeliver(), ["plain"], "plain", 0),
    ({}, OnlyDeliver(allowed=("work",)), ["plain"], None, 0),
    ({}, OnlyDeliver(allowed=()), ["plain"], None, 0),
    ({}, OnlyDeliver(), ["which one?"], None, 0),
    ({"eager": True}, None, ["plain"], "plain", 0),
    ({"eager": True}, None, ["which one?"], None, 0),
    ({"eager": True}, OnlyDeliver(allowed=("work",)), ["plain"], None, 0),
    ({"eager": True, "eager_nudge": True}, None, ["one", "two", "three"], "one", 2),
    ({"eager": True, "eager_nudge": True}, None, ["which?", "two", "three"], "two", 2),
    ({"eager": True, "eager_nudge": True}, None, ["which?", "what?", "three"], "three", 2),
    ({"eager": True, "eager_nudge": True}, None, ["which?", "what?", "who?"], None, 2),
    ({"eager": True, "eager_nudge": True}, OnlyDeliver(), ["one"], "one", 0),
    ({"eager": True, "eager_nudge": True}, OnlyDeliver(turn=1), ["one", "two"], "one", 1),
]


@pytest.mark.parametrize(("mode", "gate", "texts", "kept", "nudges"), TABLE)
@virtual
async def test_the_table_of_modes(mode, gate, texts, kept, nudges):
    result, recorder, _ = await fly(texts, plugins=[gate] if gate else [], **mode)
    assert result.outcome is LoopOutcome.DONE
    assert result.text == (texts[-1] if kept is None else kept)
    assert [event.reason for event in recorder.of(NoticeSent)] == ["plain_text_fallback"] * nudges
    assert DELIVERED == []
    if kept is None:
        assert result.messages[-1].role == "assistant"
        return
    made, answer = synthesized(result)
    assert (made.name, made.arguments) == ("deliver", {"answer": kept})
    assert (answer.call_id, answer.text, answer.is_error) == (made.id, kept, False)
    assert result.messages[-2].stop_reason is StopReason.TOOL_USE
    assert recorder.of(GuardTripped)[-1].action == "deliver"


@virtual
async def test_a_model_that_obeys_the_nudge_delivers_by_itself():
    result, recorder, model = await fly(["my answer", call("deliver", answer="x")], eager=True, eager_nudge=True)
    assert (result.outcome, DELIVERED, result.text) == (LoopOutcome.DONE, ["x"], "my answer")
    assert model.requests[1].messages[-1].text == "Your reply was plain text. Deliver it by calling the tool 'deliver'."
    assert model.requests[1].messages[-1].internal
    assert len(recorder.of(NoticeSent)) == 1


@virtual
async def test_work_after_a_nudge_forgets_what_was_kept_and_counted():
    turns = ["early", call("work"), "later", "later still", "last"]
    result, recorder, _ = await fly(turns, eager=True, eager_nudge=True)
    assert result.text == "later"
    assert len(recorder.of(NoticeSent)) == 3


@virtual
async def test_a_truncated_text_is_continued_first_and_then_taken_whole():
    from glidepath.testing import truncated

    result, _, _ = await fly([truncated("The answer is "), "forty-two."], eager=True)
    assert synthesized(result)[1].text == "The answer is forty-two."


@virtual
async def test_an_empty_answer_is_no_delivery():
    result, _, _ = await fly([say(" "), "real"], eager=True)
    assert synthesized(result)[1].text == "real"


@virtual
async def test_the_empty_outcome_budget_counts_nudges_and_never_throws_the_text_away():
    result, recorder, _ = await fly(["one", "two"], eager=True, eager_nudge=True, empty_outcome_retry_budget=1)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "one")
    assert len(recorder.of(NoticeSent)) == 1


@virtual
async def test_on_the_last_grace_turn_the_text_is_the_delivery_and_the_run_has_wrapped_up():
    result, _, _ = await fly([call("work", n=n) for n in range(3)] + ["in short"], limits=Limits(max_iterations=4))
    assert (result.outcome, result.landing_calls) == (LoopOutcome.WRAPPED_UP, 0)
    assert synthesized(result)[1].text == "in short"


@virtual
async def test_a_tool_named_by_the_policy_is_terminal_and_can_be_the_fallback():
    class Words(ProtocolPolicy):
        terminal_tool_names = frozenset({"work"})

        def plain_text_recovery_prompt(self, text, tool_name):
            return f"{tool_name}, not {text}!"

    result, _, model = await fly(
        ["hm", call("work", n=3)], fallback="work", protocol_policy=Words(), eager=True, eager_nudge=True
    )
    assert model.requests[1].messages[-1].text == "work, not hm!"
    assert (result.outcome, result.messages[-1].text) == (LoopOutcome.DONE, "worked 3")


@pytest.mark.parametrize("answer", [None, 7, "", "  ", ValueError("odd")])
@virtual
async def test_a_policy_without_words_is_reported_and_ours_are_used(answer):
    class Mute(ProtocolPolicy):
        def plain_text_recovery_prompt(self, text, tool_name):
            if isinstance(answer, Exception):
                raise answer
            return answer

    result, recorder, model = await fly(
        ["hm", call("deliver", answer="x")], protocol_policy=Mute(), eager=True, eager_nudge=True
    )
    assert "Deliver it by calling the tool 'deliver'" in model.requests[1].messages[-1].text
    assert recorder.one(HookFailed).hook == "plain_text_recovery_prompt"
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_what_was_kept_and_counted_is_carried_over_a_pause():
    recorder = EventRecorder()
    model = ScriptedModel(["kept", calls(call("sign"), text="hm"), "third", "fourth", "fifth"])
    agent = Agent(
        model=model,
        tools=[deliver, sign],
        limits=LIMITS,
        plugins=[recorder.as_plugin()],
        plain_text_terminal_fallback_tool="deliver",
        plain_text_terminal_fallback_eager=True,
        plain_text_terminal_fallback_eager_nudge=True,
    )
    paused = decode(encode(await agent.run("go")), RunResult)
    result = await agent.resume(paused, decisions={paused.pending[0].call.id: approve()})
    assert result.text == "third"
    assert transcript_errors(result.messages) == []


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"properties": {"anything": {"type": "string"}}}, "anything"),
        ({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]}, "b"),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}, "a"),
        ({"properties": {"title": {"type": "string"}, "content": {"type": "string"}}}, "content"),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, "text"),
        ({}, "text"),
        ({"properties": {"a": {}, "b": True}}, "text"),
    ],
)
def test_the_text_goes_where_it_belongs(schema, wanted):
    from glidepath.kernel.plain_text import _find_text_parameter

    assert _find_text_parameter(schema) == wanted


@pytest.mark.parametrize("text", ["Which one?", "Really? ", '"Why?"', "**Sure?**", "really\uff1f", "what?!"])
def test_a_question_is_one(text):
    assert is_question(text)


@pytest.mark.parametrize("text", ["Done.", "Why? Because.", "", "?no", "Done!"])
def test_anything_else_is_none(text):
    assert not is_question(text)


@pytest.mark.parametrize("name", ["nobody", "work"])
def test_the_fallback_must_be_a_terminal_tool(name):
    with pytest.raises(ConfigurationError, match=r"plain_text_terminal_fallback_tool.*terminal=True"):
        Agent(model=ScriptedModel([]), tools=[deliver, work], limits=LIMITS, plain_text_terminal_fallback_tool=name)


@pytest.mark.parametrize(
    ("given", "partner"),
    [
        ({"plain_text_terminal_fallback_eager": True}, "tool"),
        ({"plain_text_terminal_fallback_eager_nudge": True}, "eager"),
        (
            {
                "plain_text_terminal_fallback_tool": "deliver",
                "plain_text_terminal_fallback_eager_nudge": True,
            },
            "eager",
        ),
    ],
)
def test_a_knob_without_its_partner_is_ignored_with_a_warning(given, partner):
    with pytest.warns(UserWarning, match=f"without plain_text_terminal_fallback_{partner}"):
        Agent(model=ScriptedModel([]), tools=[deliver], limits=LIMITS, **given)
