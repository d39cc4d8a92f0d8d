"""Results: what a tool returns, and how any value becomes text that the model can read."""

from __future__ import annotations

import os
from collections import abc
from itertools import islice
from typing import Any

from glidepath import _wire
from glidepath._wire import Value
from glidepath.tools.json_fallback import CONTAINED, MOST_ITEMS, best_text, has_dump, is_finite, type_name_of
from glidepath.tools.text import clean, clean_data, split, trim
from glidepath.values import FileBlock, ImageBlock, ResultBlock, TextBlock, ToolError, pluralize

NO_OUTPUT = "(no output)"
"""What the model reads when a tool returned nothing: providers refuse an empty result."""

_BLOCKS = (TextBlock, ImageBlock, FileBlock)


class ToolResult(Value, frozen=True):
    """What a tool returns when plain text is not enough.

    `details` and `narration` are for people and never sent to the model. `terminate` votes to end the run. `kind`
    names the class of an error.
    """

    content: str | tuple[ResultBlock, ...]
    is_error: bool = False
    details: Any = None
    narration: str | None = None
    terminate: bool = False
    kind: str | None = None


class RecordedResult(ToolResult, frozen=True):
    """A result from a journal: where its tool raised then. A replay has no error to read that from."""

    raised_at: str | None = None


def as_result(value: object) -> ToolResult:
    """The result for any value a tool returned: as JSON, else as text with a marker.

    Raises `ToolError`, with advice for the author of the tool, only for bytes that are not an image.
    """
    if type(value) is str:
        return ToolResult(clean(value) or NO_OUTPUT)
    if isinstance(value, ToolResult):
        return _check_result(value)
    return ToolResult(_content(value))


def _check_result(result: ToolResult) -> ToolResult:
    changes: dict[str, Any] = {}
    content = _content(result.content)
    if content is not result.content:
        changes["content"] = content
    if result.details is not None:
        changes["details"] = _detach(result.details)
    if result.narration is not None and (narration := clean(str(result.narration))) is not result.narration:
        changes["narration"] = narration
    if result.kind is not None and type(result.kind) is not str:
        changes["kind"] = str(result.kind)
    for flag in ("is_error", "terminate"):
        if type(value := getattr(result, flag)) is not bool:
            changes[flag] = bool(value)
    return _wire.replace(result, **changes) if changes else result


def _content(value: object) -> str | tuple[ResultBlock, ...]:
    if value is None:
        return NO_OUTPUT
    if isinstance(value, str):
        return clean(value if type(value) is str else str.__str__(value)) or NO_OUTPUT
    if isinstance(value, _BLOCKS):
        return (_block(value),)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return (_image(bytes(value)),)
    if isinstance(value, (list, tuple)) and any(isinstance(item, _BLOCKS) for item in value):
        return tuple([_block(item) for item in value])
    return _json(value) or NO_OUTPUT


def _block(item: object) -> ResultBlock:
    if isinstance(item, ImageBlock | FileBlock):
        return item
    if isinstance(item, TextBlock):
        text = clean(item.text)
        return item if text is item.text else TextBlock(text)
    if isinstance(item, (bytes, bytearray, memoryview)):
        try:
            return _image(bytes(item))
        except ToolError:
            return TextBlock(f"[{pluralize(len(item), 'byte')} that cannot be shown]")
    content = item if isinstance(item, str) else _json(item)
    return TextBlock(clean(content) or NO_OUTPUT)


def _image(data: bytes) -> ImageBlock:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        kind = "png"
    elif data.startswith(b"\xff\xd8\xff"):
        kind = "jpeg"
    elif data.startswith((b"GIF87a", b"GIF89a")):
        kind = "gif"
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "webp"
    else:
        raise ToolError(
            f"the tool returned {pluralize(len(data), 'byte')} that are not a PNG, JPEG, GIF or WebP image: "
            "decode them to str, or write them to a file and return its path"
        )
    return ImageBlock(media_type=f"image/{kind}", data=data)


def _json(value: object) -> str:
    """The value as JSON, else as text with a marker: the tool has run, and must not seem to have failed."""
    try:
        try:
            text = _encode(value).decode()
        except UnicodeEncodeError:
            text = _encode(clean_data(_wire.to_plain_data(value, enc_hook=_to_plain_data))).decode()
    except CONTAINED:  # its own type may raise anything
        return best_text(value)
    return best_text(value) if "null" in text and not is_finite(value) else text


def _detach(details: object) -> Any:
    """A plain copy: a tool that keeps changing what it returned must not change the journal."""
    written = _json(details)
    try:
        return _wire.loads(written)
    except _wire.WireError:  # it was shown as text
        return written


def _to_plain_data(value: object) -> Any:
    """Plain data for a type that msgspec does not know."""
    if has_dump(value):
        return value.model_dump(mode="json")  # type: ignore[attr-defined]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str):  # a subclass
        return str.__str__(value)
    if hasattr(type(value), "dtype"):  # from numpy: see `best_text`
        raise NotImplementedError(f"{type_name_of(value)} has no JSON form of its own")
    if isinstance(value, abc.Mapping):
        return {name: value[name] for name in islice(value, MOST_ITEMS)}
    if isinstance(value, abc.Collection):
        return list(islice(value, MOST_ITEMS))
    raise NotImplementedError(f"objects of type {type_name_of(value)} have no JSON form")


_encode = _wire.encoder(enc_hook=_to_plain_data)


def trim_result(result: ToolResult, limit: int) -> ToolResult:
    """The result with at most `limit` characters of text over all blocks, cut as `trim` cuts; images survive."""
    if isinstance(result.content, str):
        if len(result.content) <= limit:
            return result
        return _wire.replace(result, content=trim(result.content, limit))
    total = sum([len(block.text) for block in result.content if isinstance(block, TextBlock)])
    if total <= limit:
        return result
    return _wire.replace(result, content=_trim_blocks(result.content, total, limit))


def _trim_blocks(blocks: tuple[ResultBlock, ...], total: int, limit: int) -> tuple[ResultBlock, ...]:
    head, marker, tail = split(total, limit)
    kept: list[ResultBlock] = []
    start = 0
    for block in blocks:
        if isinstance(block, ImageBlock | FileBlock):
            kept.append(block)
            continue
        size = len(block.text)
        text = block.text[: max(head - start, 0)]
        if start <= head < start + size:  # the cut begins inside this block
            text += marker
        last = start + size - (total - tail)  # how much of the tail is in this block
        if last > 0:
            text += block.text[max(size - last, 0) :]
        if text:
            kept.append(TextBlock(text))
        start += size
    return tuple(kept)
