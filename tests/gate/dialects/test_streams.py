"""A reply that is followed: what leaves is what came, and what was said is known, however the network cuts it."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from glidepath.messages import Usage
from glidepath.values import astuple

from .streams import CALLS, SAID, SPEAKERS, open_reader

RECORDED = Path(__file__).resolve().parents[2] / "wire" / "recorded"
every = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)
USED = Usage(40, 12, 8, 0, 4)


def told(reader):
    calls = [(call.id, call.name, json.loads(call.arguments)) for call in reader.calls]
    return reader.text, calls, reader.usage, reader.stop, reader.is_complete, reader.visible, reader.hidden


def fed(reader, chunks):
    return b"".join([reader.feed(chunk) for chunk in chunks]) + reader.end()


@every
def test_a_reply_is_counted_and_every_byte_leaves_as_it_came(speaker):
    frames = speaker().calls()
    reader = open_reader(speaker())
    assert fed(reader, frames) == b"".join(frames)
    text, calls, usage, stop, complete, visible, hidden = told(reader)
    assert (text, calls, usage, complete) == (SAID, CALLS, USED, True)
    assert stop == speaker.calling
    assert visible == len(SAID.encode()) + sum(len(call.arguments) for call in reader.calls)
    assert hidden == len("Hm.")
    assert reader.info.model
    assert reader.failure is None


@every
def test_an_event_that_changes_nothing_is_the_same_object(speaker):
    reader = open_reader(speaker())
    for frame in speaker().answer():
        assert reader.feed(frame) is frame


@every
def test_every_split_in_two_gives_the_same(speaker):
    whole = b"".join(speaker().calls())
    reader = open_reader(speaker())
    fed(reader, [whole])
    expected = told(reader)
    for place in range(1, len(whole)):
        reader = open_reader(speaker())
        assert fed(reader, [whole[:place], whole[place:]]) == whole, place
        assert told(reader) == expected, place


@every
@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_byte_by_byte_and_with_every_line_end_gives_the_same(speaker, ends):
    whole = b": a comment\n\n" + b"".join(speaker().calls()) + b": another\n\nid: 7\nretry: 10\n\n"
    whole = whole.replace(b"\n", ends)
    reader = open_reader(speaker())
    assert fed(reader, [whole[place : place + 1] for place in range(len(whole))]) == whole
    assert told(reader)[:3] == (SAID, CALLS, USED)


@every
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_chunks_give_the_same_also_when_calls_are_hidden(speaker, data):
    whole = b"".join(speaker().calls())
    hide = data.draw(st.booleans())
    places = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=30)))
    pieces = [whole[start:end] for start, end in pairwise([0, *places, len(whole)])]
    one, other = (open_reader(speaker(), hide_calls=hide) for _ in range(2))
    left = fed(one, [whole]) + one.finish("bye")
    assert fed(other, pieces) + other.finish("bye") == left
    assert told(one) == told(other)
    assert hide or left == whole


@every
def test_multi_line_data_and_data_without_a_space_are_read(speaker):
    frames = speaker().calls()
    odd = [frame.replace(b"data: ", b"data:") for frame in frames]
    reader = open_reader(speaker())
    assert fed(reader, odd) == b"".join(odd)
    assert told(reader)[:3] == (SAID, CALLS, USED)
    if speaker.name == "anthropic":
        lined = [frame.replace(b', "', b',\ndata: "', 1) for frame in frames]
        reader = open_reader(speaker())
        assert fed(reader, lined) == b"".join(lined)
        assert told(reader)[2] == USED


@every
def test_a_stream_that_ends_without_its_last_blank_line_is_complete(speaker):
    whole = b"".join(speaker().calls()).rstrip(b"\n")
    reader = open_reader(speaker())
    assert fed(reader, [whole]) == whole
    assert told(reader)[2:5] == (USED, speaker.calling, True)


@every
@pytest.mark.parametrize("garbage", [b"data: [1, 2]\n\n", b"data: 7\n\n", b"\xff\xfe\n\n", b"\n\n\n"])
def test_garbage_between_events_passes(speaker, garbage):
    frames = speaker().answer()
    mixed = [piece for frame in frames for piece in (frame, garbage)]
    reader = open_reader(speaker())
    assert fed(reader, mixed) == b"".join(mixed)
    assert told(reader)[:3] == (SAID, [], USED)


NO_JSON = b"data: {not json\n\n"


@every
def test_what_is_no_json_is_left_out_because_clients_end_at_it(speaker):
    frames = speaker().answer()
    reader = open_reader(speaker())
    assert fed(reader, [piece for frame in frames for piece in (frame, NO_JSON)]) == b"".join(frames)
    assert told(reader)[:3] == (SAID, [], USED)
    assert (reader.left_out, reader.is_torn) == (len(frames), False)
    untouched = open_reader(speaker())
    untouched.passes_all = True
    assert fed(untouched, [*frames[:1], NO_JSON, *frames[1:]]) == frames[0] + NO_JSON + b"".join(frames[1:])


@every
def test_what_is_no_json_in_the_middle_of_a_call_makes_the_reply_torn(speaker):
    frames, seen = speaker().calls(), []
    for place in range(1, len(frames)):
        reader = open_reader(speaker())
        left = b"".join([reader.feed(frame) for frame in [*frames[:place], NO_JSON]])
        assert reader.is_torn == bool(reader.is_waiting)
        assert NO_JSON not in left
        seen.append(reader.is_torn)
    assert any(seen) or speaker.name == "gemini"  # where a call is one event


@every
def test_unknown_events_and_fields_pass(speaker):
    frames = speaker().answer()
    odd = b'event: brand_new\ndata: {"type": "brand_new", "index": 99, "output_index": 99, "x": {"y": null}}\n\n'
    mixed = [*frames[:2], odd, *frames[2:]]
    reader = open_reader(speaker())
    assert fed(reader, mixed) == b"".join(mixed)
    assert told(reader)[:3] == (SAID, [], USED)


@every
@given(junk=st.lists(st.binary(max_size=60), max_size=8), hide=st.booleans())
@settings(max_examples=80, deadline=None)
def test_no_bytes_make_a_reader_raise(speaker, junk, hide):
    reader = open_reader(speaker(), hide_calls=hide)
    frames = speaker().calls()
    for chunk in [*frames[:3], *junk, *frames[3:]]:
        reader.feed(chunk)
    reader.end()
    reader.finish("bye")
    reader.assemble()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@every
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_events_with_wrong_types_never_raise(speaker, data):
    """One field of one event becomes anything; the reader, a cut and the assembled reply survive it."""
    frames = speaker().calls()
    number = data.draw(st.integers(0, len(frames) - 1))
    head, _, text = frames[number].partition(b"data: ")
    try:
        event = json.loads(text)
    except ValueError:
        return
    place, keys = event, data.draw(st.integers(0, 4))
    for _ in range(keys):
        inner = [
            value
            for value in (place.values() if isinstance(place, dict) else place)
            if value and isinstance(value, dict | list)
        ]
        if not inner:
            break
        place = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(values)
    frames[number] = head + b"data: " + json.dumps(event).encode() + b"\n\n"
    for how in ({}, {"hide_calls": True}):
        reader = open_reader(speaker(), stream=False, **how)
        for frame in frames:
            reader.feed(frame)
        reader.end()
        reader.finish("bye")
        assert reader.usage is None or type(reader.usage.total) is int
        reader.assemble()
        assert reader.info is None or reader.info
    reader = open_reader(speaker())
    for frame in frames[:-2]:
        reader.feed(frame)
    reader.cut("enough")


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("anthropic", ["anthropic", "vertex"]),
        (
            "openai-chat",
            [
                "openai-chat",
                "groq",
                "deepseek",
                "mistral",
                "openrouter",
                "vllm",
                "xai",
                "ollama",
                "lmstudio",
                "llamacpp",
                "azure",
            ],
        ),
        ("openai-responses", ["openai"]),
        ("gemini", ["google"]),
    ],
)
def test_streams_of_known_hosts_are_read_as_the_adapters_read_them(name, recorded):
    speaker = next(one for one in SPEAKERS if one.name == name)
    for host in recorded:
        raw = (RECORDED / f"{host}.sse").read_bytes()
        expected = json.loads((RECORDED / f"{host}.json").read_text())
        reader = open_reader(speaker())
        assert fed(reader, [raw]) == raw, host
        assert reader.is_complete, host
        assert reader.text == expected["text"], host
        assert [[call.name, json.loads(call.arguments)] for call in reader.calls] == expected["calls"], host
        assert list(astuple(reader.usage))[:5] == expected["usage"], host
