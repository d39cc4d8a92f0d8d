"""A constrained reply is read the same however it is cut into pieces."""

import json

import pytest
from hypothesis import given, strategies as st

from glidepath.messages import TextDelta, ToolCallDelta
from glidepath.models.local import ConstrainedReply

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)
INDENTS = st.sampled_from([None, 1, 4])


def read(text, cuts=()):
    """What a reply says when it comes in pieces, cut at the given places."""
    reply, at, deltas = ConstrainedReply(), 0, []
    for cut in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        deltas += reply.feed(text[at:cut])
        at = cut
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    calls = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    return reply, said, calls


CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@given(st.text(), st.booleans(), INDENTS, CUTS)
def test_an_answer_comes_out_as_it_was_meant(answer, ascii_only, indent, cuts):
    written = json.dumps({"answer": answer}, ensure_ascii=ascii_only, indent=indent) + "\n"
    reply, said, calls = read(written, cuts)
    assert said == answer
    assert (calls, reply.complete, reply.called) == ([], True, False)


@given(st.text("abcdefgh_-", min_size=1), OBJECTS, INDENTS, CUTS)
def test_a_call_keeps_its_arguments(name, arguments, indent, cuts):
    written = json.dumps({"tool": name, "arguments": arguments}, indent=indent) + " "
    reply, said, calls = read(written, cuts)
    assert calls[0].name == name
    assert json.loads("".join(call.arguments for call in calls)) == arguments
    assert (said, reply.complete, reply.called) == ("", True, True)


@given(VALUES.filter(lambda value: not isinstance(value, str)), INDENTS, CUTS)
def test_an_answer_that_is_no_text_stays_json(value, indent, cuts):
    reply, said, _ = read(json.dumps({"answer": value}, indent=indent), cuts)
    assert json.loads(said) == value
    assert reply.complete


@given(st.text(min_size=1), CUTS, st.integers(1, 10_000))
def test_a_cut_answer_is_a_beginning_of_it_and_not_complete(answer, cuts, at):
    written = json.dumps({"answer": answer})[:-2]
    reply, said, _ = read(written[: at % len(written)], cuts)
    assert answer.startswith(said)
    assert not reply.complete


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        (r'{"answer": "\ud83d\ude00"}', "\U0001f600"),
        (r'{"answer": "a\ud83db"}', "a\ufffdb"),
        (r'{"answer": "\ude00"}', "\ufffd"),
        (r'{"answer": "\ud83d\n"}', "\ufffd\n"),
        (r'{"answer": "\ud83dA"}', "\ufffdA"),
        (r'{"answer": "\/\"\\"}', '/"\\'),
    ],
)
def test_odd_escapes_lose_at_most_themselves(written, answer):
    for cuts in ((), range(len(written))):
        assert read(written, cuts)[1] == answer


def test_what_follows_the_reply_is_nothing():
    reply = ConstrainedReply()
    assert reply.feed('{"answer": "yes"}') == [TextDelta("yes")]
    assert reply.feed("\n\nand more") == []
