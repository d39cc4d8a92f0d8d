"""What the guardrails are set to."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import Settings
from glidepath.errors import ConfigurationError

__all__ = ["GuardrailsConfig"]

if TYPE_CHECKING:
    Fraction = Decimal | str | float
else:  # a decoder allows only one type that is written as a string
    Fraction = Any


def _shown(value: Any) -> str:
    """The value for an error message: never long, never an error itself."""
    try:
        return repr(value)[:80]
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"


MOST = 10**15


def _count(field: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ConfigurationError(
            f"GuardrailsConfig.{field} must be a whole number from 0 (off) to 10**15, not {_shown(value)}"
        )


class GuardrailsConfig(Settings, frozen=True, kw_only=True):
    """The guardrails of an agent. 0 switches a guard off; None leaves the optional one off."""

    max_tokens_recoveries: int = 2
    max_repeated_tool_steps: int = 3
    max_error_streak: int = 5
    read_only_loop_threshold: int | None = None
    max_premature_end_recoveries: int = 2
    max_empty_recoveries: int = 1
    reserve_tokens: int = 512
    reserve_cost_fraction: Fraction = "0.1"

    def __post_init__(self) -> None:
        for field in (
            "max_tokens_recoveries",
            "max_repeated_tool_steps",
            "max_error_streak",
            "max_premature_end_recoveries",
            "max_empty_recoveries",
            "reserve_tokens",
        ):
            _count(field, getattr(self, field))
        if self.read_only_loop_threshold is not None:
            _count("read_only_loop_threshold", self.read_only_loop_threshold)
        fraction = self.reserve_cost_fraction
        try:
            share = self.cost_reserve if type(fraction) in (str, int, float, Decimal) else Decimal("NaN")
        except (ArithmeticError, ValueError):
            share = Decimal("NaN")
        if not share.is_finite() or not 0 <= share < 1:
            wanted = "a number from 0 to below 1 such as '0.1'"
            raise ConfigurationError(f"GuardrailsConfig.reserve_cost_fraction must be {wanted}, not {_shown(fraction)}")

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for a keyword that is not a guardrail, with the one that was meant."""
        from difflib import get_close_matches  # only needed when something is wrong

        close = get_close_matches(name, cls.__struct_fields__, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the guardrails are {', '.join(cls.__struct_fields__)}"
        return ConfigurationError(f"there is no guardrail {name!r}; {hint}")

    @property
    def cost_reserve(self) -> Decimal:
        """`reserve_cost_fraction` as an exact number."""
        return Decimal(str(self.reserve_cost_fraction))
