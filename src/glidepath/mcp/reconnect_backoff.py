"""When a server that failed is tried again: backoff between the tries, and a breaker after several in a row."""

from __future__ import annotations

FIRST = 0.25  # seconds after the second failure; doubled with each
LONGEST = 30.0
OPENS_AT = 3  # failures in a row


class ReconnectBackoff:
    """The failures of one server in a row, and how long to leave it alone.

    One failure costs nothing: a server that crashed is started again at once. After three in a row the breaker is open:
    calls get their error without a try, except for one every half minute.
    """

    __slots__ = ("_failures", "_until", "why")

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0
        self.why = ""

    @property
    def open(self) -> bool:
        """True while nobody waits for the next try."""
        return self._failures >= OPENS_AT

    def wait(self, now: float) -> float:
        """Seconds until it may be tried again."""
        return max(0.0, self._until - now)

    def record_failure(self, why: str, now: float, *, fresh: bool = False) -> None:
        """It failed, once more or for the first time (`fresh`: after a good while)."""
        self._failures = 1 if fresh else self._failures + 1
        self.why = why
        if self._failures >= OPENS_AT:
            self._until = now + LONGEST
        elif self._failures > 1:
            self._until = now + FIRST * 2 ** (self._failures - 2)

    def record_success(self) -> None:
        """It answered."""
        if self._failures:
            self._failures, self._until, self.why = 0, 0.0, ""
