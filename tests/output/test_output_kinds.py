"""What an output type may be beside a class with fields: text, numbers, lists, unions; and what a model is asked."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypedDict

import pydantic
import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, virtual
from glidepath.tools import Output, OutputError, tool

LIMITS = Limits(max_iterations=6)


@dataclass
class Invoice:
    number: str
    total: float = 0.0


@dataclass
class Question:
    ask: str


class Place(TypedDict):
    name: str


class Card(pydantic.BaseModel):
    name: str
    years: int = pydantic.Field(ge=0)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


def run(kind, *script, **settings):
    model = ScriptedModel(script)
    return Agent(model=model, output_type=kind, limits=LIMITS, **settings).run_sync("go"), model


GOOD = [
    (str, "hello there", "hello there"),
    (bool, "true", True),
    (bool, '{"value": false}', False),
    (int, "12", 12),
    (int, "```json\n0\n```", 0),
    (float, "1.5", 1.5),
    (Color, '{"value": "blue"}', Color.BLUE),
    (Literal["yes", "no"], '"no"', "no"),
    (list[int], "[1, 2]", [1, 2]),
    (list[int], '{"value": []}', []),
    (list[Invoice], 'Here: [{"number": "A"}]', [Invoice("A")]),
    (list[Card], '{"value": [{"name": "eve", "years": 3}]}', [Card(name="eve", years=3)]),
    (list[Place], '[{"name": "Ulm"}]', [{"name": "Ulm"}]),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (Invoice | Question, '{"ask": "Which one?"}', Question("Which one?")),
    (Invoice | Question, '{"value": {"number": "A", "total": 2}}', Invoice("A", 2.0)),
    (Invoice | Card, '{"name": "eve", "years": 1}', Card(name="eve", years=1)),
    (Invoice | str, "I need the number.", "I need the number."),
    (Invoice | str, '{"value": "I need the number."}', "I need the number."),
    (Invoice | str, '{"number": "A"}', Invoice("A")),
    (Invoice | list[Invoice], '[{"number": "A"}]', [Invoice("A")]),
    (int | str, "seven", "seven"),
]


@pytest.mark.parametrize(("kind", "said", "expected"), GOOD, ids=lambda value: str(value)[:40])
def test_an_answer_becomes_a_value_of_its_type(kind, said, expected):
    result, model = run(kind, said)
    assert (result.outcome, result.output, result.unwrap()) == (LoopOutcome.DONE, expected, expected)
    assert type(result.output) is type(expected)
    assert len(model.requests) == 1


def test_every_schema_that_a_vendor_is_sent_is_an_object_and_plain_text_has_none():
    for kind, _, _ in GOOD:
        schema = Output(kind).schema
        assert (schema is None) if kind is str else (schema["type"] == "object"), kind
    _, model = run(str, "hello")
    assert (model.requests[0].output_schema, model.requests[0].system_prompt) == (None, "")
    _, model = run(list[Invoice], "[]")
    assert json.dumps(model.requests[0].output_schema, separators=(",", ":")) in model.requests[0].system_prompt


@pytest.mark.parametrize(
    ("kind", "said"),
    [(int, "twelve"), (bool, "maybe"), (list[int], '["a"]'), (Invoice | Question, '{"x": 1}'), (Card, '{"name": 1}')],
)
def test_an_answer_of_another_type_is_asked_for_again_as_often_as_wanted(kind, said):
    for retries in (0, 1, 3):
        result, model = run(kind, *[said] * (retries + 1), output_retries=retries)
        assert (result.outcome, result.cause.source, result.output) == (LoopOutcome.FAILED, "output_type", None)
        assert len(model.requests) == retries + 1


def test_json_that_stands_alone_must_fit_also_where_text_is_an_answer():
    result, model = run(Invoice | str, '{"number": 7}', '{"number": "7"}')
    assert (result.output, len(model.requests)) == (Invoice("7"), 2)
    assert "Expected `str`, got `int`" in model.requests[1].messages[-1].text


def test_an_answer_that_fits_forgets_the_ones_that_did_not():
    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    model = ScriptedModel(["no", call("look"), "still no", "5"])
    result = Agent(model=model, tools=[look], output_type=int, output_retries=2, limits=LIMITS).run_sync("go")
    assert (result.output, len(model.requests)) == (5, 4)


def test_the_result_of_a_tool_is_no_answer_when_a_limit_ends_the_run():
    @tool
    def count() -> str:
        """Count."""
        return "41"

    model = ScriptedModel([call("count"), "I could not finish."])
    result = Agent(model=model, tools=[count], output_type=int, limits=Limits(max_iterations=1)).run_sync("go")
    assert (result.outcome, result.output, result.text) == (LoopOutcome.CUT_OFF, None, "I could not finish.")


@pytest.mark.parametrize("kind", [Invoice | None, None.__class__, "Invoice", object(), int.__add__])
def test_what_no_model_can_be_asked_for_is_refused_by_name(kind):
    with pytest.raises(ConfigurationError, match="output_type="):
        Agent(model=ScriptedModel(), output_type=kind, limits=LIMITS)


def test_two_types_of_one_name_are_refused_because_the_model_could_not_tell_them_apart():
    other = dataclass(type("Invoice", (), {"__annotations__": {"id": int}, "__module__": __name__}))
    with pytest.raises(ConfigurationError, match="two types named 'Invoice'"):
        Output(Invoice | other)


@virtual
async def test_a_stored_answer_of_any_kind_is_read_again():
    for kind, said, expected in GOOD:
        store = MemoryStore()
        agent = Agent(model=ScriptedModel([said]), output_type=kind, store=store, limits=LIMITS)
        await agent.run("go", session="s")
        again = await agent.resume("s")
        assert (again.outcome, again.output) == (LoopOutcome.DONE, expected), kind


KINDS = [kind for kind, _, _ in GOOD]


@given(st.sampled_from(KINDS), st.text(max_size=60) | st.sampled_from(["{", '{"value":', "[", "null", "NaN", "\ud800"]))
def test_whatever_a_model_writes_is_a_value_or_an_output_error(kind, text):
    try:
        Output(kind).read(text)
    except OutputError as error:
        assert str(error)  # noqa: PT017 - either ending is right
