"""What is known about the health of a model or tool: its breaker, and how often and when calls may be tried again.

The state lives with the model or tool object itself: all runs that use the object share it, and it goes when the object
goes. While all is well a call costs one addition and one test of `alert`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.values import ModelError

MODEL_FAILURES = 5  # calls in a row that failed after all their retries
TOOL_FAILURES = 10  # more than the error streak of one run: a breaker is about the tool, not about one run
PROBE_EVERY = 30.0  # seconds between two calls that find out whether it works again

RETRY_SHARE = 0.2  # retries for each first try
RETRY_FLOOR = 10  # retries a window that are always allowed, so that a lone run can use its own
WINDOW = 60.0  # seconds
MARK_EVERY = 16  # a power of two: first tries between two looks at the clock
_MARK_APART = 1.0  # seconds between two marks: their number does not grow with the load

_KEY = "_glidepath_health"


class BreakerState(str, Enum):
    """Closed: calls go through. Open: they are refused. Half open: one call tests whether it works again."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Admission(Enum):
    """A breaker's decision about a call."""

    FREE = "free"
    PROBE = "probe"
    REFUSED = "refused"


class Breaker:
    """Opens after `limit` failures in a row; then lets one call through every 30 seconds, until one succeeds.

    Thread-safe. Times are seconds of the event loop's clock; another loop's, which may differ, never makes the
    wait longer. A method that returns True has changed `state`.
    """

    __slots__ = ("_lock", "_probe_at", "alert", "failures", "limit", "state")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.state = BreakerState.CLOSED
        self.failures = 0
        self.alert = False
        """Something is or was wrong: it must be asked before a call, and told afterwards."""
        self._probe_at = 0.0
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        """A copy, even in another process, starts fresh."""
        return type(self), (self.limit,)

    def admit(self, now: float) -> Admission:
        """Whether a call may be made now."""
        with self._lock:
            if self.state is BreakerState.CLOSED:
                return Admission.FREE
            # Another loop may have set it by a clock that is far ahead: nobody waits longer than one interval.
            self._probe_at = min(self._probe_at, now + PROBE_EVERY)
            if self._probe_at > now:
                return Admission.REFUSED
            # Moved before the call is made: many runs ask at once, and only one of them may try.
            self._probe_at = now + PROBE_EVERY
            self.state = BreakerState.HALF_OPEN
            return Admission.PROBE

    def wait(self, now: float) -> float:
        """Seconds until a call may test whether it works again; 0 when one may now."""
        if self.state is BreakerState.CLOSED:
            return 0.0
        return min(max(0.0, self._probe_at - now), PROBE_EVERY)

    def record_failure(self, now: float, *, probe: bool = False) -> bool:
        """A call failed."""
        with self._lock:
            self.failures += 1
            self.alert = True
            if self.state is BreakerState.CLOSED and self.failures >= self.limit:
                self._probe_at = now + PROBE_EVERY
            # Calls that began before it opened fail late, and say nothing new.
            elif not probe or self.state is not BreakerState.HALF_OPEN:
                return False
            self.state = BreakerState.OPEN
            return True

    def record_success(self) -> bool:
        """A call was answered."""
        with self._lock:
            changed = self.state is not BreakerState.CLOSED
            self.state = BreakerState.CLOSED
            self.failures = 0
            self.alert = False
            return changed

    def record_no_answer(self, now: float) -> bool:
        """The test call was stopped before it could answer: the next one may try."""
        with self._lock:
            if self.state is not BreakerState.HALF_OPEN:
                return False
            self._probe_at = now
            self.state = BreakerState.OPEN
            return True


class Health(Breaker):
    """The breaker of a model, and its retry budget: retries are a fifth of the first tries of the last minute at most.

    Ten retries a minute are always allowed. First tries never wait for the budget: `calls` counts them, and `mark` is
    called now and then to know when they were made.
    """

    __slots__ = ("_marks", "_retries", "calls", "sent")

    def __init__(self, limit: int = MODEL_FAILURES) -> None:
        super().__init__(limit)
        self.calls = 0
        self.sent = 0
        """Tokens of the longest prompt the model was sent: what it can have in a cache."""
        self._marks: deque[tuple[float, int]] = deque()  # when, and how many first tries there were before
        self._retries: deque[float] = deque()

    def mark(self, now: float) -> None:
        """Note how many first tries there have been until now; call it at a first try, after counting it."""
        with self._lock:
            self._forget(now)
            if not self._marks or now - self._marks[-1][0] >= _MARK_APART:
                self._marks.append((now, self.calls - 1))

    def may_retry(self, now: float) -> bool:
        """Take one retry out of the budget; False when none is left."""
        with self._lock:
            self._forget(now)
            # A share of the load and not a number: when everything fails, retries must not multiply the load.
            offered = self.calls - self._marks[0][1] if self._marks else 0
            if len(self._retries) >= max(RETRY_FLOOR, int(RETRY_SHARE * offered)):
                return False
            self._retries.append(now)
            return True

    def _forget(self, now: float) -> None:
        """Drop what is too old, or from a clock that ran ahead of this one."""
        while self._marks and not 0 <= now - self._marks[0][0] < WINDOW:
            self._marks.popleft()
        while self._retries and not 0 <= now - self._retries[0] < WINDOW:
            self._retries.popleft()


def model_breaker(model: object) -> Health:
    """The health of a model: shared by all users of the same object.

    It is kept in the object's `__dict__`; an object without one (`__slots__`) gets a new one each time, so that its
    agents do not share it.
    """
    try:
        home = vars(model)
    except TypeError:
        return Health()
    return home.setdefault(_KEY, Health())  # type: ignore[no-any-return]


def tool_breaker(tool: object) -> Breaker:
    """The breaker of a tool: shared by all users of the same object. `tool.breaker` is None before."""
    return vars(tool).setdefault("breaker", Breaker(TOOL_FAILURES))  # type: ignore[no-any-return]


# --- how long to wait before another attempt --------------------------------------------------------------------

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
LONGEST_RETRY_AFTER = 300.0  # seconds that a run without a deadline waits for a provider that asks it to
FOREVER = 1e300  # seconds: what no clock can count


def is_too_long_a_wait(error: ModelError) -> bool:
    """Whether a provider asks to come back later than a run without a deadline waits."""
    asked: Any = getattr(error, "retry_after", None)
    return isinstance(asked, int | float) and asked > LONGEST_RETRY_AFTER


def retry_delay(retries: int, error: ModelError, chance: Callable[[], float]) -> float:
    """Exponential with full jitter on the upper half; a provider's Retry-After is honored."""
    grown = min(LONGEST_DELAY, FIRST_DELAY * 2.0**retries)
    asked: Any = getattr(error, "retry_after", None)
    if isinstance(asked, int | float) and asked > 0:
        asked = float(min(asked, FOREVER))
        return asked + chance() * 0.1 * min(asked, 1.0)  # type: ignore[no-any-return]
    return grown / 2 + chance() * grown / 2


def random_fraction() -> float:
    """A number from 0 to 1."""
    try:
        from random import random  # only what failed waits
    except (ImportError, OSError):  # no file can be opened any more
        return 0.5
    return random()  # noqa: S311 - no secret


def is_mistake(error: BaseException) -> bool:
    """Whether a model's own code is wrong: another try would fail as this one did.

    Only of exactly these two classes: what cannot be decoded is a ValueError, too, and a fault of the transport.
    """
    return isinstance(error, TypeError | AttributeError | NameError) or type(error) in (ValueError, KeyError)
