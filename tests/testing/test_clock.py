"""Virtual time: hours pass at once, real work is waited for, and a deadlock is an error."""

import asyncio
import sys
import threading
import time

import pytest
from hypothesis import given, settings, strategies as st

from glidepath.testing import VirtualClock, VirtualLoop, VirtualTimeError, no_leftovers, virtual

DELAYS = st.lists(st.floats(min_value=0, max_value=10_000), max_size=8)


def test_an_hours_sleep_passes_at_once():
    clock = VirtualClock()
    began = time.monotonic()
    clock.run(asyncio.sleep(3600))
    assert clock.time() == 3600
    assert time.monotonic() - began < 1


def test_time_goes_on_from_one_run_to_the_next():
    clock = VirtualClock(start=100.0, epoch=5000.0)
    clock.run(asyncio.sleep(1))
    clock.run(asyncio.sleep(2))
    assert (clock.time(), clock.now()) == (103.0, 5003.0)


@virtual(start=7.0, epoch=1000.0)
async def test_the_loop_tells_both_times():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await asyncio.sleep(2.5)
    assert (loop.time(), loop.epoch()) == (9.5, 1002.5)


@given(DELAYS)
def test_sleepers_wake_in_the_order_of_their_delays(delays):
    woken = []

    async def sleeper(delay):
        await asyncio.sleep(delay)
        woken.append((delay, asyncio.get_running_loop().time()))

    async def main():
        async with asyncio.TaskGroup() as group:
            for delay in delays:
                group.create_task(sleeper(delay))

    VirtualClock().run(main())
    assert [delay for delay, _ in woken] == pytest.approx(sorted(delays), abs=1e-6)
    assert [at for _, at in woken] == pytest.approx([delay for delay, _ in woken], abs=1e-5)


@given(DELAYS)
def test_sleeps_in_a_row_add_up(delays):
    clock = VirtualClock()

    async def main():
        for delay in delays:
            await asyncio.sleep(delay)

    clock.run(main())
    assert clock.time() == pytest.approx(sum(delays), abs=1e-4)


@virtual
async def test_timeouts_fire_on_time():
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.sleep(31)
    assert loop.time() == 30
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loop.create_future(), 10)
    assert loop.time() == 40
    async with asyncio.timeout(30):
        await asyncio.sleep(29)
    assert loop.time() == 69


@virtual(start=1e9)
async def test_far_away_times_do_not_spin():
    await asyncio.sleep(0.001)
    await asyncio.sleep(90_000)
    assert asyncio.get_running_loop().time() == pytest.approx(1e9 + 90_000.001, abs=1e-5)


# --- limits and deadlocks -------------------------------------------------------------------------------------


async def stuck_for_ever():
    await asyncio.get_running_loop().create_future()


def test_a_deadlock_is_an_error_that_names_the_tasks_and_where_they_wait():
    async def main():
        waiting = asyncio.create_task(stuck_for_ever(), name="the stuck one")
        await waiting

    with pytest.raises(VirtualTimeError) as caught:
        VirtualClock(real_wait=0.001).run(main())
    text = str(caught.value)
    assert "the virtual loop has nothing left to wait for" in text
    line = stuck_for_ever.__code__.co_firstlineno + 1
    assert f"the stuck one: waits in stuck_for_ever at {__file__}:{line}" in text


def test_after_a_deadlock_everything_is_cancelled_and_closed():
    seen = []

    async def main():
        try:
            await stuck_for_ever()
        finally:
            await asyncio.sleep(10)
            seen.append("cleaned up")

    with pytest.raises(VirtualTimeError):
        VirtualClock(real_wait=0.001).run(main())
    assert seen == ["cleaned up"]


def test_time_without_end_is_an_error():
    async def main():
        while True:  # noqa: ASYNC110
            await asyncio.sleep(60)

    clock = VirtualClock(start=50.0, limit=600)
    with pytest.raises(VirtualTimeError, match="passed its limit of 600 seconds"):
        clock.run(main())
    assert clock.time() <= 650


def test_a_loop_that_never_rests_is_an_error():
    cleaned = []

    async def main():
        try:
            while True:  # noqa: ASYNC110
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(1)
            cleaned.append("up")

    with pytest.raises(VirtualTimeError, match="went round 1000 times"):
        VirtualClock(max_iterations=1000).run(main())
    assert cleaned == ["up"]


def test_leftover_tasks_are_cancelled_and_generators_closed():
    ended = []

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            ended.append("generator")

    async def forgotten():
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("task")

    kept = []

    async def main():
        kept.append(asyncio.create_task(forgotten()))
        kept.append(numbers())
        await anext(kept[1])

    clock = VirtualClock()
    clock.run(main())
    assert sorted(ended) == ["generator", "task"]
    assert clock.time() == 0


# --- real work ------------------------------------------------------------------------------------------------


@virtual
async def test_time_stands_still_while_a_worker_is_busy():
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def finish():
        loop.workers.discard("my thread")
        done.set_result(None)

    def work():
        time.sleep(0.03)
        loop.call_soon_threadsafe(finish)

    late = loop.call_later(5, done.cancel)
    loop.workers.add("my thread")
    thread = threading.Thread(target=work)
    thread.start()
    await done
    assert loop.time() == 0
    late.cancel()
    thread.join()


@virtual
async def test_threads_of_an_executor_are_workers():
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(1):
        assert await asyncio.to_thread(lambda: time.sleep(0.03) or "result") == "result"
    assert loop.time() == 0
    assert loop.workers == set()


def test_closing_waits_for_a_thread_whose_result_nobody_wants():
    ended = []
    started = threading.Event()

    def slow():
        started.set()
        time.sleep(0.1)
        ended.append("thread")

    async def main():
        thread = asyncio.get_running_loop().run_in_executor(None, slow)
        while not started.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        thread.cancel()

    VirtualClock(real_wait=0.001).run(main())
    assert ended == ["thread"]


def test_the_loop_stays_awake_for_others_while_a_worker_is_busy():
    release = threading.Event()

    async def main():
        blocked = asyncio.create_task(asyncio.to_thread(release.wait))
        for _ in range(100):
            await asyncio.sleep(0)
        release.set()
        return await blocked

    assert VirtualClock().run(main())


def test_a_worker_that_never_ends_is_an_error():
    async def main():
        asyncio.get_running_loop().workers.add("the sleepy one")
        try:
            await asyncio.sleep(1)
        finally:
            asyncio.get_running_loop().workers.clear()

    with pytest.raises(VirtualTimeError, match="real seconds for 'the sleepy one'"):
        VirtualClock(busy_limit=0.02).run(main())


def test_a_thread_nobody_announced_can_still_wake_the_loop():
    async def main():
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        threading.Timer(0.01, loop.call_soon_threadsafe, (done.set_result, "late")).start()
        return await done

    assert VirtualClock(real_wait=5.0).run(main()) == "late"


@pytest.mark.process
@virtual(real_wait=5.0)
async def test_a_timeout_waits_for_what_a_real_process_says():
    async with asyncio.timeout(1), no_leftovers():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", "print('hello')", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    assert output.strip() == b"hello"
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.process
@virtual
async def test_a_process_without_pipes_is_waited_for():
    process = await asyncio.create_subprocess_shell("exit 3")
    assert await process.wait() == 3


@pytest.mark.process
@virtual(real_wait=0.01)
async def test_time_moves_on_when_a_real_process_stays_silent():
    process = await asyncio.create_subprocess_exec("sleep", "60", stdout=asyncio.subprocess.PIPE)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await process.stdout.read()
    assert asyncio.get_running_loop().time() == 30
    process.kill()
    await process.communicate()


@virtual
async def test_sockets_work_and_hold_time():
    async def serve(reader, writer):
        writer.write(await reader.readline())
        writer.close()

    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(1):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"ping\n")
        assert await reader.read() == b"ping\n"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    assert loop.time() == 0


# --- the decorator --------------------------------------------------------------------------------------------


@pytest.fixture
def answer():
    return 42


@pytest.mark.parametrize("half", [21])
@virtual
async def test_fixtures_and_parameters_arrive(answer, half):
    await asyncio.sleep(1000)
    assert answer == 2 * half


@given(st.integers())
@settings(max_examples=5)
@virtual
async def test_hypothesis_arguments_arrive_on_a_fresh_clock(number):
    assert asyncio.get_running_loop().time() == 0
    await asyncio.sleep(abs(number) % 1000)


def test_the_decorated_function_returns_what_the_coroutine_returns_and_keeps_its_name():
    @virtual
    async def named(a, *, b):
        """Says the sum."""
        return a + b

    assert named(1, b=2) == 3
    assert (named.__name__, named.__doc__) == ("named", "Says the sum.")
