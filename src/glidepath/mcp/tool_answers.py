"""What a server answers to a call, as a result the model can read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.mcp.definitions import clean_text
from glidepath.tools import ToolResult
from glidepath.values import FileBlock, ImageBlock, ResultBlock, TextBlock, pluralize

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from glidepath.mcp.artifacts import Artifacts

__all__ = ["as_tool_result", "resource_blocks"]

KEPT = 32_000  # characters of text of a result, as SPEC 2.8 has it; the rest is kept as an artifact
MOST_BLOCKS = 200
_MOST_READ = 1 << 20  # characters of a text that are read as JSON
_BEGINS_JSON = tuple('{["-0123456789tfn')
_NO_JSON: Any = object()
_ABOVE = "[the text above]"
_BEGINNINGS: dict[str, bytes | tuple[bytes, ...]] = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": b"RIFF",
}
_IMAGES = (*_BEGINNINGS, "image/jpg")


def as_tool_result(answer: CallToolResult, artifacts: Artifacts, *, limit: int = KEPT) -> ToolResult:
    """The answer as a result: text, pictures, files, links; what is too long is kept as an artifact and named."""
    blocks: list[ResultBlock] = []
    for content in answer.content[:MOST_BLOCKS]:
        blocks += _blocks(content, artifacts)
    left_out = len(answer.content) - MOST_BLOCKS
    if left_out > 0:
        blocks.append(TextBlock(f"[{left_out} more parts of this result were left out]"))
    structured = answer.structured_content
    if structured is not None and (rest := _SaidTexts(blocks).find_rest(structured)) is not None:
        blocks.append(TextBlock(_wire.encode(rest).decode()))
    content_out = _limit_text(blocks, artifacts, limit)
    return ToolResult(content_out, is_error=bool(answer.is_error), kind="tool_error" if answer.is_error else None)


class _SaidTexts:
    """What the texts of an answer say, as they are and read as JSON, so that nothing is sent to the model twice."""

    def __init__(self, blocks: Sequence[ResultBlock]) -> None:
        self._texts = {block.text.strip() for block in blocks if isinstance(block, TextBlock)}
        self._values = [value for text in self._texts if (value := _read_json(text)) is not _NO_JSON]

    def find_rest(self, structured: object) -> Any:
        """What of the structured content none of the texts says; None when they say it all, as the protocol has it."""
        if not self._texts:
            return structured
        if self._has(structured):
            return None
        if not isinstance(structured, dict):
            return structured
        if all(self._has(value) for value in structured.values()):
            return None
        return {name: self._shorten(value) for name, value in structured.items() if not self._is_repeated(value)}

    def _is_repeated(self, value: object) -> bool:
        """True for what would cost something to say twice: a short value may be equal by chance, as "done" is."""
        return self._has(value) and len(_wire.encode(value)) > len(_ABOVE)

    def _has(self, value: object) -> bool:
        if isinstance(value, str):
            return value.strip() in self._texts or value in self._values
        if isinstance(value, list):
            return value in self._values or all(self._has(one) for one in value)
        return value in self._values

    def _shorten(self, value: Any) -> Any:
        """The value without the long texts in it that stand alone as well."""
        if isinstance(value, str):
            return _ABOVE if len(value) > len(_ABOVE) and value.strip() in self._texts else value
        if isinstance(value, list):
            return [self._shorten(one) for one in value]
        if isinstance(value, dict):
            return {name: self._shorten(one) for name, one in value.items()}
        return value


def _read_json(text: str) -> Any:
    """The value of a text that is worth reading as JSON, and can be; else `_NO_JSON`."""
    if len(text) > _MOST_READ or text[:1] not in _BEGINS_JSON:
        return _NO_JSON
    try:
        return _wire.loads(text.encode())
    except (ValueError, RecursionError):
        return _NO_JSON


def _limit_text(blocks: list[ResultBlock], artifacts: Artifacts, limit: int) -> str | tuple[ResultBlock, ...]:
    """The blocks with at most `limit` characters of text; all of the text is in the artifact."""
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    total = sum(map(len, texts))
    if total > limit:
        note = artifacts.keep("\n".join(texts).encode(), "txt", f"the whole text, {pluralize(total, 'character')}")
        room = max(0, limit - len(note) - 2)
        cut: list[ResultBlock] = []
        for block in blocks:
            if not isinstance(block, TextBlock):
                cut.append(block)
            elif room > 0:
                cut.append(TextBlock(block.text[:room]))
                room -= len(block.text)
        blocks = [*cut, TextBlock(note)]
    if blocks and all(isinstance(block, TextBlock) for block in blocks):
        return "\n".join([block.text for block in blocks if isinstance(block, TextBlock)])
    return tuple(blocks) if blocks else ""


def _blocks(content: Any, artifacts: Artifacts) -> list[ResultBlock]:
    kind = getattr(content, "type", "")
    if kind == "text":
        return [TextBlock(content.text)]
    if kind in ("image", "audio"):
        return [_binary(content.data, content.mime_type, artifacts)]
    if kind == "resource_link":
        return [TextBlock(_link(content))]
    if kind == "resource":
        return resource_blocks(content.resource, artifacts)
    return [TextBlock(f"[a part of kind {kind!r:.40} that cannot be shown]")]


def resource_blocks(resource: Any, artifacts: Artifacts) -> list[ResultBlock]:
    """The contents of one resource, with its address in front."""
    head = TextBlock(f"[resource {clean_text(str(resource.uri), 500)}]")
    text = getattr(resource, "text", None)
    if text is not None:
        return [head, TextBlock(text)]
    return [head, _binary(resource.blob, resource.mime_type or "application/octet-stream", artifacts)]


def _link(content: Any) -> str:
    said = [clean_text(str(content.uri), 500)]
    said += [clean_text(str(part), 200) for part in (content.title or content.name, content.mime_type) if part]
    if content.size is not None:
        said.append(pluralize(content.size, "byte"))
    about = f": {clean_text(content.description, 500)}" if content.description else ""
    return f"[link to {', '.join(said)}{about}]"


def _kind_of_image(raw: bytes) -> str | None:
    """What a picture is by its first bytes: a provider refuses the whole conversation for a malformed one."""
    for kind, begins in _BEGINNINGS.items():
        if raw.startswith(begins) and (kind != "image/webp" or raw[8:12] == b"WEBP"):
            return kind
    return None


def _binary(data: str, media_type: str, artifacts: Artifacts) -> ResultBlock:
    media_type = clean_text(media_type, 100).lower()
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return TextBlock(f"[a part of type {media_type} that is not valid base64]")
    if media_type in _IMAGES:
        kind = _kind_of_image(raw)
        if kind is None:
            return TextBlock(f"[{pluralize(len(raw), 'byte')}, not the {media_type} that the server claims]")
        return ImageBlock(media_type=kind, data=raw)
    block = FileBlock(media_type=media_type, data=raw)
    if block.kind and raw:
        return block
    suffix = Path(f"x.{media_type.rpartition('/')[2]}").suffix.lstrip(".") or "bin"
    return TextBlock(
        artifacts.keep(raw, suffix if suffix.isalnum() else "bin", f"{pluralize(len(raw), 'byte')} of {media_type}")
    )
