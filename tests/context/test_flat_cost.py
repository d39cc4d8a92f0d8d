"""G19: shaping reads as much as the view holds, however long the transcript is."""

import pytest

from glidepath.context import Compact, NoShaping, SlidingWindow
from glidepath.kernel.landing.landing_view import landing_view

from .grammar import Counted, asks, gives, say, sizes_of, user

shapers = pytest.mark.parametrize("shaper", [SlidingWindow(), Compact()], ids=lambda s: s.name)


def turns(count):
    """A task and `count` turns of a call, its result and a remark."""
    yield user("the task")
    for i in range(count):
        yield asks(f"c{i}")
        yield gives(f"c{i}", "a page of text")
        yield say("going on")


def test_g19_none_reads_nothing_of_a_list():
    messages = list(turns(10))
    assert NoShaping().shape(messages, [0] * len(messages), 0, [0]).messages is messages


@shapers
@pytest.mark.parametrize("count", [1_000, 33_333])
def test_g19_the_reads_follow_the_view_and_not_the_transcript(shaper, count):
    messages = Counted(list(turns(count)))
    sizes = Counted(sizes_of(messages.items))
    view = shaper.shape(messages, sizes, 2_000, [0])
    assert 50 < len(view.messages) < 200
    assert messages.reads <= 3 * len(view.messages) + 20
    assert sizes.reads <= 3 * len(view.messages) + 20


@shapers
def test_g19_a_long_run_of_user_messages_is_not_searched_for_an_open_batch(shaper):
    messages = Counted([user("and then")] * 100_000)
    sizes = Counted([11] * 100_000)
    shaper.shape(messages, sizes, 500, [0])
    assert messages.reads < 600


def test_g19_the_landing_view_reads_no_more():
    messages = Counted([*turns(33_333), asks("z"), gives("z", "x" * 9_000)])
    sizes = Counted(sizes_of(messages.items))
    assert landing_view(messages, sizes, 500, [0]).tokens <= 500
    assert messages.reads < 100


@shapers
def test_g19_reads_per_appended_message_are_bounded_while_a_transcript_grows(shaper):
    """The caller shapes the transcript anew for every message that is appended."""
    messages, sizes = Counted([]), Counted([])
    peaks = []
    for message in turns(3_333):
        messages.items.append(message)
        sizes.items.append(sizes_of([message])[0])
        messages.reads = 0
        shaper.shape(messages, sizes, 300, [0])
        peaks.append(messages.reads)
    assert len(peaks) == 10_000
    assert max(peaks[5_000:]) <= max(peaks[50:100])


@shapers
def test_g19_a_view_that_is_carried_on_costs_a_few_reads_per_message(shaper):
    """The caller appends to its view and shapes that to 75 % whenever it outgrows the window."""
    view, sizes, window, reads = [], [], 4_000, 0
    for message in turns(3_333):
        view.append(message)
        sizes.append(sizes_of([message])[0])
        if sum(sizes) > window:
            counted = Counted(view)
            shaped = shaper.shape(counted, sizes, window * 3 // 4, [0])
            view, sizes, reads = shaped.messages, shaped.sizes, reads + counted.reads
    assert 0 < reads < 10 * 10_000
