"""The private parts of asyncio that the runtime relies on are there, in every Python it supports."""

import asyncio
import contextlib

from glidepath.run.asyncio_privates import BY_HAND, GENERATOR_SCOPES, GROUP_FAILED, SCOPES, TIMED_OUT, must_cancel
from glidepath.testing import virtual


def test_the_code_that_cancels_is_known_by_its_code():
    names = [code.co_name for code in (BY_HAND, TIMED_OUT, GROUP_FAILED)]
    assert names == ["_on_sigint", "_on_timeout", "_on_task_done"]


@virtual
async def test_a_task_that_has_cancelled_itself_and_not_waited_yet_must_cancel():
    seen = []

    async def work():
        seen.append(must_cancel(asyncio.current_task()))
        asyncio.current_task().cancel()
        seen.append(must_cancel(asyncio.current_task()))

    await asyncio.wait([asyncio.create_task(work())])
    assert seen == [False, True]


@virtual
async def test_a_timeout_and_a_task_group_keep_their_task_under_the_known_names():
    async with asyncio.timeout(60) as limit, asyncio.TaskGroup() as group:
        for scope in (limit, group):
            assert getattr(scope, SCOPES[type(scope)]) is asyncio.current_task()


def test_a_context_manager_made_of_a_generator_is_known_and_holds_it():
    @contextlib.contextmanager
    def plain():
        yield

    assert isinstance(plain(), GENERATOR_SCOPES)
    assert plain().gen is not None
