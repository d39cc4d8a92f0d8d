"""The other end of `weights.pull`: pip in its own process, whose downloads can be continued.

Run by path as a script, with the file to continue, its whole size and a folder for temporary files before pip's own
arguments. When pip is about to fetch the wheel, the bytes that are missing are asked for through pip's own session, so
its index, keys, proxies and certificates are used; then the process ends with 0. Where that does not work (a local
file, a server that refuses), pip fetches the wheel by itself. Imports nothing of glidepath.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PAUSES = (0.5, 1.0, 2.0)  # seconds to wait after a try that brought nothing
_CHUNK = 1 << 16
_WHOLE, _PART, _BEYOND = 200, 206, 416


def main() -> None:
    """Run pip; it ends when its standard input does: also when its parent is killed."""
    threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
    _, file, size, scratch, *rest = sys.argv
    sys.argv[1:] = rest
    tempfile.tempdir = scratch
    with suppress(ImportError, AttributeError):  # a pip with another inside does it all by itself
        _take_over(Path(file), int(size))
    runpy.run_module("pip", run_name="__main__")


def _take_over(file: Path, size: int) -> None:
    session: Any = import_module("pip._internal.network.session").PipSession
    plain = session.request

    def request(self: object, method: str, url: str, *arguments: object, **keywords: object) -> Any:
        def ask(headers: dict[str, str]) -> Any:
            return plain(self, "GET", url, headers=headers, stream=True)

        wheel = method == "GET" and keywords.get("stream") and urlsplit(url).path.endswith(".whl")
        if wheel and continue_download(ask, file, size):
            os._exit(0)  # pip need not see it
        return plain(self, method, url, *arguments, **keywords)

    session.request = request


def continue_download(ask: Callable[[dict[str, str]], Any], file: Path, size: int) -> bool:
    """Add to the file until it has `size` bytes; False when the server does not let us.

    A connection that breaks is opened again, as long as each brings something.
    """
    fruitless = 0
    while (here := size_of(file)) < size:
        try:
            if not _write_response(ask, file, here, size):
                return False
        except OSError:  # a broken connection; the errors of pip's HTTP library are of this kind, too
            pass
        if size_of(file) > here:
            fruitless = 0
            continue
        if fruitless == len(PAUSES):
            return False
        time.sleep(PAUSES[fruitless])
        fruitless += 1
    return True


def _write_response(ask: Callable[[dict[str, str]], Any], file: Path, here: int, size: int) -> bool:
    """One answer, written as it comes; False when it was unusable."""
    headers = {"Accept-Encoding": "identity"}
    if here:
        headers.update({"Range": f"bytes={here}-", "Cache-Control": "no-cache"})
    answer = ask(headers)
    try:
        if answer.status_code == _BEYOND:
            file.unlink()
            return True
        if answer.status_code not in (_WHOLE, _PART):
            return False
        fits = answer.status_code == _PART and answer.headers.get("Content-Range", "").startswith(f"bytes {here}-")
        if answer.status_code == _PART and not fits:
            return False
        with file.open("ab" if fits else "wb", buffering=0) as out:
            for chunk in answer.iter_content(_CHUNK):
                out.write(chunk)
                if out.tell() > size:
                    break
    finally:
        answer.close()
    return True


def size_of(file: Path) -> int:
    """The size of a file; 0 if it is not there."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    main()
