"""The version of this release, as journals and `glidepath --version` show it."""

from __future__ import annotations

VERSION = "0.1.0"


def is_newer(version: str) -> bool:
    """True for the name of a release that came after this one; False for one that cannot be read."""
    return _numbers(version) > _numbers(VERSION)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.partition("+")[0].split(".")[:3]
    return tuple([int(part) for part in parts]) if all(part.isdecimal() for part in parts) else ()
