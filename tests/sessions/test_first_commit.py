"""The first commit of a run says what differs from a run in which nothing has happened."""

from glidepath.outcome import Snapshot
from glidepath.run import PARTS, freeze_field
from glidepath.sessions import MARKED


def test_a_run_in_which_nothing_has_happened_is_an_empty_snapshot():
    # A fresh run marks nothing of these: their defaults must be what a reader assumes.
    empty, kept = Snapshot(run_id=""), {}
    for kind in PARTS.values():
        defaults = zip(kind.__struct_fields__[::-1], kind.__struct_defaults__[::-1], strict=False)
        kept |= {name: freeze_field(value) for name, value in defaults if name in MARKED}
    assert kept == {name: getattr(empty, name) for name in kept}
    assert len(kept) > 25
