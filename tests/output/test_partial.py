"""Values of an answer while it is written: each fuller than the one before, the last one the output of the run."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import TypedDict

import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, ConfigurationError, Limits
from glidepath.errors import AskAgain
from glidepath.testing import ScriptedModel, call, virtual
from glidepath.tools import Output, tool
from glidepath.tools.partial_json import complete

LIMITS = Limits(max_iterations=6)


@dataclass
class City:
    name: str
    people: int = 0
    tags: list[str] = field(default_factory=list)


class Draft(TypedDict, total=False):
    title: str
    points: list[str]


def agent_of(kind, *script, **settings):
    model = ScriptedModel(script, delay=0.01)
    return Agent(model=model, output_type=kind, limits=LIMITS, **settings)


async def partials(agent):
    async with agent.stream("go") as stream:
        return [value async for value in stream.partial()], stream.result


@virtual
async def test_a_value_grows_and_the_last_one_is_the_output():
    said = '{"name": "Lisbon", "people": 548000, "tags": ["sea", "hills"]}'
    seen, result = await partials(agent_of(City, said))
    assert seen[-1] == result.output == City("Lisbon", 548000, ["sea", "hills"])
    assert len(seen) > 3
    assert all(isinstance(one, City) for one in seen)
    assert {one.people for one in seen} == {0, 548000}, "a number that is cut off is no number yet"
    assert [one.name for one in seen] == sorted([one.name for one in seen], key=len)


@virtual
async def test_lists_texts_and_unions_come_in_parts_too():
    seen, _ = await partials(agent_of(list[City], '[{"name": "Ulm"}, {"name": "Bonn"}]'))
    assert seen[-1] == [City("Ulm"), City("Bonn")]
    assert [City("Ulm")] in seen
    seen, _ = await partials(agent_of(str, "one two three four five"))
    assert seen[-1] == "one two three four five"
    assert len(seen) > 1
    seen, _ = await partials(agent_of(City | str, "I cannot know that."))
    assert (seen[-1], {type(one) for one in seen}) == ("I cannot know that.", {str})
    seen, _ = await partials(agent_of(Draft, '{"title": "Bees", "points": ["dance", "sing"]}'))
    assert seen[0].keys() <= {"title"}


@virtual
async def test_an_answer_that_is_asked_for_again_starts_again():
    def check(context):
        if context.output.people < 0:
            raise AskAgain("nobody lives there?")
        context.output.name = context.output.name.upper()

    agent = agent_of(City, '{"name": "A", "people": -1}', '{"name": "Bb", "people": 2}', output_validators=[check])
    seen, result = await partials(agent)
    assert City("A", -1) in seen
    assert seen[-1] == result.output == City("BB", 2)


def test_the_same_without_an_event_loop():
    with agent_of(City, '{"name": "Ulm", "people": 1}').stream_sync("go") as stream:
        assert list(stream.partial())[-1] == City("Ulm", 1)


@virtual
async def test_an_agent_without_a_type_says_what_to_use():
    with pytest.raises(ConfigurationError, match=r"stream\.text\(\)"):
        await partials(Agent(model=ScriptedModel(["hi"]), limits=LIMITS))


@virtual
async def test_a_turn_with_calls_and_a_failed_run_give_no_value_of_their_own():
    @tool
    def look() -> str:
        """Look."""
        return "[]"

    seen, result = await partials(agent_of(City, call("look"), "no", "no", tools=[look]))
    assert (seen, result.ok) == ([], False)


@virtual
async def test_a_long_answer_is_not_read_again_for_every_piece():
    reads = []

    class Counting(Output):
        def read_partial(self, text):
            reads.append(len(text))
            return super().read_partial(text)

    from glidepath.events import StreamChunk, StreamStarted
    from glidepath.run import PartialOutput

    seen = PartialOutput(Counting(list[int]))
    envelope = ("run", None, 1, 0.0)
    seen.of([StreamStarted(*envelope, "m", 1)])
    text = json.dumps(list(range(20_000)))
    for start in range(0, len(text), 4):
        seen.of([StreamChunk(*envelope, text[start : start + 4])])
    assert sum(reads) < 80 * len(text)
    await asyncio.sleep(0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values.filter(lambda value: isinstance(value, dict | list)), st.data(), st.booleans())
def test_every_beginning_of_a_json_text_completes_to_json_texts(value, data, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    cut = data.draw(st.integers(1, len(text)))
    made = list(complete(text[:cut]))
    assert made, text[:cut]
    for one in made:
        assert type(json.loads(one)) is type(value)
    if cut == len(text):
        assert json.loads(made[0]) == value


@given(st.text(alphabet='{}[]",:\\u0a1 \n', max_size=40))
def test_nonsense_is_completed_to_whatever_and_never_raises(text):
    list(complete(text))
    Output(list[int]).read_partial(text)
