"""What the guardrails are set to."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath.values import (
    HIGHER,
    LOWER,
    LOWER_NOT_ZERO,
    ConfigurationError,
    DeclaredSettings,
    check_fields,
    close_to,
    short_repr,
)
from glidepath.values.setting import setting

if TYPE_CHECKING:
    Fraction = Decimal | str | float
else:  # a decoder allows only one type that is written as a string
    Fraction = Any


class GuardrailsConfig(DeclaredSettings, frozen=True, kw_only=True):
    """The guardrails of an agent. 0 switches a guard off; None leaves the optional one off."""

    max_tokens_recoveries: int = setting(
        "count",
        "continuations of a truncated answer; 0 is off",
        default=2,
        seed="guardrails.max_tokens_recoveries",
        found=LOWER,
    )
    max_repeated_tool_steps: int = setting(
        "count",
        "repeats of the same calls until the tools are withdrawn; 0 is off",
        default=3,
        seed="guardrails.max_repeated_tool_steps",
        found=LOWER_NOT_ZERO,
    )
    max_error_streak: int = setting(
        "count", "equal errors in a row until the tool is withdrawn; 0 is off", default=5, found=LOWER_NOT_ZERO
    )
    read_only_loop_threshold: int | None = setting(
        "count?", "steps of read-only tools until a nudge; 8 is a good start", default=None, found=LOWER
    )
    max_premature_end_recoveries: int = setting(
        "count", "re-prompts after an empty reply to a tool error; 0 is off", default=2, found=LOWER
    )
    max_empty_recoveries: int = setting("count", "re-prompts after an empty answer; 0 is off", default=1, found=LOWER)
    reserve_tokens: int = setting(
        "count",
        "tokens left above the reserve at which the model is told to wrap up",
        default=512,
        seed="guardrails.reserve_tokens",
        found=HIGHER,
    )
    reserve_cost_fraction: "Fraction" = setting(
        "fraction",
        "share of the money at which the model is told to wrap up",
        default="0.1",
        seed="guardrails.reserve_cost_fraction",
        found=HIGHER,
    )

    def __post_init__(self) -> None:
        check_fields(self, "GuardrailsConfig.")
        fraction = self.reserve_cost_fraction
        try:
            share = self.cost_reserve if type(fraction) in (str, int, float, Decimal) else Decimal("NaN")
        except (ArithmeticError, ValueError):
            share = Decimal("NaN")
        if not share.is_finite() or not 0 <= share < 1:
            wanted = "a number from 0 to below 1 such as '0.1'"
            raise ConfigurationError(
                f"GuardrailsConfig.reserve_cost_fraction must be {wanted}, not {short_repr(fraction, 80)}"
            )

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for a keyword that is not a guardrail, with the one that was meant."""
        close = close_to(name, cls.__struct_fields__)
        hint = f"did you mean {close!r}?" if close else f"the guardrails are {', '.join(cls.__struct_fields__)}"
        return ConfigurationError(f"there is no guardrail {name!r}; {hint}")

    @property
    def cost_reserve(self) -> Decimal:
        """`reserve_cost_fraction` as an exact number."""
        return Decimal(str(self.reserve_cost_fraction))
