"""How a transcript is measured, kept valid, and made to fit: sizes, strategies, repair, the landing view."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

if TYPE_CHECKING:
    from glidepath.kernel.context import (
        CharEstimator,
        Checkpoint,
        CheckpointRequest,
        ClearResults,
        Compact,
        NoShaping,
        SlidingWindow,
        Summarize,
        drop_unsendable,
        guard_estimate,
        make_sizer,
        message_size,
        repair,
        strategy,
    )
    from glidepath.workspace import SpillResults

__all__ = [
    "CharEstimator",
    "Checkpoint",
    "CheckpointRequest",
    "ClearResults",
    "Compact",
    "NoShaping",
    "SlidingWindow",
    "SpillResults",
    "Summarize",
    "drop_unsendable",
    "guard_estimate",
    "make_sizer",
    "message_size",
    "repair",
    "strategy",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        **{
            "glidepath.kernel.context": (
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
            ),
            "glidepath.workspace": ("SpillResults",),
        },
    )
