"""Media types of files: what a name says, and which ones providers take as documents."""

from __future__ import annotations

from mimetypes import guess_type
from os import PathLike
from pathlib import Path

_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCUMENTS = frozenset(
    {
        "application/pdf",
        "application/json",
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "application/rtf",
        "application/epub+zip",
        "application/javascript",
        "application/x-javascript",
        "application/x-python",
        "application/msword",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.oasis.opendocument.text",
        f"{_OFFICE}wordprocessingml.document",
        f"{_OFFICE}spreadsheetml.sheet",
        f"{_OFFICE}presentationml.presentation",
    }
)
_SUFFIXES = {".md": "text/markdown", ".csv": "text/csv", ".mp3": "audio/mpeg", ".wav": "audio/wav", ".m4a": "audio/mp4"}
"""What Python's own table does not know everywhere, or names as nobody takes it."""


def find_media_type(path: str | PathLike[str], given: str | None) -> tuple[Path, str]:
    """The file, and its media type: as given, or as its name says; empty when that says nothing."""
    file = Path(path)
    return file, given or _SUFFIXES.get(file.suffix.lower()) or guess_type(file.name)[0] or ""
