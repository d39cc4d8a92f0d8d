"""How large a file is in tokens, erring on the high side.

Vendors charge a page of a PDF by its text (up to 3,000 tokens) and by its picture (up to 1,600), a second of sound with
32 tokens at most, and a second of video with 300.
"""

from __future__ import annotations

import re
import zlib

from glidepath.tools.token_estimate import text_tokens
from glidepath.values import FileBlock

BY_ADDRESS = 50_000
"""The tokens of a file that is only a URL: its size is unknown."""
LEAST = 300
_PAGE = 4_600
_SOUND, _VIDEO = 32, 300
_SOUND_BYTES, _VIDEO_BYTES = 2_000, 12_500  # of a second: 16 and 100 kbit/s; hardly anything is compressed more
_BYTES_PER_PAGE = 4_000  # of a PDF whose pages cannot be counted
_UNPACKED = 2  # an office file is a zip archive: its text is smaller than this times its bytes
_MOST_UNPACKED = 1 << 24
_PAGE_OBJECT = rb"/Type\s*/Page(?![a-zA-Z])"
_COUNT = rb"/Count\s+(\d{1,6})\b"
_PACKED = rb"(?s:/Type\s*/ObjStm.{0,400}?stream\r?\n)"


def file_tokens(file: FileBlock) -> int:
    """The tokens of a file."""
    data, kind = file.data, file.kind
    if not data:
        return BY_ADDRESS if file.url else LEAST
    if kind == "audio":
        return LEAST + _SOUND * _seconds(data)
    if kind == "video":
        return LEAST + _VIDEO * (1 + len(data) // _VIDEO_BYTES)
    if data.startswith(b"%PDF"):
        return LEAST + _PAGE * count_pages(data)
    if data.startswith(b"PK"):
        return LEAST + _UNPACKED * len(data)
    return LEAST + text_tokens(data.decode("utf-8", "replace"))


def _seconds(data: bytes) -> int:
    """Seconds of a recording: a WAV header says, anything else is assumed to be highly compressed."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        rate = int.from_bytes(data[28:32], "little")
        if rate > 0:
            return 1 + len(data) // rate
    return 1 + len(data) // _SOUND_BYTES


def count_pages(data: bytes) -> int:
    """The pages of a PDF; if they cannot be counted, the most its size allows."""
    counted = _count_pages(data)
    left = _MOST_UNPACKED
    for found in re.finditer(_PACKED, data):
        reader = zlib.decompressobj()
        try:
            inside = reader.decompress(data[found.end() :], left)
        except zlib.error:
            continue  # packed in another way, or encrypted
        left -= len(inside)
        counted = max(counted, _count_pages(inside))
        if left <= 0:
            break
    return counted or 1 + len(data) // _BYTES_PER_PAGE


def _count_pages(data: bytes) -> int:
    counts = [int(found) for found in re.findall(_COUNT, data)] if b"/Pages" in data else []
    return max([len(re.findall(_PAGE_OBJECT, data)), *counts])
