"""How much is recorded, and for how long it is kept."""

from __future__ import annotations

from glidepath._wire import Value

DAY = 86_400.0


class RecordingTerms(Value, frozen=True, kw_only=True):
    """How much is recorded of one session at most, in bytes as they are stored, and for how many seconds it is kept."""

    largest: int = 256 << 20
    oldest: float = 30 * DAY
