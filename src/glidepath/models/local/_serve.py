"""The other end of `server`: llama.cpp's HTTP server in its own process.

Run by path as a script. It reads its settings as one line of JSON from its standard input, answers with one line on its
standard output, and serves until that input is closed. Imports nothing of glidepath.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
from typing import Any

_PR_SET_PDEATHSIG = 1
_LOOK = 1.0  # seconds between two checks on the parent


def main() -> None:
    """Load the model, report the port, serve until the parent is gone."""
    answer = os.dup(1)
    os.dup2(2, 1)  # the library prints to standard output: send that to the log
    _tie_to_parent(signal.SIGKILL)
    settings = json.loads(_line())
    if os.getppid() != settings["parent"]:
        os._exit(0)
    threading.Thread(target=_leave_with_parent, args=(settings["parent"],), daemon=True).start()
    try:
        sys.path[:] = settings["path"]
        server = _server(settings)
        port = int(server.listening_address.rpartition(":")[2])
    except Exception as error:
        _report(answer, {"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    # From here on the watching thread does it. The tie is to the thread that started us, which may end before its
    # process does; while the model loads, which can hold the interpreter for long, there is nothing better.
    _tie_to_parent(0)
    _report(answer, {"port": port})
    threading.Event().wait()


def _line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            os._exit(0)
        line += piece
    return line


def _report(answer: int, what: dict[str, Any]) -> None:
    os.write(answer, json.dumps(what).encode() + b"\n")


def _tie_to_parent(number: int) -> None:
    """Ask the kernel, if it can, to send us a signal when the parent dies; 0 takes it back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _leave_with_parent(parent: int) -> None:
    """End this process when the parent closes our input or is gone; another child may keep that pipe open."""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _LOOK)
        if readable and not os.read(0, 1 << 10):
            break
    os._exit(0)


def _server(settings: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_ctx = settings["context_window"] * settings["parallel"]
    params.n_parallel = settings["parallel"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_threads_http = 64  # a waiting request holds one of them
    params.cache_ram_mib = 128
    params.endpoint_slots = True
    params.ui = False
    params.offline = True
    params.verbosity = 1
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
