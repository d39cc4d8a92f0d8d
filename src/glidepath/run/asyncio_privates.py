"""The private parts of asyncio that the runtime needs, each with its reason. No other module looks at any.

asyncio offers no public way to ask these things. A release of Python may rename them:
`tests/run/test_asyncio_privates.py` fails on the release that does.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.runners import Runner
from typing import Any

# ruff: noqa: SLF001 - that is what this module is for

# Only the code that calls `Task.cancel` tells whose cancellation it is: asyncio counts them and keeps no owner.
BY_HAND = Runner._on_sigint.__code__  # type: ignore[attr-defined]
TIMED_OUT = asyncio.Timeout._on_timeout.__code__  # type: ignore[attr-defined]
GROUP_FAILED = asyncio.TaskGroup._on_task_done.__code__

# The task written in Python, which nest_asyncio puts in the place of the one in C: its `cancel` has its own frame.
TASK_CANCEL = asyncio.tasks._PyTask.cancel.__code__  # type: ignore[attr-defined]

# A timeout or task group that moves to another task and keeps the old one would cancel that long after.
SCOPES: dict[type, str] = {asyncio.Timeout: "_task", asyncio.TaskGroup: "_parent_task"}

# Code that waits inside a context manager made of a generator waits in a frame that only the manager holds.
GENERATOR_SCOPES: Any = (contextlib._AsyncGeneratorContextManager, contextlib._GeneratorContextManager)


def must_cancel(task: asyncio.Task[Any]) -> bool:
    """Whether the task was cancelled and has not heard of it yet: `cancelling()` counts those it heard of, too."""
    return getattr(task, "_must_cancel", False)


def is_interrupted_by_user(runner: Runner) -> bool:
    """Whether Ctrl-C has cancelled the main task of `asyncio.run`."""
    return bool(getattr(runner, "_interrupt_count", 0))


def close_pipes(process: asyncio.subprocess.Process) -> None:
    """Stop reading from a process: a grandchild may hold its pipes open forever, and `wait()` would wait for that."""
    process._transport.close()  # type: ignore[attr-defined]


def set_running(loop: asyncio.AbstractEventLoop | None) -> None:
    """Say which loop runs in this thread, as every loop does."""
    asyncio.events._set_running_loop(loop)


def callback_of(handle: object) -> object:
    """What a handle calls: the loop's exception handler is told only of the handle."""
    return getattr(handle, "_callback", None)


def awaited_by(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """What a task waits for; None while it runs, or is about to."""
    return getattr(task, "_fut_waiter", None)


def run_handle(handle: asyncio.Handle) -> None:
    """Run a callback that is ready, as every loop does."""
    handle._run()
