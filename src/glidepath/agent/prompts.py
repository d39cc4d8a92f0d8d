"""What a run is given: a prompt as messages, and the session it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath._wire import WireError
from glidepath.context import repair
from glidepath.errors import ConfigurationError
from glidepath.messages import FileBlock, Message, TextBlock, UserMessage, codec
from glidepath.sessions import Session
from glidepath.setting import check_sendable
from glidepath.tools.picture_size import picture_bytes

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig

_ROLES = frozenset({"system", "user", "assistant", "tool_result", "custom", "unknown"})


def as_messages(prompt: object, config: LoopConfig) -> tuple[Message, ...]:
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
            raise ConfigurationError(
                f"prompt must hold messages such as glidepath.messages.UserMessage('...'), not {type(message).__name__}"
            )
        _check_message(message)
        _check_pictures(message, config)
    return tuple(repair(prompt, keep_custom=True))


def _check_pictures(message: object, config: LoopConfig) -> None:
    """A picture or file that is too large would be refused by the provider, in this run and in every later one."""
    content = getattr(message, "content", None)
    if type(content) is not tuple:
        return
    for block in content:
        size = len(block.data or b"") if type(block) is not TextBlock else 0
        if type(block) is FileBlock:
            _check_file(block)
        what, article = ("file", "a file") if type(block) is FileBlock else ("image", "an image")
        most = getattr(config, f"max_{what}_bytes")
        if size > most:
            raise ConfigurationError(
                f"prompt: {article} has {size} bytes, more than max_{what}_bytes={most}; "
                f"make it smaller, or raise max_{what}_bytes if your model takes it"
            )
    total, most = picture_bytes(content), config.max_image_bytes_per_request
    if total > most:
        raise ConfigurationError(
            f"prompt: its images and files take {total} bytes together, more than max_image_bytes_per_request={most}; "
            "send fewer or smaller ones, or raise the setting if your model takes them"
        )


def _check_file(file: FileBlock) -> None:
    named = f" {file.name!r:.100}" if file.name else ""
    if not file.kind:
        hint = "use an ImageBlock for a picture" if file.media_type.startswith("image/") else "check media_type"
        raise ConfigurationError(
            f"prompt: the file{named} has media_type={file.media_type!r:.100}, which no provider is known to take; "
            f"{hint}"
        )
    if not file.data and not file.url:
        raise ConfigurationError(f"prompt: the file{named} needs data or a url; it has neither")


def _check_message(message: Message) -> None:
    """Messages are built unchecked, for speed: those from outside are read once as they would be from a file."""
    try:
        codec.decode(codec.encode(message))
    except (WireError, TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"prompt: this {message.role} message cannot be sent: {error}") from None
    check_sendable("prompt", message.text)


def as_session(session: object) -> Session:
    """The session itself, or one with this id."""
    if isinstance(session, Session):
        return session
    if session is None or isinstance(session, str):
        return Session(session)
    raise ConfigurationError(f"session must be an id or a Session, not {type(session).__name__}")
