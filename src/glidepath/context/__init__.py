"""How a transcript is measured, kept valid, and made to fit: sizes, strategies, repair, the landing view."""

from glidepath.context.measure import CharEstimator, guarded, message_size, sizer
from glidepath.context.orphans import repair, sendable
from glidepath.context.strategies import Compact, NoShaping, SlidingWindow, strategy
from glidepath.context.summarize import Checkpoint, CheckpointRequest, Summarize

__all__ = [
    "CharEstimator",
    "Checkpoint",
    "CheckpointRequest",
    "Compact",
    "NoShaping",
    "SlidingWindow",
    "Summarize",
    "guarded",
    "message_size",
    "repair",
    "sendable",
    "sizer",
    "strategy",
]
