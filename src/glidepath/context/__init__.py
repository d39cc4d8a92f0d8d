"""How a transcript is measured, kept valid, and made to fit: sizes, strategies, repair, the landing view."""

from typing import TYPE_CHECKING

from glidepath.context.measure import CharEstimator, guard_estimate, message_size, sizer
from glidepath.context.orphans import repair, sendable
from glidepath.context.strategies import Compact, NoShaping, SlidingWindow, strategy
from glidepath.late import lazy_attributes

if TYPE_CHECKING:
    from glidepath.context.summarize import Checkpoint, CheckpointRequest, Summarize

__all__ = [
    "CharEstimator",
    "Checkpoint",
    "CheckpointRequest",
    "Compact",
    "NoShaping",
    "SlidingWindow",
    "Summarize",
    "guard_estimate",
    "message_size",
    "repair",
    "sendable",
    "sizer",
    "strategy",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, summarize=("Checkpoint", "CheckpointRequest", "Summarize"))
