"""What a run may use, and a budget that many runs can share."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from glidepath._wire import Settings, asdict, replace
from glidepath.errors import ConfigurationError, shown
from glidepath.guards import GuardrailsConfig
from glidepath.ledger import Caps, Meter, pico
from glidepath.run import Place, Watch
from glidepath.spi import Remaining

__all__ = ["Budget", "Limits", "checked_int", "checked_seconds"]

MOST = 10**15  # of anything that is counted: figures beyond it are calculated with nowhere
FOREVER = 1e300  # seconds: what no clock can count
OTHER_LIMIT_NAMES = {  # what a limit is called on the command line, in older files, or elsewhere
    "cost_limit": "max_cost",
    "deadline": "timeout",
    "max_budget": "max_cost",
    "max_budget_usd": "max_cost",
    "max_steps": "max_iterations",
    "max_turns": "max_iterations",
    "token_budget": "max_tokens",
}


def checked_int(field: str, value: Any, *, least: int = 1) -> None:
    """Raise `ConfigurationError` unless `value` is None or a whole number of at least `least`."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise ConfigurationError(
            f"{field} must be a whole number of at least {least}, or None for no limit; got {shown(value, 100)}"
        )
    if value is not None and value > MOST:
        raise ConfigurationError(
            f"{field} must be at most 10**15, or None for no limit; got a number of {value.bit_length()} bits"
        )


def checked_seconds(field: str, value: Any) -> None:
    """Raise `ConfigurationError` unless `value` is None or a positive, finite number of seconds."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and (not number or not 0 < value < FOREVER):  # NaN is not, either
        raise ConfigurationError(
            f"{field} must be a number of seconds greater than 0, or None for no limit; got {shown(value, 100)}"
        )


class Limits(Settings, frozen=True, kw_only=True):
    """What one run may use, its descendants included. Absent means unlimited.

    `max_tokens` is always the total of input and output; `max_cost` is in dollars. `grace_iterations` is how many
    turns before the turn limit the model is told to wrap up: None chooses, 0 sends no notice.
    """

    max_iterations: int | None = None
    max_tokens: int | None = None
    max_cost: Decimal | str | int | None = None
    timeout: float | None = None
    max_tool_calls: int | None = None
    max_depth: int = 3
    max_descendants: int = 32
    grace_iterations: int | None = None
    landing_tokens: int = 1024
    landing_seconds: float = 20

    def __post_init__(self) -> None:
        for field in ("max_iterations", "max_tokens", "max_tool_calls"):
            checked_int(f"Limits.{field}", getattr(self, field))
        checked_seconds("Limits.timeout", self.timeout)
        for field in ("max_depth", "max_descendants", "landing_tokens", "landing_seconds"):
            if getattr(self, field) is None:
                raise ConfigurationError(f"Limits.{field} must be a number, not None")
        checked_int("Limits.max_depth", self.max_depth)
        checked_int("Limits.max_descendants", self.max_descendants)
        checked_int("Limits.landing_tokens", self.landing_tokens)
        checked_seconds("Limits.landing_seconds", self.landing_seconds)
        checked_int("Limits.grace_iterations", self.grace_iterations, least=0)
        if isinstance(self.max_cost, float):
            raise ConfigurationError(
                f"Limits.max_cost must be a str, Decimal or int such as '0.50', not the float {self.max_cost!r}"
            )
        if self.max_cost is not None and pico(self.max_cost, field="Limits.max_cost") <= 0:
            raise ConfigurationError(
                f"Limits.max_cost must be greater than 0 dollars, or None for no limit; got {self.max_cost!r}"
            )

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for a keyword that is not a limit, with the limit that was meant."""
        from difflib import get_close_matches  # only needed when something is wrong

        fields = cls.__struct_fields__
        meant = OTHER_LIMIT_NAMES.get(name) or next(iter(get_close_matches(name, fields, n=1)), None)
        hint = f"did you mean {meant!r}?" if meant else f"the limits are {', '.join(fields)}"
        return ConfigurationError(f"there is no limit {name!r}; {hint}")

    @property
    def bounded(self) -> bool:
        """True when at least one limit ends a run."""
        limits = (self.max_iterations, self.max_tokens, self.max_cost, self.timeout, self.max_tool_calls)
        return any(limit is not None for limit in limits)

    @property
    def landing_time(self) -> float:
        """Seconds kept for the landing: at most a quarter of the timeout."""
        return self.landing_seconds if self.timeout is None else min(self.landing_seconds, self.timeout / 4)

    def caps(self) -> Caps:
        """The same, as a node of the ledger has it."""
        return Caps(
            tokens=self.max_tokens,
            money=None if self.max_cost is None else pico(self.max_cost, field="Limits.max_cost"),
            turns=self.max_iterations,
            tool_calls=self.max_tool_calls,
            descendants=self.max_descendants,
            depth=self.max_depth,
        )


class Budget:
    """A budget that many runs share: `agent.run(prompt, parent=budget)`.

    Its limits bound all runs under it together, from any thread. Its `timeout` counts from its first run.
    """

    def __init__(self, limits: Limits, *, reserve_tokens: int = 512, reserve_cost_fraction: str = "0.1") -> None:
        if not isinstance(limits, Limits):
            raise ConfigurationError(f"Budget takes a Limits, not {type(limits).__name__}")
        try:
            reserves = GuardrailsConfig(reserve_tokens=reserve_tokens, reserve_cost_fraction=reserve_cost_fraction)
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace("GuardrailsConfig.", "Budget.")) from None
        self.limits = limits
        self.meter = Meter(limits.caps(), depth=-1)
        self.meter.near_tokens = reserve_tokens
        if self.meter.caps.money is not None:
            self.meter.near_money = int(self.meter.caps.money * reserves.cost_reserve)
        self.meter.set_wires()
        self._started: float | None = None
        self.place: Place | None = None

    @classmethod
    def inside(cls, place: Place, limits: Limits) -> Budget:
        """A part of what a run may use, for runs that are started together in one of its tools or hooks."""
        budget = cls(limits)
        budget.place = place = place.copy(place.mailbox)
        near = budget.meter
        caps = replace(near.caps, descendants=None, depth=None)  # the run around it bounds them
        budget.meter = Meter(caps, place.run.meter, depth=-1)
        budget.meter.near_tokens, budget.meter.near_money = near.near_tokens, near.near_money
        budget.meter.set_wires()
        return budget

    def __repr__(self) -> str:
        every = asdict(self.limits).items()
        said = [f"{name}={value!r:.30}" for name, value in every if value != getattr(Limits(), name)]
        return f"<Budget {', '.join(said) or 'without a limit'}: {self.meter.tokens} tokens used>"

    def deadline(self, now: float) -> float:
        """When its time is up, on the clock of the loop that asks; counted from the first run."""
        if self._started is None:
            self._started = now
        own = math.inf if self.limits.timeout is None else self._started + self.limits.timeout
        if self.place is None:
            return own
        watch: Watch = self.place.run.watch
        return min(own, watch.window_at, watch.deadline_at)

    def remaining(self) -> Remaining:
        """What is left of each limit."""
        return self.meter.remaining()

    def near_budget(self) -> bool:
        """True when tokens or money are nearly used up."""
        return self.meter.near_budget()
