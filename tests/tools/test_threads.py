"""Tools on threads, and tools that stream progress."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator

import pytest

from glidepath.errors import ToolError
from glidepath.tools import ToolContext, tool

colour = contextvars.ContextVar("colour", default="none")


def run(fn, context=None, **values):
    async def scene():
        return await tool(fn).invoke(values, context)

    return asyncio.run(scene())


def ours():
    return [thread for thread in threading.enumerate() if thread.name.startswith("glidepath")]


def test_a_plain_function_runs_on_a_daemon_thread_that_is_gone_afterwards():
    async def scene():
        thread = await tool(threading.current_thread, name="t").invoke({})
        return thread, ours()

    thread, left = asyncio.run(scene())
    assert thread is not threading.main_thread()
    assert (thread.daemon, left) == (True, [])


def test_context_variables_reach_the_thread():
    def look():
        return colour.get()

    async def scene():
        colour.set("red")
        return await tool(look).invoke({})

    assert asyncio.run(scene()) == "red"


@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_a_thread_raises_is_raised_where_it_is_awaited(error):
    def fail():
        raise error

    async def scene():
        try:
            await tool(fail).invoke({})
        except BaseException as raised:
            return raised
        return None

    assert asyncio.run(scene()) is error


def test_a_stop_iteration_becomes_a_tool_error():
    def fail():
        raise StopIteration("odd")

    with pytest.raises(ToolError, match="StopIteration: odd"):
        run(fail)


def test_a_cancelled_thread_is_abandoned_at_once_and_its_result_discarded():
    go, ended = threading.Event(), threading.Event()

    def stubborn():
        go.wait(10)
        ended.set()
        return "late"

    async def scene():
        context = ToolContext.for_testing()
        task = asyncio.ensure_future(tool(stubborn).invoke({}, context))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        abandoned_while_running = not ended.is_set()
        go.set()
        ours()[0].join(5)
        await asyncio.sleep(0)
        return task.cancelled(), context.abandoned, abandoned_while_running

    assert asyncio.run(scene()) == (True, "thread", True)


def test_a_thread_that_had_ended_when_it_was_cancelled_is_not_abandoned():
    async def scene():
        context = ToolContext.for_testing()
        task = asyncio.ensure_future(tool(lambda: "x", name="t").invoke({}, context))
        await asyncio.sleep(0)
        while ours():  # without the loop, which would take the result
            pass
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), context.abandoned

    assert asyncio.run(scene()) == (True, None)


def test_a_thread_that_outlives_its_loop_is_dropped_silently():
    go = threading.Event()

    async def scene():
        task = asyncio.ensure_future(tool(lambda: go.wait(10), name="t").invoke({}))
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(scene())
    [thread] = ours()
    go.set()
    thread.join(5)
    assert not thread.is_alive()


def test_a_thread_that_cannot_be_started_is_a_tool_error(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ToolError, match="no thread could be started"):
        run(lambda_named)


def lambda_named():
    return "x"


class Clock(asyncio.SelectorEventLoop):
    def __init__(self):
        super().__init__()
        self.workers = set()


def test_a_virtual_loop_knows_which_threads_are_busy():
    go = threading.Event()

    async def scene():
        workers = asyncio.get_running_loop().workers
        first = asyncio.ensure_future(tool(lambda: go.wait(10), name="t").invoke({}))
        second = asyncio.ensure_future(tool(lambda: go.wait(10), name="t").invoke({}))
        await asyncio.sleep(0.01)
        seen = [len(workers)]
        first.cancel()
        await asyncio.wait([first])
        seen.append(len(workers))
        go.set()
        await second
        return [*seen, len(workers)]

    with asyncio.Runner(loop_factory=Clock) as runner:
        assert runner.run(scene()) == [2, 1, 0]


def test_a_plain_function_runs_inline_when_asked():
    async def scene():
        return await tool(threading.current_thread, name="t", isolation="inline").invoke({})

    assert asyncio.run(scene()) is threading.main_thread()


def test_an_async_function_gets_its_own_loop_on_a_thread_when_asked():
    async def where():
        return threading.current_thread(), asyncio.get_running_loop()

    async def scene():
        thread, loop = await tool(where, isolation="thread").invoke({})
        return thread is not threading.main_thread() and loop is not asyncio.get_running_loop()

    assert asyncio.run(scene())


def test_a_thread_may_report_progress():
    def work(context: ToolContext):
        context.report("half")
        return "done"

    async def scene():
        context = ToolContext.for_testing()
        return await tool(work).invoke({}, context), context.reports

    assert asyncio.run(scene()) == ("done", ["half"])


async def stream(count: int):
    for number in range(count):
        yield number


def plain_stream(count: int):
    yield from range(count)


async def gives_stream(count: int) -> AsyncIterator[int]:
    return stream(count)


def gives_stream_plainly(count: int):
    return stream(count)


def gives_coroutine(count: int):
    async def later():
        return count - 1 if count else None

    return later()


@pytest.mark.parametrize("fn", [stream, plain_stream, gives_stream, gives_stream_plainly])
@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_all_but_the_last_of_a_stream_is_progress_and_the_last_is_the_result(fn, isolation):
    async def scene(count):
        context = ToolContext.for_testing()
        result = await tool(fn, isolation=isolation).invoke({"count": count}, context)
        await asyncio.sleep(0)
        return result, context.reports

    assert asyncio.run(scene(3)) == (2, [0, 1])
    assert asyncio.run(scene(1)) == (0, [])
    assert asyncio.run(scene(0)) == (None, [])


def test_a_plain_function_that_gives_a_coroutine_is_awaited():
    assert run(gives_coroutine, count=3) == 2


def test_a_stream_is_closed_at_once_when_its_progress_cannot_be_reported():
    closed = []

    async def endless():
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    class Broken(ToolContext):
        def report(self, progress):
            raise RuntimeError("nobody listens")

    async def scene():
        try:
            await tool(endless).invoke({}, Broken(None, "c", "t", "k"))
        except RuntimeError:
            return list(closed)

    assert asyncio.run(scene()) == [True]


def test_a_cancelled_stream_is_closed():
    closed = []

    async def endless():
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    async def scene():
        task = asyncio.ensure_future(tool(endless).invoke({}))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), closed

    assert asyncio.run(scene()) == (True, [True])
