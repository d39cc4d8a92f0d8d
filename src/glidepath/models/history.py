"""Converts transcripts from and to the formats of OpenAI chat, OpenAI Responses, Anthropic and Gemini.

The output is what the adapters send. Reading it back gives the messages again, as far as a format can express them:
chat and Responses cannot mark a result as an error, and no format has what is only for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath.messages import Message
from glidepath.models.formats.anthropic_messages import anthropic_turns, system_of
from glidepath.models.formats.chat_messages import chat_messages
from glidepath.models.formats.google_contents import google_contents
from glidepath.models.formats.read_anthropic import read_anthropic
from glidepath.models.formats.read_gemini import read_google
from glidepath.models.formats.read_openai import read_chat, read_responses
from glidepath.models.formats.responses import responses_input


def from_openai_chat(history: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a chat completions history; raises `ConfigurationError` for an item that cannot be read."""
    return read_chat(history)


def to_openai_chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A transcript as the `messages` of chat completions."""
    return chat_messages(messages)


def from_openai_responses(history: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a Responses `input` or `output`; raises `ConfigurationError` for an item that cannot be read."""
    return read_responses(history)


def to_openai_responses(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A transcript as the `input` of Responses."""
    return responses_input(messages)


def from_anthropic(history: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of an Anthropic history: its `messages`, or a request with `system` and `messages`.

    Raises `ConfigurationError` for an item that cannot be read.
    """
    if isinstance(history, Mapping):
        return read_anthropic(history.get("messages", ()), history.get("system"))
    return read_anthropic(history)


def to_anthropic(messages: Sequence[Message]) -> dict[str, Any]:
    """A transcript as `messages` and, if it has instructions, `system` of Anthropic's Messages."""
    system = system_of(messages)
    return {**({"system": system} if system else {}), "messages": anthropic_turns(messages)}


def from_gemini(history: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a Gemini history: its `contents`, or a request with `systemInstruction` and `contents`.

    Raises `ConfigurationError` for an item that cannot be read.
    """
    if isinstance(history, Mapping):
        return read_google(history.get("contents", ()), history.get("systemInstruction"))
    return read_google(history)


def to_gemini(messages: Sequence[Message]) -> dict[str, Any]:
    """A transcript as `contents` and, if it has instructions, `systemInstruction` of Gemini."""
    system = system_of(messages)
    instruction = {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
    return {**instruction, "contents": google_contents(messages)}
