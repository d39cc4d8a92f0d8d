"""Ids of the recorded run become those of this run in the replies, also where deltas cut them; else no byte changes."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from glidepath.apps.gate.recordings import VOLATILE, Normalizer, Place, Substitution, learn, print_table

OLD, NEW = "0190f2b4-7a00-7000-8000-00000000000a", "0190ffff-7a00-7000-8000-0000000000ff"


def event(**data):
    return f"event: {data['type']}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def anthropic(part):
    return event(type="content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": part})


def responses(part):
    return event(type="response.function_call_arguments.delta", item_id="fc_1", output_index=0, delta=part)


def chat(part):
    call = {"index": 0, "function": {"arguments": part}}
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).encode() + b"\n\n"


def read_parts(stream):
    """The text that a client puts together from the deltas."""
    found = ""
    for line in stream.splitlines():
        if line.startswith(b"data: {"):
            data = json.loads(line[6:])
            call = data.get("choices", [{}])[0].get("delta", {}).get("tool_calls", [{}])[0]
            delta = data.get("delta", "")
            found += call.get("function", {}).get("arguments", "") or (
                delta if isinstance(delta, str) else delta.get("partial_json", "")
            )
    return found


def make(*pairs):
    made = Substitution()
    for before, now in pairs:
        made.add(before, now)
    return made


@pytest.mark.parametrize("write", [anthropic, responses, chat])
@given(cuts=st.lists(st.integers(0, 80), max_size=6), same=st.booleans())
def test_an_id_that_deltas_cut_is_replaced_for_the_client(write, cuts, same):
    text = json.dumps({"target": OLD, "path": "/old/place/a.txt"})
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [write(text[one:two]) for one, two in itertools.pairwise(places)]
    place = "/new/place" if same else "/somewhere/quite/different"
    pieces = make((OLD, NEW), ("/old/place", place)).rewrite(
        b"".join(parts), [len(one) for one in parts], is_stream=True
    )
    assert json.loads(read_parts(b"".join(pieces))) == {"target": NEW, "path": f"{place}/a.txt"}
    assert len(pieces) == len(parts)


def test_a_reply_in_which_nothing_is_to_be_replaced_keeps_every_byte_and_piece():
    stream = anthropic("a").replace(b'"index":1', b'"index" : 1') + b": ping\r\n\r\n" + anthropic("b")
    sizes = [7, len(stream) - 7]
    assert make((OLD, NEW)).rewrite(stream, sizes, is_stream=True) == [stream[:7], stream[7:]]


def test_what_is_no_delta_is_replaced_in_its_own_event_only():
    done = event(type="response.output_item.done", item={"arguments": json.dumps({"id": OLD})})
    other = event(type="response.created", response={"id": "resp_1"})
    pieces = make((OLD, NEW)).rewrite(other + done, [len(other), len(done)], is_stream=True)
    assert pieces[0] == other
    assert NEW.encode() in pieces[1]


def test_a_whole_reply_is_rewritten_only_where_it_says_the_old_id():
    reply = json.dumps({"content": [{"text": f"see {OLD}"}]}).encode()
    made = b"".join(make((OLD, NEW)).rewrite(reply, [len(reply)], is_stream=False))
    assert json.loads(made) == {"content": [{"text": f"see {NEW}"}]}


def test_a_short_value_or_a_part_of_a_word_is_left_alone():
    made = make(("abc", "xyz"), ("task1", "task2"))
    assert made.apply("abc task10 task1") == "abc task10 task2"


def test_pairs_are_learned_from_what_is_volatile_in_two_equal_requests():
    ours, theirs = Normalizer(Place(folder="/old/w")), Normalizer(Place(folder="/new/w"))
    recorded = {"messages": [{"content": f"agent {OLD} took 0.02 seconds in /old/w/x on 2026-01-01"}]}
    live = {"messages": [{"content": f"agent {NEW} took 0.99 seconds in /new/w/x on 2026-02-02"}]}
    assert ours.read(recorded) == theirs.read(live)
    assert set(learn(recorded, live, ours, theirs)) == {(OLD, NEW), ("/old/w", "/new/w")}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("built 2026-01-01", "built 2027-12-31"),
        ("Mon Jan  5 10:00:00 UTC 2026", "Tue Feb 10 23:59:59 UTC 2026"),
        ("-rw-r--r-- 1 a a 5 Jan  5 10:00 x", "-rw-r--r-- 1 a a 5 Feb 15 11:30 x"),
        ("3 passed in 0.02s", "3 passed in 1.50s"),
        ("[main (root-commit) 1a2b3c4] first", "[main (root-commit) 9f8e7d6] first"),
        ("<object at 0x7f00aa11bb>", "<object at 0x7f99cc22dd>"),
        ("/tmp/tmp.aB3dE", "/tmp/tmp.Zz9"),
        (
            '{"wall_time_seconds": 0.1, "output": "oops at 10:00:00\\nfine\\n"}',
            '{"wall_time_seconds": 0.1, "output": "fine\\noops at 11:00:00\\n"}',
        ),
        ('{"b": 1, "a": "x\\n2026-01-01\\ny"}', '{"a": "x\\n2027-12-31\\ny", "b": 1}'),
        ("total 8\ndrwxr-xr-x 3 a a 96 Jan 5 10:00 ..\nx", "total 12\ndrwx------ 9 b b 4096 Feb 6 11:00 ..\nx"),
    ],
)
def test_what_the_table_names_is_equal(one, other):
    normal = Normalizer(Place())
    assert normal.read(one) == normal.read(other) != one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 passed in 0.02s", "2 passed in 0.02s"),
        ("gpt-4o-2024-08-06", "gpt-4o-2024-11-20"),
        ("-rw-r--r-- 1 a a 5 Jan  5 10:00 x", "-rw-r--r-- 1 a a 6 Jan  5 10:00 x"),
        ("exit code 1", "exit code 2"),
        ('{"output": "one\\ntwo"}', '{"output": "two\\none"}'),
        ('{"wall_time_seconds": 1, "output": "one"}', '{"wall_time_seconds": 1, "output": "two"}'),
        ("10.0.0.1:8080", "10.0.0.1:8081"),
    ],
)
def test_what_the_table_does_not_name_is_a_difference(one, other):
    normal = Normalizer(Place())
    assert normal.read(one) != normal.read(other)


@pytest.mark.parametrize(
    "make_result",
    [
        lambda one: {"type": "tool_result", "tool_use_id": one, "content": f"said {one}"},
        lambda one: {"type": "function_call_output", "call_id": one, "output": f"said {one}"},
        lambda one: {"role": "tool", "tool_call_id": one, "content": f"said {one}"},
    ],
)
def test_results_of_calls_made_at_once_may_come_in_any_order_and_other_items_may_not(make_result):
    normal = Normalizer(Place())
    one, two = make_result("call_1"), make_result("call_2")
    assert normal.read([one, {**two, "cache_control": {}}]) == normal.read([two, {**one, "cache_control": {}}])
    assert normal.read([one, {"text": "between"}, two]) != normal.read([two, {"text": "between"}, one])
    assert normal.read([one, two]) != normal.read([one, make_result("call_3")])


def test_every_row_of_the_table_is_printed():
    text = print_table()
    assert all(row.what in text for row in VOLATILE)
    assert all(bool(row.pattern) != bool(row.member) for row in VOLATILE)


def test_the_page_has_the_table_as_it_is():
    page = (Path(__file__).resolve().parents[3] / "docs" / "replay.md").read_text(encoding="utf-8")
    assert page.partition("<!-- volatile -->")[2].partition("<!-- end -->")[0].strip() == print_table()
