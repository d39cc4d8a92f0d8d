"""Converts transcripts from and to the formats of OpenAI chat, OpenAI Responses, Anthropic and Gemini.

The output is what the adapters send. Reading it back gives the messages again, as far as a format can express them:
chat and Responses cannot mark a result as an error, and no format has what is only for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glidepath.models.formats.anthropic_messages import anthropic_turns, system_of
from glidepath.models.formats.chat_messages import chat_messages
from glidepath.models.formats.google_contents import google_contents
from glidepath.models.formats.read_anthropic import from_anthropic
from glidepath.models.formats.read_gemini import from_gemini
from glidepath.models.formats.read_openai import from_openai_chat, from_openai_responses
from glidepath.models.formats.responses import responses_input
from glidepath.values import Message

# A type checker must be told that others may use what is only imported here.
__all__ = [
    "from_anthropic",
    "from_gemini",
    "from_openai_chat",
    "from_openai_responses",
    "to_anthropic",
    "to_gemini",
    "to_openai_chat",
    "to_openai_responses",
]


def to_openai_chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A transcript as the `messages` of chat completions."""
    return chat_messages(messages)


def to_openai_responses(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A transcript as the `input` of Responses."""
    return responses_input(messages)


def to_anthropic(messages: Sequence[Message]) -> dict[str, Any]:
    """A transcript as `messages` and, if it has instructions, `system` of Anthropic's Messages."""
    system = system_of(messages)
    return {**({"system": system} if system else {}), "messages": anthropic_turns(messages)}


def to_gemini(messages: Sequence[Message]) -> dict[str, Any]:
    """A transcript as `contents` and, if it has instructions, `systemInstruction` of Gemini."""
    system = system_of(messages)
    instruction = {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
    return {**instruction, "contents": google_contents(messages)}
