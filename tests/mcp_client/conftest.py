"""Async tests run in real time, on a loop of their own: the servers are real processes."""

import asyncio
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine function to its end; nothing of it may be left on its loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def flown():
        await asyncio.wait_for(pyfuncitem.obj(**given), 60)
        for _ in range(20):  # servers of the SDK in this process need a moment
            left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if not left:
                break
            await asyncio.sleep(0.02)
        assert left == [], f"tasks are left: {left}"

    asyncio.run(flown())
    return True
