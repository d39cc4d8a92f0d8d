"""Finds the tasks, threads and child processes that a block of code leaves behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from glidepath._wire import Value

_PROC = Path("/proc")
_GRACE = 0.25
_POLL = 0.002


class Work(Value, frozen=True, kw_only=True):
    """The tasks of this loop, the threads and the child processes that were alive at one moment."""

    tasks: frozenset[Any]
    threads: frozenset[Any]
    processes: frozenset[int]


def work() -> Work:
    """What is alive now. Outside a running loop there are no tasks; without /proc there are no processes."""
    try:
        tasks = frozenset(asyncio.all_tasks())
    except RuntimeError:
        tasks = frozenset()
    return Work(tasks=tasks, threads=frozenset(threading.enumerate()), processes=_children())


def live_work(before: Work, *, abandoned: Collection[str | int] = ()) -> list[str]:
    """What is alive now and was not `before`, one line each, except names and process ids in `abandoned`.

    Names are matched as shell patterns (`asyncio_*`). The task that asks is never in the list.
    """
    return _tasks(before, abandoned) + _list_threads_and_processes(before, abandoned)


@asynccontextmanager
async def no_leftovers(*, abandoned: Collection[str | int] = (), grace: float = _GRACE) -> AsyncIterator[Work]:
    """Raise AssertionError when a task, thread or process made inside the block outlives it.

    Tasks must be gone at once. Threads and processes get `grace` real seconds, since the system ends them in its own
    time. An exception raised in the block is not hidden.
    """
    before = work()
    yield before
    left = _tasks(before, abandoned)
    deadline = time.monotonic() + grace
    while slow := _list_threads_and_processes(before, abandoned):
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)  # noqa: ASYNC251 - real time must pass, even on a virtual loop
        await asyncio.sleep(0)
    if left or slow:
        raise AssertionError("\n".join(["left behind:", *(f"  {line}" for line in (*left, *slow))]))


def _tasks(before: Work, abandoned: Collection[str | int]) -> list[str]:
    alive = work().tasks - before.tasks
    tasks = [
        task for task in alive if task is not asyncio.current_task() and not _is_listed(task.get_name(), abandoned)
    ]
    return sorted(f"task {task.get_name()}: {task.get_coro()!r}" for task in tasks)


def _list_threads_and_processes(before: Work, abandoned: Collection[str | int]) -> list[str]:
    now = work()
    names = [thread.name for thread in now.threads - before.threads if thread.is_alive()]
    pids = sorted(pid for pid in now.processes - before.processes if pid not in abandoned)
    threads = sorted(f"thread {name}" for name in names if not _is_listed(name, abandoned))
    return threads + [f"process {pid}: {_command(pid)}" for pid in pids]


def _is_listed(name: str, abandoned: Collection[str | int]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in abandoned if isinstance(pattern, str))


def _children() -> frozenset[int]:
    """The direct children of this process, as far as /proc tells."""
    lists = [_read(path) for path in _PROC.glob("self/task/*/children")]
    if lists:
        return frozenset(int(pid) for text in lists for pid in text.split())
    me = str(os.getpid())  # a kernel without those lists: ask every process for its parent
    parents = {int(path.parent.name): _read(path).rpartition(")")[2].split() for path in _PROC.glob("[0-9]*/stat")}
    return frozenset(pid for pid, fields in parents.items() if fields[1:2] == [me])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended in the meantime
        return ""


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "ended meanwhile"
    return b" ".join(words).decode(errors="replace").strip() or "ended, not waited for"
