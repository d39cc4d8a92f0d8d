"""A streamed reply keeps one or two blocks without a tuple; nobody who reads it can tell."""

import copy
import gc
import pickle

import pytest

from glidepath import _wire
from glidepath.messages import AssistantMessage, ReasoningBlock, StopReason, TextBlock, ToolCall, Usage
from glidepath.values import codec, pack_blocks

TEXT, CALL = TextBlock("I look."), ToolCall("c1", "look", {"at": 1})
BLOCKS = [(), (TEXT,), (CALL,), (TEXT, CALL), (TEXT, CALL, CALL), (ReasoningBlock("", "x", "v"), TEXT)]
each = pytest.mark.parametrize("blocks", BLOCKS, ids=lambda blocks: "-".join(type(one).__name__ for one in blocks))


def streamed(blocks):
    return AssistantMessage(pack_blocks(blocks), StopReason.TOOL_USE, Usage(1, 2), None, "m")


def by_hand(blocks):
    return AssistantMessage(blocks, StopReason.TOOL_USE, Usage(1, 2), None, "m")


@each
def test_it_reads_as_one_made_by_hand(blocks):
    message = streamed(blocks)
    assert message.blocks == blocks
    assert type(message.blocks) is tuple
    assert (message.text, message.tool_calls) == (by_hand(blocks).text, by_hand(blocks).tool_calls)
    assert repr(message) == repr(by_hand(blocks))


@each
def test_it_equals_one_made_by_hand_both_ways_and_no_other(blocks):
    assert streamed(blocks) == by_hand(blocks)
    assert by_hand(blocks) == streamed(blocks)
    assert streamed(blocks) != by_hand((*blocks, TEXT))
    assert streamed(blocks) != _wire.replace(by_hand(blocks), stop_reason=StopReason.END_TURN)
    assert streamed(blocks) != blocks


def test_equal_replies_have_equal_hashes():
    assert hash(streamed((TEXT,))) == hash(by_hand((TEXT,)))


@each
def test_it_is_written_and_read_as_one_made_by_hand(blocks):
    written = codec.encode(streamed(blocks))
    assert written == codec.encode(by_hand(blocks))
    assert codec.decode(written) == streamed(blocks)
    assert _wire.encode(_wire.to_plain_data(streamed(blocks))) == _wire.encode(_wire.to_plain_data(by_hand(blocks)))


@each
def test_it_survives_copies(blocks):
    for again in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        assert again(streamed(blocks)) == by_hand(blocks)
    assert _wire.replace(streamed(blocks), error="e").blocks == blocks


def test_a_reply_with_a_text_and_a_call_is_nothing_the_garbage_collector_looks_at():
    def tracked():
        gc.collect()
        return len(gc.get_objects())

    before = tracked()
    kept = [streamed((TEXT, CALL)) for _ in range(1_000)]
    assert tracked() - before < 100
    assert len(kept) == 1_000
