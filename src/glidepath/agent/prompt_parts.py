"""A prompt given as parts: texts, pictures and files, and the paths of some."""

from __future__ import annotations

import os
from collections.abc import Sequence

from glidepath.values import (
    ConfigurationError,
    FileBlock,
    ImageBlock,
    Message,
    TextBlock,
    UserMessage,
    check_sendable,
    short_repr,
)

_BLOCKS = (TextBlock, ImageBlock, FileBlock)
_PARTS = (str, os.PathLike, *_BLOCKS)


def join_parts(parts: Sequence[object]) -> UserMessage | None:
    """The message that these parts make; None where they are messages. A path is read now."""
    if not any(isinstance(part, _PARTS) for part in parts):
        return None
    return UserMessage(tuple(_read_part(number, part) for number, part in enumerate(parts)))


def _read_part(number: int, part: object) -> TextBlock | ImageBlock | FileBlock:
    where = f"prompt[{number}]"
    if isinstance(part, _BLOCKS):
        return part
    if isinstance(part, str):
        if not part.strip():
            raise ConfigurationError(f"{where} is empty: leave it out")
        check_sendable(where, part)
        return TextBlock(str.__str__(part))
    if isinstance(part, os.PathLike):
        return _read_file(where, part)
    if isinstance(part, Message):
        raise ConfigurationError(f"{where} is a message among parts of one: a prompt holds messages, or their parts")
    raise ConfigurationError(
        f"{where} must be a text, the Path of a picture or file, or a block of glidepath.messages; "
        f"got {short_repr(part, 80)}"
    )


def _read_file(where: str, path: os.PathLike[str]) -> ImageBlock | FileBlock:
    from glidepath.values.media_types import find_media_type

    try:
        _, media_type = find_media_type(path, None)
        return ImageBlock.read(path) if media_type.startswith("image/") else FileBlock.read(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"{where}: {str(path)[-200:]!r} cannot be read: {reason}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
