"""How large a picture is: in pixels, as far as its header tells, and in tokens, erring on the high side.

Vendors count differently: by area (a token for 750 pixels), by tiles (170 or 258 tokens each), by patches, always after
scaling a large picture down. A token for 500 pixels is more than all of them take, and none takes more than the cap.
"""

from __future__ import annotations

from typing import Any

from glidepath.values import FileBlock, ImageBlock, TextBlock

LEAST_PICTURE_TOKENS = 258
_FIXED = 85
_PIXELS_PER_TOKEN = 500
_MOST = 5_000
_FILLING = 0xFF
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the markers of a JPEG that begin a frame
_PIXELS_PER_BYTE = 10  # a picture whose header cannot be read: compressed at most this well


def picture_tokens(image: ImageBlock) -> int:
    """The tokens of a picture; one that is only a URL counts as the largest."""
    data = image.data
    if not data:
        return _MOST if image.url else LEAST_PICTURE_TOKENS
    size = read_pixel_size(data)
    area = len(data) * _PIXELS_PER_BYTE if size is None else size[0] * size[1]
    return max(LEAST_PICTURE_TOKENS, min(_MOST, _FIXED + area // _PIXELS_PER_TOKEN))


def block_tokens(block: ImageBlock | FileBlock) -> int:
    """The tokens of a picture or a file."""
    if type(block) is ImageBlock:
        return picture_tokens(block)
    from glidepath.tools.files import file_tokens  # few messages have any

    return file_tokens(block)  # type: ignore[arg-type]


def picture_bytes(content: object) -> int:
    """The bytes of the pictures and files in a message's content; one that is only a URL counts as 1."""
    if type(content) is not tuple:
        return 0
    return sum([max(1, len(block.data or b"")) for block in content if type(block) is not TextBlock])


def small_enough(content: Any, image: int, file: int, together: int) -> Any:
    """The content of a result, with a text in place of a picture or file that is larger than the settings allow."""
    if picture_bytes(content) <= min(image, file, together):
        return content
    blocks = []
    for block in content:
        size = len(block.data or b"") if type(block) is not TextBlock else 0
        what, each = ("file", file) if type(block) is FileBlock else ("image", image)
        if size > each:
            text = f"[{what} left out: its {size} bytes are more than max_{what}_bytes={each}; return a smaller one]"
        elif size > together:
            text = f"[{what} left out: all of them have more bytes than max_image_bytes_per_request allows]"
        else:
            together -= size
            blocks.append(block)
            continue
        blocks.append(TextBlock(text))
    return tuple(blocks)


def read_pixel_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header of a PNG, GIF, JPEG or WebP; None if it does not say."""
    size = None
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        size = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    elif data[:4] == b"GIF8":
        size = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif data[:2] == b"\xff\xd8":
        size = _read_jpeg_size(data)
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        size = _read_webp_size(data)
    return size if size is not None and size[0] > 0 and size[1] > 0 else None


def _read_jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(1_000):  # segments before the first frame
        if data[at : at + 1] != b"\xff" or at + 9 > len(data):
            return None
        marker = data[at + 1]
        if marker == _FILLING:
            at += 1
        elif marker in _FRAMES:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _read_webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None
