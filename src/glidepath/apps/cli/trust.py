"""Which folders a person trusts: one small file for each, in the user's data folder and never in the folder itself."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from glidepath.apps.cli.folder import Folder, read_folder
from glidepath.values import ConfigurationError, install_line

_MOST_BYTES = 100_000
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class TrustRecord(NamedTuple):
    """A person's yes: for which folder, for which bytes, and when."""

    folder: str
    digest: str
    when: str
    without: tuple[str, ...] = ()
    """Rights of servers that the person refused: `SERVER.trusted`, `SERVER.sampling`."""


def read_trusted_files(path: Path) -> tuple[bool, Mapping[str, bytes]]:
    """Whether a person trusts this folder as it is now, and its covered files by name, as they were read to decide it.

    Code that acts on one of these files acts on these bytes, and only when the first value is true. Nobody is asked.
    """
    folder = read_folder(path)
    return is_trusted(folder), folder.files


def is_trusted(folder: Folder) -> bool:
    """True when a person said yes to exactly these bytes."""
    known = record_of(folder.path)
    return known is not None and not folder.unread and known.digest == folder.digest


def record_of(folder: Path) -> TrustRecord | None:
    """What is recorded about a folder, whatever it contains now."""
    try:
        place = _trust_record_of(folder)
    except ConfigurationError:
        return None
    found = _read(place / _name(folder)) if _is_private_to_user(place) else None
    return found if found is not None and found.folder == str(folder) else None


def list_trusted_folders() -> list[TrustRecord]:
    """Every folder that was trusted, by name."""
    place = _place()
    names = sorted(place.glob("*.json")) if place.is_dir() and _is_private_to_user(place) else []
    found = [record for record in map(_read, names) if record is not None]
    return sorted(record for record in found if record.folder)


def remember(folder: Folder, without: Sequence[str] = ()) -> None:
    """Record a person's yes for these bytes, and which rights of servers they refused.

    Raises OSError or `ConfigurationError` when it cannot be kept.
    """
    place = _trust_record_of(folder.path)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private_to_user(place):
        raise ConfigurationError(f"{place} can be written by others: chmod 700 it")
    record = TrustRecord(str(folder.path), folder.digest, time.strftime("%Y-%m-%d %H:%M"), tuple(without))
    unfinished = place / f".{secrets.token_hex(8)}"
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(record._asdict(), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(place / _name(folder.path))
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def forget(folder: Path) -> bool:
    """Revoke trust; False when there was none."""
    try:
        (_place() / _name(folder)).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _place() -> Path:
    try:
        import platformdirs
    except ImportError:
        raise ConfigurationError(
            f"platformdirs is needed to find your data folder, where trust is kept: {install_line('cli')}"
        ) from None
    return platformdirs.user_data_path("glidepath") / "trust"


def _trust_record_of(folder: Path) -> Path:
    """Where the record of a folder is; never in that folder, where it could have come with the rest.

    A person's home, and what is above it, is the exception: the data folder is in there.
    """
    place = _place()
    if place.resolve().is_relative_to(folder) and not Path.home().is_relative_to(folder):
        raise ConfigurationError(f"the data folder {place.parent} is inside {folder}: check XDG_DATA_HOME")
    return place


def _name(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest() + ".json"


def _is_private_to_user(path: Path) -> bool:
    """True when it belongs to this user and nobody else can write it."""
    try:
        return _is_private(path.lstat())
    except OSError:
        return False


def _is_private(status: os.stat_result) -> bool:
    owner = getattr(os, "geteuid", lambda: status.st_uid)()
    return status.st_uid == owner and (os.name != "posix" or not status.st_mode & _OTHERS_WRITE)


def _read(path: Path) -> TrustRecord | None:
    """A record; None for what is missing, broken, a link, or could have been written by somebody else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not _is_private(status):
                return None
            said = json.loads(file.read(_MOST_BYTES))
        record = TrustRecord(said["folder"], said["digest"], said["when"], tuple(said.get("without", ())))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return record if all(isinstance(part, str) for part in (*record[:3], *record.without)) else None
