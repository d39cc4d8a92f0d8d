"""One run, turn by turn: the loop, the model call, the tool calls, the checks, the landing."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.kernel.constraint_checks import MOST_WARNINGS as MOST_WARNINGS
    from glidepath.kernel.context import (
        CharEstimator as CharEstimator,
        make_sizer as make_sizer,
        repair as repair,
        strategy as strategy,
    )
    from glidepath.kernel.model_call.booking import (
        BYTES_PER_TOKEN as BYTES_PER_TOKEN,
        SLICE as SLICE,
        Booking as Booking,
        make_refusal_verdict as make_refusal_verdict,
    )
    from glidepath.kernel.model_call.fallback import switch_plan as switch_plan
    from glidepath.kernel.model_call.settlement import CallCharge as CallCharge
    from glidepath.kernel.tool_calls.interrupted import write_pause as write_pause

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        constraint_checks=("MOST_WARNINGS",),
        context=("CharEstimator", "make_sizer", "repair", "strategy"),
        **{
            "model_call.booking": ("BYTES_PER_TOKEN", "Booking", "SLICE", "make_refusal_verdict"),
            "model_call.fallback": ("switch_plan",),
            "model_call.settlement": ("CallCharge",),
            "tool_calls.interrupted": ("write_pause",),
        },
    )
