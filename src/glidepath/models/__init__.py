"""Models: the port they implement and what they stream."""

from glidepath.messages import Delta, ReasoningDelta, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.spi import Model, ModelRequest, TokenEstimator, ToolSpec

__all__ = [
    "Delta",
    "Model",
    "ModelRequest",
    "ReasoningDelta",
    "StreamEnd",
    "TextDelta",
    "ThinkingDelta",
    "TokenEstimator",
    "ToolCallDelta",
    "ToolSpec",
]
