"""Pictures and files for providers: which kinds each accepts, and how their bytes are written."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from mimetypes import guess_type
from typing import Any

from glidepath._wire import Value
from glidepath.values import FileBlock, ImageBlock, RejectedError, TextBlock, ToolResultMessage

_DATA_URL = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)
_ANY = "*"
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""Audio as chat completions take it: what they call each media type."""


class Takes(Value, frozen=True, kw_only=True):
    """What a vendor accepts besides text: for each kind of file, prefixes of media types."""

    vendor: str = ""
    document: tuple[str, ...] = ()
    audio: tuple[str, ...] = ()
    video: tuple[str, ...] = ()
    by_address: bool = True
    """A picture may be a URL."""
    files_by_address: bool = True
    """A file may be a URL, too."""
    schemes: tuple[str, ...] = ("https", "http")
    """Which URLs it fetches. Paths on a server's own disk are never among them."""
    plain_parts: bool = False
    """In chat completions: a document is a `document_url`, and audio a text."""


def check_block(block: ImageBlock | FileBlock, takes: Takes) -> None:
    """Raise `RejectedError`, naming vendor and kind, for a block this vendor does not accept."""
    if isinstance(block, FileBlock):
        kind = block.kind
        allowed = getattr(takes, kind) if kind else ()
        if not allowed:
            raise RejectedError(
                f"{takes.vendor} takes no {kind or 'file'} (media_type={block.media_type!r:.100}): "
                "send its text instead, or use another model"
            )
        if not block.media_type.lower().startswith(allowed):
            raise RejectedError(
                f"{takes.vendor} takes no {kind} with media_type={block.media_type!r:.100}: "
                f"it takes {', '.join(start + _ANY if start.endswith('/') else start for start in allowed)}"
            )
        by_address = takes.by_address and takes.files_by_address
    else:
        kind, by_address = "image", takes.by_address
    if block.url and not block.data:
        if not by_address:
            raise RejectedError(f"{takes.vendor} takes no {kind} by url: send its bytes as data")
        scheme, colon, _ = block.url.partition("://")
        if not colon or scheme.lower() not in takes.schemes:
            known = " or ".join([f"{scheme}://" for scheme in takes.schemes])
            raise RejectedError(f"{takes.vendor} fetches a {kind} from {known} only: url={block.url!r:.100}")


def write_result_block(block: object, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """A block of a tool's result; a file or picture that this vendor does not accept becomes a text that says so.

    A prompt would be rejected instead. But the tool has already run, and the model must continue.
    """
    try:
        return write(block)
    except RejectedError as error:
        if not isinstance(block, FileBlock):
            return {"text": f"[the image was left out: {error}]"}
        named = f" {block.name!r:.100}" if block.name else ""
        return {"text": f"[the file{named} was left out: {error}]"}


def write_attachments_apart(message: ToolResultMessage, write: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """The pictures and files of a result, for a vendor whose results are text only, behind a text that names them."""
    if isinstance(message.content, str):
        return []
    blocks = [block for block in message.content if not isinstance(block, TextBlock)]
    what = "Files" if any(isinstance(block, FileBlock) for block in blocks) else "Images"
    label = {"text": f"{what} from the result of {message.tool_name} ({message.call_id}):"}
    return [label, *[write_result_block(block, write) for block in blocks]] if blocks else []


def base64_of(block: ImageBlock | FileBlock) -> str:
    """The bytes of a picture or file in base64; raises `RejectedError` if it has no bytes."""
    if not block.data:
        kind = "an image" if isinstance(block, ImageBlock) else f"a {block.kind or 'file'}"
        raise RejectedError(f"{kind} needs data or a url; this one has neither")
    return base64.b64encode(block.data).decode()


def data_url(block: ImageBlock | FileBlock) -> str:
    """The URL of a picture or file: its own, or a data URL."""
    return block.url or f"data:{block.media_type};base64,{base64_of(block)}"


def file_name(file: FileBlock) -> str:
    """The name of a file, or one made up from its type."""
    if file.name:
        return file.name
    from mimetypes import guess_extension

    return f"{file.kind or 'file'}{guess_extension(file.media_type) or ''}"


def block_of(address: str, *, image: bool, media_type: str = "", name: str | None = None) -> Any:
    """The block for a URL, which may be a data URL."""
    found = _DATA_URL.fullmatch(address)
    if found is None:
        kind = media_type or guess_type(address.partition("?")[0])[0] or ("image/*" if image else "application/pdf")
        return ImageBlock(kind, url=address) if image else FileBlock(kind, url=address, name=name)
    data = base64.b64decode(found[2])
    return ImageBlock(found[1], data) if image else FileBlock(found[1], data, name=name)
