"""What the guardrails are set to."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import Settings
from glidepath.errors import ConfigurationError, close_to, shown
from glidepath.setting import HIGHER, LOWER, LOWER_NOT_ZERO, Declared, Setting, check_fields, with_settings

if TYPE_CHECKING:
    Fraction = Decimal | str | float
else:  # a decoder allows only one type that is written as a string
    Fraction = Any


@with_settings
class GuardrailsConfig(Settings, frozen=True, kw_only=True):
    """The guardrails of an agent. 0 switches a guard off; None leaves the optional one off."""

    # Evaluated here, as those of `LoopConfig`.
    # fmt: off
    max_tokens_recoveries: Declared[int, Setting("count", "continuations of a truncated answer; 0 is off", seed="guardrails.max_tokens_recoveries", found=LOWER)] = 2
    max_repeated_tool_steps: Declared[int, Setting("count", "repeats of the same calls until the tools are withdrawn; 0 is off", seed="guardrails.max_repeated_tool_steps", found=LOWER_NOT_ZERO)] = 3
    max_error_streak: Declared[int, Setting("count", "equal errors in a row until the tool is withdrawn; 0 is off", found=LOWER_NOT_ZERO)] = 5
    read_only_loop_threshold: Declared[int | None, Setting("count?", "steps of read-only tools until a nudge; 8 is a good start", found=LOWER)] = None
    max_premature_end_recoveries: Declared[int, Setting("count", "re-prompts after an empty reply to a tool error; 0 is off", found=LOWER)] = 2
    max_empty_recoveries: Declared[int, Setting("count", "re-prompts after an empty answer; 0 is off", found=LOWER)] = 1
    reserve_tokens: Declared[int, Setting("count", "tokens left above the reserve at which the model is told to wrap up", seed="guardrails.reserve_tokens", found=HIGHER)] = 512
    reserve_cost_fraction: Declared["Fraction", Setting("fraction", "share of the money at which the model is told to wrap up", seed="guardrails.reserve_cost_fraction", found=HIGHER)] = "0.1"
    # fmt: on

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
                f"GuardrailsConfig.reserve_cost_fraction must be {wanted}, not {shown(fraction, 80)}"
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
