"""The wire formats that the gate speaks, one module each for requests and for streamed replies."""

from glidepath.apps.gate.dialects.anthropic_dialect import AnthropicDialect
from glidepath.apps.gate.dialects.chat_dialect import ChatDialect
from glidepath.apps.gate.dialects.dialect import (
    BadRequest,
    Dialect,
    Notice,
    OwnReply,
    PastStep,
    RequestFacts,
    WireAnswer,
    WireCall,
)
from glidepath.apps.gate.dialects.gemini_dialect import GeminiDialect
from glidepath.apps.gate.dialects.responses_dialect import ResponsesDialect
from glidepath.apps.gate.dialects.stream_reader import StreamReader
from glidepath.apps.gate.dialects.wire_body import parse_body, write_body

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (AnthropicDialect(), ChatDialect(), ResponsesDialect(), GeminiDialect())
}
"""The dialects by their names."""

__all__ = [
    "DIALECTS",
    "BadRequest",
    "Dialect",
    "Notice",
    "OwnReply",
    "PastStep",
    "RequestFacts",
    "StreamReader",
    "WireAnswer",
    "WireCall",
    "parse_body",
    "write_body",
]
