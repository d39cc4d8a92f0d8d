"""Models: the port they implement, what they stream, and the adapters to real ones.

The adapters are imported when they are first used, and only then is an SDK needed.
"""

from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "AnthropicModel": "glidepath.models.anthropic",
    "GoogleModel": "glidepath.models.google",
    "LocalModel": "glidepath.models.local",
    "OpenAIChatModel": "glidepath.models.openai_chat",
    "OpenAIResponsesModel": "glidepath.models.openai_responses",
    "pull": "glidepath.models.local",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'glidepath.models' has no attribute {name!r}")
    return getattr(import_module(home), name)
