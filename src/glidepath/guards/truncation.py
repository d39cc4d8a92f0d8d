"""Replies that were cut off: ask for them again with a larger cap, or ask the model to continue."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath._wire import Value
from glidepath.values import ConfigurationError

_LEAST_OVERLAP = 16
_MOST_OVERLAP = 2000


def _check_positive(field: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{field} must be a whole number of at least {least}, not {value!r}")


class TokenScaling(Value, frozen=True):
    """How the output cap grows: `TokenScaling.Double()`, `.Linear(step)` or `.Fixed(caps)`."""

    kind: str
    step: int = 0
    caps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("double", "linear", "fixed"):
            raise ConfigurationError(
                f"use TokenScaling.Double(), .Linear(step) or .Fixed(caps), not TokenScaling({self.kind!r:.80})"
            )

    @classmethod
    def Double(cls) -> TokenScaling:  # noqa: N802 - a public name fixed by the specification
        """Twice the cap before."""
        return cls("double")

    @classmethod
    def Linear(cls, step: int) -> TokenScaling:  # noqa: N802
        """`step` more than the cap before."""
        _check_positive("TokenScaling.Linear(step)", step, least=0)
        return cls("linear", step=step)

    @classmethod
    def Fixed(cls, caps: Sequence[int]) -> TokenScaling:  # noqa: N802
        """These caps, one after the other."""
        if isinstance(caps, str) or not isinstance(caps, Sequence) or not caps:
            raise ConfigurationError(
                f"TokenScaling.Fixed(caps) must be a non-empty list of whole numbers, not {caps!r}"
            )
        for cap in caps:
            _check_positive("TokenScaling.Fixed(caps)", cap)
        return cls("fixed", caps=tuple(caps))

    def after(self, cap: int, attempt: int) -> int | None:
        """The cap that follows `cap` at this attempt, or None at the end of the ladder."""
        if self.kind == "double":
            return cap * 2
        if self.kind == "linear":
            return cap + self.step
        return self.caps[attempt] if attempt < len(self.caps) else None


class MaxTokensRecovery(Value, frozen=True, kw_only=True):
    """Discard a truncated reply and ask for it again with a larger output cap, at most `max_attempts` times a turn.

    What was discarded is charged. It needs a cap to start from: set `max_output_tokens`.
    """

    max_attempts: int
    scaling: TokenScaling
    ceiling: int | None = None

    def __post_init__(self) -> None:
        _check_positive("MaxTokensRecovery.max_attempts", self.max_attempts)
        if not isinstance(self.scaling, TokenScaling):
            raise ConfigurationError(f"MaxTokensRecovery.scaling must be a TokenScaling, not {self.scaling!r}")
        if self.ceiling is not None:
            _check_positive("MaxTokensRecovery.ceiling", self.ceiling)

    @classmethod
    def doubling(cls) -> MaxTokensRecovery:
        """Three attempts, doubling, no ceiling."""
        return cls(max_attempts=3, scaling=TokenScaling.Double())

    def next_cap(self, prev_cap: int, attempt: int) -> int | None:
        """The cap of attempt `attempt` (from 0), or None when that would be no progress."""
        cap = self.scaling.after(prev_cap, attempt)
        if cap is not None and self.ceiling is not None:
            cap = min(cap, self.ceiling)
        return cap if cap is not None and cap > prev_cap else None


def join_parts(parts: Sequence[str]) -> str:
    """The parts of a continued answer as one text; what a part repeats of the end before it is left out."""
    text = ""
    for part in parts:
        text += part[_count_overlap(text, part) :] if text else part
    return text


def _count_overlap(before: str, after: str) -> int:
    """How many characters at the beginning of `after` repeat the end of `before`; 0 when too few to be sure."""
    tail = before[-_MOST_OVERLAP:]
    if len(after) < _LEAST_OVERLAP or len(tail) < _LEAST_OVERLAP:
        return 0
    start = tail.find(after[:_LEAST_OVERLAP])
    while start >= 0:
        length = len(tail) - start
        if after.startswith(tail[start:]):
            return length
        start = tail.find(after[:_LEAST_OVERLAP], start + 1)
    return 0
