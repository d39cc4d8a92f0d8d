"""The other end of `processes`: runs one function in this process and sends its outcome back.

Run by path as a script, with the number of a socket as its only argument, so it imports nothing but the standard
library: not even glidepath, unless the function's own module does.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import inspect
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

MAIN = "__glidepath_main__"
"""What the caller's main script is called here, so that its `if __name__ == "__main__"` stays false."""

HEADER = 8
_MAX_TRACEBACK = 20_000
_MAX_MESSAGE = 20_000


class _Terminated(BaseException):
    """SIGTERM arrived: unwinds the function, so that its `finally` blocks run."""


class _RunReached(BaseException):
    """The main script reached the line that starts its event loop."""


def main(descriptor: int) -> None:
    """Read one job, run it, send its reply."""
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    job = pickle.loads(_receive(connection))  # noqa: S301 - our own parent wrote it
    threading.Thread(target=_die_with_parent, args=(connection,), daemon=True).start()
    try:
        signal.signal(signal.SIGTERM, _terminate)
        reply = run(job)
        connection.sendall(len(reply).to_bytes(HEADER, "big") + reply)
    except _Terminated:
        # Let the signal kill us after all, so that the exit status tells what happened.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _terminate(_number: int, _frame: types.FrameType | None) -> NoReturn:
    raise _Terminated


def _die_with_parent(connection: socket.socket) -> None:
    """End this process and its group when the parent is gone: it closes its end only after it has reaped us."""
    try:
        while connection.recv(1):
            pass
    except OSError:
        return
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _receive(connection: socket.socket) -> bytes:
    def exactly(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = connection.recv(min(count - len(data), 1 << 20))
            if not chunk:
                raise SystemExit("the parent process is gone")
            data += chunk
        return bytes(data)

    return exactly(int.from_bytes(exactly(HEADER), "big"))


def run(job: dict[str, Any]) -> bytes:
    """The pickled reply: ("ok", result) or ("error", type name, message, traceback text, kind, place)."""
    try:
        sys.path[:] = job["path"]
        function = load(job)
        result = call(function, pickle.loads(job["values"]))  # noqa: S301 - our own parent wrote it
        try:
            return pickle.dumps(("ok", result))
        except Exception as error:
            raise TypeError(
                f"the result, a {type(result).__name__}, cannot leave the process ({error}): return plain data"
            ) from error
    except _Terminated:
        raise
    except BaseException as error:
        text, trace = _text(error)[:_MAX_MESSAGE], _trace(error)
        return pickle.dumps(("error", type(error).__name__, text, trace, _error_kind_of(error), _place(error)))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message could not be read)"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:]
    except Exception:
        return ""


def _place(error: BaseException) -> str:
    """The module and line that raised it."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return "" if step is None else f"{step.tb_frame.f_globals.get('__name__')}:{step.tb_lineno}"


def _error_kind_of(error: BaseException) -> str:
    """Which of our own errors it is, by name: glidepath need not be importable here."""
    ours = {base.__name__ for base in type(error).__mro__ if base.__module__ == "glidepath.values.errors"}
    return "fatal" if "FatalToolError" in ours else "tool" if "ToolError" in ours else "other"


def load(job: dict[str, Any]) -> Any:
    """The function a job names, imported by its module's name, or from its file when that name is not importable."""
    if job["main"] is not None:
        module = load_main(*job["main"])
    else:
        try:
            module = importlib.import_module(job["module"])
        except ModuleNotFoundError:
            if job["file"] is None:
                raise
            module = _load_file(job["module"], job["file"])
    found = getattr(module, job["name"], None)
    if found is None:
        raise LookupError(f"{job['module']} has no function {job['name']!r} when it is imported again")
    # A decorated function is a Tool under its own name.
    return found if inspect.isroutine(found) else getattr(found, "fn", found)


def _load_file(name: str, path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"{name} cannot be imported from {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_main(path: str, package: str | None) -> types.ModuleType:
    """The caller's main script, run up to the line that starts its event loop.

    A script without a `__main__` guard would otherwise start its agent again, here. When it called us, the caller's
    own script had come exactly this far, so everything the function needs is defined.
    """
    module = types.ModuleType(MAIN)
    module.__file__ = path
    module.__package__ = package
    sys.modules[MAIN] = sys.modules["__main__"] = module

    def stop_at_run(*args: object, **_: object) -> NoReturn:
        for arg in args:
            if inspect.iscoroutine(arg):
                arg.close()  # or Python warns that it was never awaited
        raise _RunReached

    loops = asyncio.base_events.BaseEventLoop
    patched: list[tuple[Any, str]] = [
        (asyncio, "run"),
        (asyncio.runners, "run"),
        (asyncio.Runner, "run"),
        (loops, "run_until_complete"),
        (loops, "run_forever"),
    ]
    saved = [getattr(owner, name) for owner, name in patched]
    for owner, name in patched:
        setattr(owner, name, stop_at_run)
    try:
        exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - the caller's own script
    except _RunReached:
        pass
    finally:
        for (owner, name), original in zip(patched, saved, strict=True):
            setattr(owner, name, original)
    return module


def call(function: Callable[..., Any], values: dict[str, Any]) -> Any:
    """What the function returns; a coroutine or an async iterator runs to its end on its own loop."""
    result = function(**values)
    if inspect.isawaitable(result) or hasattr(result, "__aiter__"):
        return asyncio.run(_settle(result))
    if inspect.isgenerator(result):
        return functools.reduce(lambda _, item: item, result, None)
    return result


async def _settle(result: Any) -> Any:
    if inspect.isawaitable(result):
        result = await result
    if hasattr(result, "__aiter__"):
        last = None
        async for item in result:
            last = item
        return last
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]))
