"""The first commit of a run says what differs from a run in which nothing has happened."""

from glidepath.outcome import Snapshot
from glidepath.run.snapshot import as_kept
from glidepath.sessions import capture


def test_a_run_in_which_nothing_has_happened_is_an_empty_snapshot():
    empty, fresh = Snapshot(run_id=""), dict(zip(capture._NAMES, capture._NO_RARE, strict=True))
    kept = {name: as_kept(value) for name, value in fresh.items() if name in capture._SLOW}
    assert kept == {name: getattr(empty, name) for name in kept}
    assert len(kept) > 15
