"""How a transcript is measured, kept valid, and made to fit: sizes, strategies, repair, the landing view."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.kernel.context.measure import CharEstimator, guard_estimate, make_sizer, message_size
from glidepath.kernel.context.orphans import drop_unsendable, repair
from glidepath.kernel.context.strategies import Compact, NoShaping, SlidingWindow, strategy

if TYPE_CHECKING:
    from glidepath.kernel.context.clearing import ClearResults
    from glidepath.kernel.context.summarize import Checkpoint, CheckpointRequest, Summarize

__all__ = [
    "CharEstimator",
    "Checkpoint",
    "CheckpointRequest",
    "ClearResults",
    "Compact",
    "NoShaping",
    "SlidingWindow",
    "Summarize",
    "drop_unsendable",
    "guard_estimate",
    "make_sizer",
    "message_size",
    "repair",
    "strategy",
]

if TYPE_CHECKING:
    from glidepath.kernel.context.summarize import SYSTEM_PROMPT as SYSTEM_PROMPT
    from glidepath.kernel.context.trimming import trim_text as trim_text

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        trimming=("trim_text",),
        clearing=("ClearResults",),
        summarize=("SYSTEM_PROMPT", "Checkpoint", "CheckpointRequest", "Summarize"),
    )
