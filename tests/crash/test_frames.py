"""Frames: whatever happens to the bytes of a segment, no frame is changed, and none is lost in silence."""

from hypothesis import assume, given
from hypothesis import strategies as st

from glidepath.sessions.frames import Frame, Gap, Kind, frame_at, mended, packed, resealed, salt_of, scan

SALT = salt_of("store", 3)
bodies = st.lists(st.binary(max_size=60) | st.just(b"gS" * 40), min_size=1, max_size=8)


def written(contents):
    """A segment with a frame for each body."""
    return b"".join(
        packed(SALT, Kind.COMMIT, 7, 1, number, (3, number), b"h" * 16, 1.5, b"{}", body)
        for number, body in enumerate(contents, 1)
    )


def read(data, found):
    return {
        item.number: data[item.end - item.size + item.extra : item.end]
        for item in found
        if type(item) is Frame and item.sound
    }


@given(bodies)
def test_what_is_written_is_read(contents):
    data = written(contents)
    found = scan(data, SALT)
    assert found.end == len(data)
    assert read(data, found.found) == dict(enumerate(contents, 1))
    assert [item.link for item in found.found] == [(3, number) for number in range(1, len(contents) + 1)]


@given(bodies, st.data())
def test_a_segment_that_lost_its_end_has_what_is_whole_and_no_gap(contents, data):
    whole = written(contents)
    length = data.draw(st.integers(0, len(whole)))
    found = scan(whole[:length], SALT)
    kept = read(whole[:length], found.found)
    assert all(type(item) is Frame for item in found.found)
    assert kept == dict(list(enumerate(contents, 1))[: len(kept)])
    assert found.end <= length < len(whole) or found.end == length == len(whole)


@given(bodies, st.data(), st.integers(1, 255))
def test_a_changed_byte_hurts_one_frame_and_is_noticed_unless_it_is_the_last(contents, data, change):
    whole = bytearray(written(contents))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= change
    hurt = bytes(whole)
    found = scan(hurt, SALT)
    kept = read(hurt, found.found)
    truth = dict(enumerate(contents, 1))
    (lost,) = set(truth) - set(kept)  # one, and no other
    assert all(truth[number] == body for number, body in kept.items())
    if lost == len(contents):
        assert found.end < len(hurt)  # a torn end
    else:
        assert sum(type(item) is Gap or not item.sound for item in found.found) == 1


@given(bodies, st.data())
def test_missing_bytes_in_the_middle_are_a_gap(contents, data):
    whole = written([*contents, b"the last"])
    last = len(whole) - len(written([b"the last"]))
    start = data.draw(st.integers(0, last - 1))
    stop = data.draw(st.integers(start + 1, last))
    hurt = whole[:start] + whole[stop:]
    found = scan(hurt, SALT)
    kept = read(hurt, found.found)
    # A body that ends as a frame begins: cut its end, and the next frame's beginning stands in for it. These are the
    # bytes of a whole body before a last frame without its beginning, and nobody can tell that it was otherwise.
    begins = len(hurt) - (len(whole) - last)
    assume(not any(item.sound and item.at < begins < item.end for item in found.found if type(item) is Frame))
    truth = dict(enumerate([*contents, b"the last"], 1))
    assert all(truth[number] == body for number, body in kept.items())
    assert len(contents) + 1 in kept
    hidden = len(kept) < len(truth) and not any(type(item) is Gap or not item.sound for item in found.found)
    assert not hidden or all(link_is_missed(found.found, number) for number in set(truth) - set(kept))


def link_is_missed(found, number):
    """Whole frames were cut out: the one behind them has a number that does not follow."""
    numbers = [item.number for item in found if type(item) is Frame]
    return number not in numbers


def test_a_frame_of_another_segment_or_store_is_none():
    data = written([b"body"])
    assert frame_at(data, 0, salt_of("store", 4)) is None
    assert frame_at(data, 0, salt_of("other", 3)) is None
    assert frame_at(resealed(data, SALT, salt_of("store", 4)), 0, salt_of("store", 4)) == frame_at(data, 0, SALT)


def test_fences_behind_a_torn_end_do_not_make_it_damage():
    torn = written([b"one", b"two"])[:-4]
    data = torn + packed(SALT, Kind.FENCE, 7, 2)
    found = scan(data, SALT)
    assert [item.number for item in found.found] == [1]
    assert found.end == len(written([b"one"]))
    more = data + written([b"three"])
    assert len(scan(more, SALT).found) == 4  # one, what is broken, the fence, and three: now it is


def test_what_a_dying_fencer_left_is_mended():
    first, rubbish = written([b"one"]), packed(SALT, Kind.FENCE, 7, 2)[:40]
    after = written([b"two"])
    broken = first + rubbish + after
    assert any(type(item) is Gap for item in scan(broken, SALT).found)
    whole = broken + packed(SALT, Kind.MEND, body=mended(len(first), len(first) + len(rubbish)))
    assert not any(type(item) is Gap for item in scan(whole, SALT).found)
