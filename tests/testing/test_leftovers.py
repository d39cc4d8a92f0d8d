"""What outlives a block of code is named."""

import asyncio
import subprocess
import threading
from pathlib import Path

import pytest

from glidepath.testing import live_work, no_leftovers, virtual, work


@pytest.mark.process
@virtual
async def test_a_block_that_cleans_up_passes():
    async with no_leftovers():
        await asyncio.gather(asyncio.sleep(1), asyncio.sleep(2))
        thread = threading.Thread(target=lambda: None)
        thread.start()
        process = await asyncio.create_subprocess_exec("true")
        await process.wait()
        thread.join()


@virtual
async def test_a_task_left_behind_is_named():
    with pytest.raises(AssertionError, match="task forgotten"):
        async with no_leftovers():
            task = asyncio.create_task(asyncio.sleep(100), name="forgotten")
    task.cancel()


@virtual
async def test_a_task_that_was_cancelled_but_not_awaited_is_still_alive():
    with pytest.raises(AssertionError, match="task hasty"):  # noqa: PT012
        async with no_leftovers():
            task = asyncio.create_task(asyncio.sleep(100), name="hasty")
            await asyncio.sleep(0)
            task.cancel()


@virtual
async def test_a_thread_left_behind_is_named_and_one_that_ends_soon_is_not():
    release = threading.Event()
    with pytest.raises(AssertionError, match="thread stubborn"):
        async with no_leftovers(grace=0.01):
            threading.Thread(target=release.wait, name="stubborn", daemon=True).start()
    release.set()
    async with no_leftovers(grace=5.0):
        threading.Timer(0.01, lambda: None).start()


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="child processes are read from /proc")
@virtual
async def test_a_process_left_behind_is_named_by_its_command():
    process = None
    try:
        with pytest.raises(AssertionError, match=r"process \d+: sleep 60"):
            async with no_leftovers(grace=0.01):
                process = subprocess.Popen(["sleep", "60"])  # noqa: ASYNC220
        async with no_leftovers(abandoned=[process.pid], grace=0.01):
            pass
    finally:
        process.kill()
        process.wait()


@virtual
async def test_what_is_listed_as_abandoned_is_left_out():
    release = threading.Event()
    async with no_leftovers(abandoned=("tool-*", "known"), grace=0.01):
        threading.Thread(target=release.wait, name="tool-7", daemon=True).start()
        task = asyncio.create_task(asyncio.sleep(100), name="known")
    release.set()
    task.cancel()


@virtual
async def test_an_error_in_the_block_is_not_covered_up():
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with no_leftovers():
            task = asyncio.create_task(asyncio.sleep(100))
            _ = 1 / 0
    task.cancel()


def test_what_was_alive_before_does_not_count_and_no_loop_is_needed():
    release = threading.Event()
    early = threading.Thread(target=release.wait, name="early")
    early.start()
    before = work()
    late = threading.Thread(target=release.wait, name="late")
    late.start()
    assert live_work(before) == ["thread late"]
    release.set()
    early.join()
    late.join()
    assert live_work(before) == []


def test_the_task_that_asks_is_not_left_behind():
    before = work()

    async def main():
        return live_work(before)

    assert asyncio.run(main()) == []
