"""Models: the port they implement, what they stream, and the adapters to real ones.

The adapters are imported when they are first used, and only then is an SDK needed.
"""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.models.strings import resolve
from glidepath.spi import Model, ModelRequest, TokenEstimator, ToolSpec
from glidepath.values import Delta, ReasoningDelta, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta

if TYPE_CHECKING:
    from glidepath.models.anthropic import AnthropicModel
    from glidepath.models.google import GoogleModel
    from glidepath.models.local import LocalModel, pull
    from glidepath.models.openai_chat import OpenAIChatModel
    from glidepath.models.openai_responses import OpenAIResponsesModel
    from glidepath.spi.hosted import CodeExecution, HostedTool, WebFetch, WebSearch

__all__ = [
    "AnthropicModel",
    "CodeExecution",
    "Delta",
    "GoogleModel",
    "HostedTool",
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
    "WebFetch",
    "WebSearch",
    "pull",
    "resolve",
]

if TYPE_CHECKING:
    from glidepath.models.faults import Faults as Faults
    from glidepath.models.hosts import HOSTS as HOSTS

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        hosts=("HOSTS",),
        faults=("Faults",),
        anthropic=("AnthropicModel",),
        google=("GoogleModel",),
        local=("LocalModel", "pull"),
        openai_chat=("OpenAIChatModel",),
        openai_responses=("OpenAIResponsesModel",),
        **{"glidepath.spi.hosted": ("CodeExecution", "HostedTool", "WebFetch", "WebSearch")},
    )

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.models.aws_events import KIND as KIND, AwsEvents as AwsEvents
    from glidepath.models.content import parse_event as parse_event
    from glidepath.models.faults import retry_after as retry_after
    from glidepath.models.formats.reading import call_of as call_of
    from glidepath.models.names import ToolNames as ToolNames, make_legal_name as make_legal_name
    from glidepath.models.sse import Events as Events
    from glidepath.models.usage_reports import (
        anthropic_searches as anthropic_searches,
        chat_bill as chat_bill,
        chat_media as chat_media,
        gemini_media as gemini_media,
    )

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        __getattr__,
        aws_events=("AwsEvents", "KIND"),
        content=("parse_event",),
        faults=("retry_after",),
        names=("ToolNames", "make_legal_name"),
        sse=("Events",),
        usage_reports=("anthropic_searches", "chat_bill", "chat_media", "gemini_media"),
        **{"formats.reading": ("call_of",)},
    )
