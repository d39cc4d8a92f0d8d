"""Async tests run in real time, on a loop of their own: the servers are real processes."""

import asyncio
import inspect

import pytest

OF_SERVERS = ("_shutdown_watcher",)  # what a server of the SDK in this process leaves behind


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine function to its end; nothing of it may be left on its loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def flown():
        await asyncio.wait_for(pyfuncitem.obj(**given), 60)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        left = [task.get_name() for task in others if task.get_coro().__qualname__ not in OF_SERVERS]
        assert left == [], f"tasks are left: {left}"

    asyncio.run(flown())
    return True
