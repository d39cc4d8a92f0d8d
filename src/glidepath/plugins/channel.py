"""Sends messages to a run from outside, from any thread."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Any

from glidepath._wire import WireError
from glidepath.spi import Plugin, PollContext, as_message
from glidepath.values import ConfigurationError, Message, codec


class ChannelSteering(Plugin):
    """A queue that any code can write to and runs read from: each message reaches exactly one run, once.

    `send` puts a message in, from any thread. A message without `run_id` goes to the next run that asks; with it, to
    that run only. Runs ask before their first call and after every turn. With `keeps_going` a message that comes while
    the model writes its last answer keeps the run going; without, it stays here. What a run took and could not
    deliver is in `RunResult.undelivered`; what nobody took, `take_back()` returns.
    """

    def __init__(self, *, keeps_going: bool = True, name: str = "channel_steering") -> None:
        self.name = name
        self._keeps_going = keeps_going
        self._waiting: deque[tuple[str | None, Message]] = deque()
        self._lock = Lock()

    def send(self, message: str | Message, *, run_id: str | None = None) -> None:
        """Put a message in; raises `ConfigurationError` if it cannot be sent."""
        try:
            ready = as_message(message)
            codec.decode(codec.encode(ready))
        except (TypeError, ValueError, WireError, RecursionError) as error:
            raise ConfigurationError(f"send() takes a text or a user message: {error}") from None
        if not ready.text.strip() or "\0" in ready.text:
            raise ConfigurationError("send() takes a non-empty text without NUL characters")
        if run_id is not None and not isinstance(run_id, str):
            raise ConfigurationError(f"send(run_id=...) takes the id of a run, not {run_id!r:.100}")
        with self._lock:
            self._waiting.append((run_id, ready))

    def __len__(self) -> int:
        """How many messages are still in the queue."""
        return len(self._waiting)

    def take_back(self) -> tuple[Message, ...]:
        """Everything that no run has taken yet, in order; the channel is empty afterwards."""
        with self._lock:
            left = tuple(message for _, message in self._waiting)
            self._waiting.clear()
        return left

    def steering(self, context: PollContext) -> Any:
        """Messages for this run, or for any."""
        return self._take(context.run_id) if self._waiting else None

    def follow_up(self, context: PollContext) -> Any:
        """The same, when the run would otherwise be done."""
        return self._take(context.run_id) if self._waiting and self._keeps_going else None

    def _take(self, run_id: str) -> list[Message]:
        with self._lock:
            mine = [message for wanted, message in self._waiting if wanted is None or wanted == run_id]
            rest = [item for item in self._waiting if item[0] is not None and item[0] != run_id]
            self._waiting = deque(rest)
        return mine
