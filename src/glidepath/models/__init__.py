"""Models: the port they implement, what they stream, and the adapters to real ones.

The adapters are imported when they are first used, and only then is an SDK needed.
"""

from typing import TYPE_CHECKING

from glidepath.late import lazy_attributes
from glidepath.messages import Delta, ReasoningDelta, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from glidepath.models.strings import resolve
from glidepath.spi import Model, ModelRequest, TokenEstimator, ToolSpec

if TYPE_CHECKING:
    from glidepath.models.anthropic import AnthropicModel
    from glidepath.models.google import GoogleModel
    from glidepath.models.local import LocalModel, pull
    from glidepath.models.openai_chat import OpenAIChatModel
    from glidepath.models.openai_responses import OpenAIResponsesModel

__all__ = [
    "AnthropicModel",
    "Delta",
    "GoogleModel",
    "LocalModel",
    "Model",
    "ModelRequest",
    "OpenAIChatModel",
    "OpenAIResponsesModel",
    "ReasoningDelta",
    "StreamEnd",
    "TextDelta",
    "ThinkingDelta",
    "TokenEstimator",
    "ToolCallDelta",
    "ToolSpec",
    "pull",
    "resolve",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        anthropic=("AnthropicModel",),
        google=("GoogleModel",),
        local=("LocalModel", "pull"),
        openai_chat=("OpenAIChatModel",),
        openai_responses=("OpenAIResponsesModel",),
    )
