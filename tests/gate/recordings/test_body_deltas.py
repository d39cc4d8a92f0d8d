"""Bodies are stored by their differences: they come back byte for byte, and a conversation takes linear room."""

import json

import pytest
from hypothesis import given, strategies as st

from glidepath.apps.gate.recordings import (
    Delta,
    DeltaReader,
    DeltaWriter,
    count_common_prefix,
    count_common_suffix,
    pack,
)

TEXT = st.binary(max_size=40).map(lambda part: part * 300)


def write(bodies):
    writer = DeltaWriter()
    return {number: writer.write(number, body) for number, body in enumerate(bodies, 1)}


@given(st.lists(st.tuples(TEXT, st.binary(max_size=9), TEXT).map(b"".join), max_size=12))
def test_every_body_comes_back_as_it_was(bodies):
    reader = DeltaReader(write(bodies))
    for number in [*range(1, len(bodies) + 1), *range(len(bodies), 0, -1)]:
        assert reader.read(number) == bodies[number - 1]


@given(TEXT, st.binary(max_size=5), st.binary(max_size=5), TEXT)
def test_what_two_bodies_share_is_counted_exactly(start, one, other, end):
    first, second = start + one + end, start + other + end
    prefix = count_common_prefix(first, second)
    suffix = count_common_suffix(first, second, prefix)
    assert (first[:prefix] == second[:prefix] and first[prefix : prefix + 1] != second[prefix : prefix + 1]) or (
        prefix == min(len(first), len(second))
    )
    assert suffix <= min(len(first), len(second)) - prefix
    assert first[len(first) - suffix :] == second[len(second) - suffix :]


def talk(turns):
    """The bodies of a conversation as Claude Code sends them: the mark of the cache moves, the tools come last."""
    tools = [{"name": f"tool-{number}", "description": f"{number} " * 400} for number in range(24)]
    messages = []
    for turn in range(turns):
        messages += [{"role": "user", "content": f"question {turn} " * 8}, {"role": "assistant", "content": "yes " * 8}]
        marked = [*messages[:-1], {**messages[-1], "cache_control": {"type": "ephemeral"}}]
        yield json.dumps({"model": "m", "messages": marked, "tools": tools}).encode()


def test_two_hundred_turns_take_linear_room():
    bodies = list(talk(200))
    sizes = [len(delta.middle) for delta in write(bodies).values()]
    assert sum(map(len, bodies)) > 100 * sum(sizes)
    assert max(sizes[1:]) < 400, "a turn stores what is new in it, however long the conversation is"
    assert sum(sizes[100:]) < 1.3 * sum(sizes[1:101]), "the second half takes no more room than the first"


@pytest.mark.parametrize(
    "deltas",
    [
        {2: Delta(base=1, prefix=3)},
        {1: Delta(middle=b"not compressed")},
        {1: Delta(), 2: Delta(base=1, prefix=9)},
        {1: Delta(base=1)},
        {1: Delta(), 2: Delta(base=1, suffix=-1)},
    ],
)
def test_a_body_that_cannot_be_put_together_is_an_error_and_never_another_body(deltas):
    with pytest.raises(ValueError, match=r"missing|unpacked|fit"):
        DeltaReader(deltas).read(max(deltas))


def test_a_body_that_grows_with_every_difference_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr("glidepath.apps.gate.recordings.body_deltas.LARGEST_BODY", 1000)
    grows = {1: Delta(middle=pack(b"x" * 900)), 2: Delta(base=1, prefix=900, middle=pack(b"x" * 100))}
    grows[3] = Delta(base=2, prefix=1000, middle=pack(b"x"))
    reader = DeltaReader(grows)
    assert len(reader.read(2)) == 1000
    with pytest.raises(ValueError, match="call 3 is longer than 1000 bytes"):
        reader.read(3)
