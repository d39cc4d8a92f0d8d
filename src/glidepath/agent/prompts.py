"""What a run is given: a prompt as messages, and the session it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glidepath._wire import WireError
from glidepath.agent.config import check_sendable
from glidepath.context import repair
from glidepath.errors import ConfigurationError
from glidepath.messages import Message, UserMessage, codec
from glidepath.sessions import Session

__all__ = ["as_messages", "as_session"]

_ROLES = frozenset({"system", "user", "assistant", "tool_result", "custom", "unknown"})


def as_messages(prompt: Any) -> tuple[Message, ...]:
    """A prompt as messages; raises `ConfigurationError` for what cannot be sent."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ConfigurationError("prompt is empty: say what the agent should do")
        check_sendable("prompt", prompt)
        return (UserMessage(str.__str__(prompt)),)  # of a subclass, the text: nothing else can be written
    if getattr(prompt, "role", None) in _ROLES:
        prompt = (prompt,)
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes) or not prompt:
        raise ConfigurationError(
            f"prompt must be a str or a non-empty sequence of messages, not {type(prompt).__name__}"
        )
    for message in prompt:
        if not isinstance(message, Message):
            raise ConfigurationError(f"prompt must hold messages of glidepath.messages, not {type(message).__name__}")
        _check_message(message)
    return tuple(repair(prompt, keep_custom=True))


def _check_message(message: Message) -> None:
    """Messages are built unchecked, for speed: those from outside are read once as they would be from a file."""
    try:
        codec.decode(codec.encode(message))
    except (WireError, TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"prompt: this {message.role} message cannot be sent: {error}") from None
    check_sendable("prompt", message.text)


def as_session(session: Any) -> Session:
    """The session itself, or one with this id."""
    if isinstance(session, Session):
        return session
    if session is None or isinstance(session, str):
        return Session(session)
    raise ConfigurationError(f"session must be an id or a Session, not {type(session).__name__}")
