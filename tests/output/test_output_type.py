"""Structured answers (SPEC 1.8): asked for, read, repaired once, also when landing; never a silent success."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from glidepath import (
    Agent,
    AgentState,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    Plugin,
    RunResult,
    approve,
    tool,
)
from glidepath.errors import RunNotCompleted
from glidepath.events import GuardTripped, MessageAdded
from glidepath.sessions import MemoryStore
from glidepath.testing import EventRecorder, ScriptedModel, call, say, truncated, virtual
from glidepath.tools import Output, OutputError
from glidepath.values import decode, encode

LIMITS = Limits(max_iterations=6)


class City(msgspec.Struct):
    name: str
    people: int
    tags: list[str] = []


@dataclass
class Town:
    name: str
    people: int
    tags: list[str] = field(default_factory=list)


class Village(TypedDict):
    name: str
    people: int


class Hamlet(pydantic.BaseModel):
    name: str
    people: int = pydantic.Field(ge=0)
    tags: list[str] = []


class Tree(msgspec.Struct):
    name: str
    below: list["Tree"] = []


GOOD = '{"name": "Ulm", "people": 126000}'
BAD = '{"name": "Ulm", "people": "many"}'
KINDS = {
    City: City("Ulm", 126000),
    Town: Town("Ulm", 126000),
    Village: {"name": "Ulm", "people": 126000},
    Hamlet: Hamlet(name="Ulm", people=126000),
}


@tool
async def look(n: int = 0) -> str:
    return f"saw {n}"


@tool(terminal=True)
async def finish(city: str) -> str:
    return city


async def fly(turns, kind=City, *, limits=LIMITS, tools=(look, finish), plugins=(), **config):
    recorder = EventRecorder()
    with ScriptedModel(turns) as model:
        agent = Agent(
            model=model,
            tools=tools,
            limits=limits,
            output_type=kind,
            plugins=[*plugins, recorder.as_plugin()],
            **config,
        )
        result = await agent.run("go")
    recorder.assert_legal()
    return result, recorder, model


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@virtual
async def test_an_answer_becomes_a_value_of_the_type(kind):
    result, _, model = await fly([call("look"), GOOD], kind)
    assert (result.outcome, result.output, result.text) == (LoopOutcome.DONE, KINDS[kind], GOOD)
    assert type(result.output) is type(KINDS[kind])
    assert result.unwrap() == KINDS[kind]
    for request in model.requests:
        assert request.output_schema["properties"]["people"]["type"] == "integer"
        assert json.dumps(request.output_schema, separators=(",", ":")) in request.system_prompt


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"Here you are:\n```JSON\n{GOOD}\n```\nAnything else?",
        f"```json\n{BAD}\n```\nno, wait\n```json\n{GOOD}\n```",
        f"Sure! {GOOD} That is all.",
        f"\ufeff  {GOOD}\n",
        f"```json\n{GOOD}",
    ],
)
@virtual
async def test_json_among_other_words_is_found(text):
    result, _, model = await fly([text])
    assert (result.output, len(model.requests)) == (City("Ulm", 126000), 1)


@virtual
async def test_an_answer_that_does_not_fit_is_asked_for_once_more():
    result, recorder, model = await fly([BAD, GOOD])
    assert (result.outcome, result.output) == (LoopOutcome.DONE, City("Ulm", 126000))
    told = model.requests[1].messages[-1]
    assert (told.internal, told.reason) == (True, "output_repair")
    assert "`$.people`" in told.text
    assert recorder.one(GuardTripped).guard == "output_type"
    assert result.iterations == 2
    assert result.usage.total > result.messages[1].usage.total


@virtual
async def test_an_answer_that_never_fits_fails_and_keeps_its_text():
    result, _, _ = await fly([BAD, "still thinking"])
    assert (result.state, result.outcome, result.cause.source) == (
        AgentState.ERROR,
        LoopOutcome.FAILED,
        "output_type",
    )
    assert (result.text, result.output, result.partial) == ("still thinking", None, True)
    with pytest.raises(RunNotCompleted):
        result.unwrap()


@virtual
async def test_a_type_that_raises_is_a_type_the_answer_does_not_fit():
    class Even(msgspec.Struct):
        n: int

        def __post_init__(self):
            if self.n % 2:
                raise RuntimeError("it is odd")

    result, _, model = await fly(['{"n": 3}', '{"n": 4}'], Even)
    assert result.output == Even(4)
    assert "it is odd" in model.requests[1].messages[-1].text


@virtual
async def test_the_landing_call_gives_a_value_too():
    turns = [call("look", n=1), call("look", n=2), GOOD]
    result, _, model = await fly(turns, limits=Limits(max_iterations=2))
    assert (result.state, result.outcome, result.output) == (
        AgentState.MAX_STEPS,
        LoopOutcome.WRAPPED_UP,
        City("Ulm", 126000),
    )
    assert (result.landing_calls, model.requests[-1].tools) == (1, ())
    assert model.requests[-1].output_schema is not None
    assert "JSON object" in model.requests[-1].messages[-1].text
    assert result.unwrap() == City("Ulm", 126000)


@virtual
async def test_a_landing_answer_in_another_format_is_no_answer():
    turns = [call("look", n=1), call("look", n=2), "Ulm, I think"]
    result, _, _ = await fly(turns, limits=Limits(max_iterations=2))
    assert (result.state, result.outcome) == (AgentState.MAX_STEPS, LoopOutcome.CUT_OFF)
    assert (result.text, result.output, result.partial) == ("Ulm, I think", None, True)


@virtual
async def test_the_landing_call_is_the_repair_when_no_turn_is_left():
    result, _, model = await fly([BAD, GOOD], limits=Limits(max_iterations=1))
    assert (result.outcome, result.output) == (LoopOutcome.WRAPPED_UP, City("Ulm", 126000))
    assert [m.reason for m in model.requests[1].messages if m.role == "user" and m.internal] == [
        "output_repair",
        "wind_down",
    ]


@virtual
async def test_after_a_notice_the_value_is_there_and_the_run_has_wrapped_up():
    result, _, model = await fly([call("look"), GOOD], limits=Limits(max_iterations=2))
    assert (result.outcome, result.output) == (LoopOutcome.WRAPPED_UP, City("Ulm", 126000))
    notice = [m for m in model.requests[1].messages if m.role == "user" and m.internal]
    assert "JSON object" in notice[0].text


@virtual
async def test_a_truncated_answer_is_stitched_and_then_read():
    result, _, _ = await fly([truncated(GOOD[:12]), GOOD[12:]])
    assert result.output == City("Ulm", 126000)


@virtual
async def test_a_terminal_tool_may_give_the_value():
    result, _, _ = await fly([call("finish", city=GOOD)])
    assert (result.outcome, result.output) == (LoopOutcome.DONE, City("Ulm", 126000))


@virtual
async def test_a_terminal_tool_that_gives_something_else_is_no_silent_success():
    result, _, _ = await fly([call("finish", city="Ulm")])
    assert (result.outcome, result.cause.source) == (LoopOutcome.FAILED, "output_type")


@virtual
async def test_a_plain_text_delivery_is_read_as_well():
    result, _, _ = await fly(
        [GOOD], plain_text_terminal_fallback_tool="finish", plain_text_terminal_fallback_eager=True
    )
    assert result.output == City("Ulm", 126000)


@virtual
async def test_a_refusal_stays_a_refusal_and_is_no_success():
    result, _, model = await fly([say("I will not.", stop_reason="refusal")])
    assert (result.outcome, result.output, result.cause.action) == (LoopOutcome.FAILED, None, "refuse")
    assert len(model.requests) == 1


@virtual
async def test_an_empty_answer_is_rescued_before_it_is_read():
    result, _, _ = await fly([say(" "), GOOD])
    assert result.output == City("Ulm", 126000)
    failed, _, _ = await fly([say(" ")], guardrails=GuardrailsConfig(max_empty_recoveries=0))
    assert failed.cause.source == "empty_answer"


@virtual
async def test_the_empty_outcome_budget_does_not_count_the_repair():
    result, _, _ = await fly([BAD, GOOD], empty_outcome_retry_budget=1)
    assert result.output == City("Ulm", 126000)


@virtual
async def test_follow_ups_come_after_a_fitting_answer_and_the_last_one_counts():
    class Twice(Plugin):
        asked = 0

        def follow_up(self, context):
            self.asked += 1
            return ["and Bonn?"] if self.asked == 1 else None

    other = '{"name": "Bonn", "people": 330000}'
    result, recorder, _ = await fly([BAD, GOOD, BAD, other], plugins=[Twice()])
    assert (result.outcome, result.output) == (LoopOutcome.DONE, City("Bonn", 330000))
    reasons = [event.message.reason for event in recorder.of(MessageAdded) if event.message.role == "user"]
    assert reasons == [None, "output_repair", None, "output_repair"]


@virtual
async def test_the_repair_is_remembered_over_a_pause():
    @tool(requires_approval=True)
    async def ask() -> str:
        return "asked"

    model = ScriptedModel([BAD, call("ask"), BAD])
    agent = Agent(model=model, tools=[ask], limits=LIMITS, output_type=City)
    paused = decode(encode(await agent.run("go")), RunResult)
    result = await agent.resume(paused, decisions={paused.pending[0].call.id: approve()})
    assert (result.outcome, result.cause.source, len(model.requests)) == (LoopOutcome.FAILED, "output_type", 3)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@virtual
async def test_a_result_with_a_value_can_be_written(kind):
    result, _, _ = await fly([GOOD], kind)
    assert decode(encode(result))["output"]["people"] == 126000


@virtual
async def test_budgets_count_the_words_that_ask_for_the_format():
    plain, _, bare = await fly(["hello"], None)
    asked, _, _ = await fly([GOOD])
    assert asked.usage.input > plain.usage.input
    assert bare.requests[0].output_schema is None


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("City", "cannot be requested"),
        (City | None, "cannot be requested"),
        (City("x", 1), "cannot be requested"),
        (object, "cannot be requested"),
        (lambda: None, "cannot be requested"),
    ],
)
def test_what_a_model_cannot_be_asked_for_is_refused(kind, match):
    with pytest.raises(ConfigurationError, match=f"output_type.*({match})"):
        Agent(model=ScriptedModel([]), limits=LIMITS, output_type=kind)


def test_a_type_that_refers_to_itself_keeps_its_definition():
    output = Output(Tree)
    assert output.schema["properties"]["below"]["items"] == {"$ref": "#/$defs/Tree"}
    assert output.schema["$defs"]["Tree"]["type"] == "object"
    assert output.read('{"name": "a", "below": [{"name": "b"}]}').below[0].name == "b"


def test_nested_types_and_descriptions_are_in_the_schema():
    class Leaf(pydantic.BaseModel):
        color: Literal["red", "green"]

    @dataclass
    class Branch:
        leaf: Leaf
        note: Annotated[str, msgspec.Meta(description="what it is like")]

    schema = Output(Branch).schema
    assert schema["properties"]["note"]["description"] == "what it is like"
    assert "red" in json.dumps(schema)
    assert Output(Branch).read('{"leaf": {"color": "red"}, "note": "x"}').leaf.color == "red"


@given(st.text(max_size=200))
def test_reading_raises_nothing_but_its_own_error(text):
    output = Output(City)
    for candidate in (text, "{" + text + "}", f"```json\n{text}\n```", "{" * 20 + text):
        with suppress(OutputError):
            assert isinstance(output.read(candidate), City)


@pytest.mark.parametrize("text", ["{" * 100_000, "```\n" + " " * 200_000, "```" * 50_000, '{"name": "' + "x" * 10**6])
def test_a_monstrous_answer_is_read_quickly(text):
    with pytest.raises(OutputError) as caught:
        Output(City).read(text)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@virtual
async def test_a_done_run_read_from_a_store_has_a_value_of_the_type_again(kind):
    agent = Agent(model=ScriptedModel([GOOD]), limits=LIMITS, output_type=kind, store=MemoryStore())
    result = await agent.run("go", session="weather")
    again = await agent.resume("weather")
    assert (result.output, again.output) == (KINDS[kind], KINDS[kind])
    assert type(again.output) is type(result.output)


@dataclass
class Leaves:
    """A type that ends the program when it does not like a value."""

    v: int

    def __post_init__(self):
        if self.v < 0:
            raise SystemExit(4)


@virtual
async def test_g1_a_type_that_exits_is_an_answer_that_does_not_fit():
    agent = Agent(model=ScriptedModel(['{"v": -1}', '{"v": 1}']), limits=Limits(max_iterations=5), output_type=Leaves)
    result = await agent.run("x")
    assert (result.outcome, result.output) == (LoopOutcome.DONE, Leaves(1))
