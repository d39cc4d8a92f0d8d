"""Trimming and cleaning of text."""

import re
import time
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from glidepath.messages import ImageBlock, TextBlock
from glidepath.tools import ToolResult, clean, clean_data, fill_cut, shorten, trim, trim_result

PICTURE = ImageBlock(media_type="image/png", data=b"1234")
ANYTHING = st.text(alphabet=st.characters(codec=None), max_size=60)


@given(st.text(max_size=400), st.integers(-5, 500))
def test_a_trimmed_text_is_never_longer_than_its_limit(text, limit):
    assert len(trim(text, limit)) <= max(limit, 0)


@given(st.text(max_size=400), st.integers(0, 500))
def test_a_text_within_its_limit_is_left_alone(text, limit):
    assert (trim(text, limit) is text) == (len(text) <= limit)


def test_head_and_tail_stand_three_to_one_around_the_sizes():
    trimmed = trim("h" * 5000 + "t" * 5000, 1000)
    head, original, kept, tail = re.fullmatch(
        r"(h+)\n\[\.+ cut: (\d+) characters, (\d+) kept \.+\]\n(t+)", trimmed
    ).groups()
    assert (int(original), int(kept)) == (10_000, len(head) + len(tail))
    assert 2.9 < len(head) / len(tail) < 3.1
    assert 990 < len(trimmed) <= 1000


def test_a_limit_without_room_for_the_marker_keeps_the_head():
    assert trim("abcdef" * 100, 4) == "abcd"


@given(st.text(max_size=400), st.integers(0, 300), st.integers(0, 300))
def test_a_cut_text_that_is_filled_is_cut_again_as_the_whole_one_would_be(text, once, less):
    cut = trim(text, once)
    smaller = min(once, less)
    if "characters," in cut:  # else the head alone was kept, and nothing says how much there was
        assert len(fill_cut(cut)) == len(text)
        assert trim(fill_cut(cut), smaller) == trim(text, smaller)


def test_words_that_only_look_like_a_marker_are_not_filled():
    for text in (
        "\n[... cut: 900000000 characters, 0 kept ...]\n",
        "a\n[... cut: 900000000 characters, 1 kept ...]\n",
        "a",
    ):
        assert fill_cut(text) is text


def test_trimming_fifty_megabytes_costs_no_copy_of_them():
    text = "x" * 50_000_000
    tracemalloc.start()
    started = time.process_time()
    trim(text, 32_000)
    used = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    assert used < 0.05


BLOCKS = st.lists(st.text(max_size=80).map(TextBlock) | st.just(PICTURE), max_size=8).map(tuple)


@given(BLOCKS, st.integers(0, 300))
def test_the_text_of_all_blocks_together_stays_within_the_limit(blocks, limit):
    trimmed = trim_result(ToolResult(blocks), limit).content
    assert sum(len(block.text) for block in trimmed if isinstance(block, TextBlock)) <= limit
    assert [block for block in trimmed if block is PICTURE] == [block for block in blocks if block is PICTURE]


@given(BLOCKS, st.integers(0, 300))
def test_blocks_are_cut_exactly_as_their_joined_text_would_be(blocks, limit):
    joined = "".join(block.text for block in blocks if isinstance(block, TextBlock))
    trimmed = trim_result(ToolResult(blocks), limit).content
    assert "".join(block.text for block in trimmed if isinstance(block, TextBlock)) == trim(joined, limit)


def test_a_trimmed_result_keeps_everything_but_its_text():
    result = ToolResult("x" * 500, is_error=True, details={"a": 1}, kind="Timeout")
    trimmed = trim_result(result, 100)
    assert 90 < len(trimmed.content) <= 100
    assert (trimmed.is_error, trimmed.details, trimmed.kind) == (True, {"a": 1}, "Timeout")
    assert trim_result(result, 500) is result


@given(ANYTHING)
def test_a_cleaned_text_can_always_be_encoded(text):
    clean(text).encode()


@given(st.text())
def test_a_good_text_is_not_touched(text):
    assert clean(text) is text


def test_two_halves_that_belong_together_become_one_character():
    assert clean("a\ud83d\ude00\ud800b") == "a😀\ufffdb"


def test_a_lone_half_is_found_far_into_a_long_text():
    assert "\ud800" not in clean("é" * 200_000 + "\ud800")


def test_data_is_cleaned_all_the_way_down():
    assert clean_data({"\ud800": ["\ud800", ("\ud800", 1)]}) == {"\ufffd": ["\ufffd", ["\ufffd", 1]]}


@pytest.mark.parametrize(("text", "short"), [("abc", "abc"), ("abcd", "ab…"), ("\ud800", "\ufffd")])
def test_a_shortened_text_shows_that_it_was_cut(text, short):
    assert shorten(text, 3) == short
