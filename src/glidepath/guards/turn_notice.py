"""The warning before the turn limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glidepath.values import ConfigurationError, Texts

TURN_BUDGET = "turn budget"
DEFAULT_NOTICE = Texts().fill("wind_down", limit=TURN_BUDGET)
LANDING_NOTICE = Texts().fill("landing")

LONGEST_NOTICE = 20_000  # characters: a notice must fit where little is left


class GracefulTurnLimit:
    """Decides when a run with a turn limit is told to wrap up: `grace` turns before the limit.

    Without a `grace` it is max(1, min(5, limit // 4)); a given or provided one is brought into 1..limit-1; 0 sends no
    notice. `grace_provider` is asked at every poll; when it fails, the static grace holds and `grace_error` says why.
    With a limit of 1 there is no turn to warn in: the run is landed.
    """

    def __init__(
        self,
        max_iterations: int,
        grace: int | None = None,
        message_provider: Callable[[], str] | None = None,
        grace_provider: Callable[[], int] | None = None,
    ) -> None:
        if isinstance(max_iterations, bool) or not isinstance(max_iterations, int) or max_iterations < 1:
            raise ConfigurationError(f"max_iterations must be a whole number of at least 1, not {max_iterations!r}")
        if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int) or grace < 0):
            raise ConfigurationError(f"grace must be a whole number of at least 0, not {grace!r}")
        for field, provider in (("message_provider", message_provider), ("grace_provider", grace_provider)):
            if provider is not None and not callable(provider):
                raise ConfigurationError(f"{field} must be callable, not {provider!r}")
        self.max_iterations = max_iterations
        self.enabled = grace != 0
        self._grace = self._clamp_grace(max(1, min(5, max_iterations // 4)) if grace is None else grace)
        self._message_provider = message_provider
        self._grace_provider = grace_provider
        self._soft = max_iterations - self._grace if max_iterations > 1 and self.enabled else max_iterations
        self.grace_error: BaseException | None = None

    def _clamp_grace(self, grace: int) -> int:
        return max(1, min(grace, self.max_iterations - 1))

    def soft_limit(self) -> int:
        """The number of completed turns at which the notice is due, as of now."""
        if self._grace_provider is None or not self.enabled:
            return self._soft
        self.grace_error = None
        try:
            grace: Any = self._grace_provider()
            if isinstance(grace, bool) or not isinstance(grace, int):
                raise TypeError(f"grace_provider returned {grace!r:.80}, not a whole number")
        except BaseException as error:  # the application's own estimate failed: ours is good enough
            if isinstance(error, KeyboardInterrupt):
                raise
            self.grace_error = error
            return self._soft
        return self.max_iterations - self._clamp_grace(grace) if self.max_iterations > 1 else self.max_iterations

    def earliest(self) -> int:
        """No notice is due before this number of turns."""
        return self._soft if self._grace_provider is None else 0

    def notice(self, default: str = DEFAULT_NOTICE) -> tuple[str, BaseException | None]:
        """The words of the notice: the provider's, or `default` when there is none or it fails, and why it failed."""
        if self._message_provider is None:
            return default, None
        try:
            text = self._message_provider()
            if not isinstance(text, str) or not text.strip() or "\0" in text:
                raise TypeError(f"message_provider returned {text!r:.80}, not a text")
            text.encode()  # half of a surrogate pair can be neither stored nor sent
            if len(text) > LONGEST_NOTICE:
                raise ValueError(f"message_provider returned {len(text)} characters, which is too long for a notice")
        except BaseException as error:  # SystemExit, too: it must not end the process
            return default, error
        return str.__str__(text), None
