"""Every order of a small program is tried, once each; a race is found and can be run again."""

import asyncio

import pytest

from glidepath.testing import ScheduleError, Schedules


async def steps(name, log, count=1):
    for number in range(count):
        log.append(f"{name}{number}")
        await asyncio.sleep(0)


def two(count=1, names="ab"):
    async def scenario():
        log = []
        await asyncio.gather(*[steps(name, log, count) for name in names])
        return "".join(log)

    return scenario


def test_two_tasks_run_in_both_orders():
    assert {schedule.result for schedule in Schedules(two())} == {"a0b0", "b0a0"}


def test_every_interleaving_of_two_tasks_with_two_steps_is_seen():
    seen = {schedule.result for schedule in Schedules(two(2))}
    assert len(seen) == 6  # four steps, two of each: 4! / (2! 2!)


def test_no_schedule_is_tried_twice():
    choices = [schedule.choices for schedule in Schedules(two(2, "abc"))]
    assert len(choices) == len(set(choices))


def test_how_far_it_went_is_told_and_can_be_bounded():
    whole = Schedules(two(2, "abc")).check()
    assert whole.complete
    part = Schedules(two(2, "abc"), most=10).check()
    assert (part.schedules, part.complete) == (10, False)
    short = Schedules(two(2, "abc"), detours=1).check()
    assert 1 < short.schedules < whole.schedules


async def lost_update():
    """A planted race: both read before either writes."""
    shared = {"money": 0}

    async def deposit():
        before = shared["money"]
        await asyncio.sleep(0)
        shared["money"] = before + 1

    async def later():
        await asyncio.sleep(0)
        await deposit()

    await asyncio.gather(deposit(), later())
    return shared["money"]


def test_a_planted_race_is_found_and_its_schedule_replays():
    schedules = Schedules(lost_update)
    assert schedules.replay() == 2  # the plain order hides it
    with pytest.raises(ScheduleError, match=r"replay\(\[.*\]\)") as caught:
        schedules.check(lambda money: money == 2)
    assert schedules.replay(caught.value.choices) == 1
    assert {schedule.result for schedule in schedules} == {1, 2}


def test_an_error_in_one_schedule_says_how_to_run_it_again():
    async def scenario():
        done = []

        async def first():
            done.append(1)

        async def second():
            assert done, "the first has not run"

        await asyncio.gather(first(), second())

    with pytest.raises(ScheduleError, match="the first has not run") as caught:
        Schedules(scenario).check()
    with pytest.raises(ScheduleError, match="the first has not run"):
        Schedules(scenario).replay(caught.value.choices)


def test_a_deadlock_in_one_schedule_is_found_and_says_who_waits():
    async def scenario():
        left, right = asyncio.Lock(), asyncio.Lock()

        async def both(one, other):
            async with one:
                await asyncio.sleep(0)
                async with other:
                    pass

        async with asyncio.TaskGroup() as group:
            group.create_task(both(left, right), name="here")
            group.create_task(both(right, left), name="there")

    with pytest.raises(ScheduleError, match=r"stuck(.|\n)*here(.|\n)*there"):
        Schedules(scenario).check()


def test_time_is_virtual_and_timers_that_are_due_together_race():
    async def scenario():
        loop, log = asyncio.get_running_loop(), []

        async def after(name, seconds):
            await asyncio.sleep(seconds)
            log.append((name, loop.time()))

        await asyncio.gather(after("a", 3600), after("b", 3600), after("c", 7200))
        return tuple(log)

    seen = {schedule.result for schedule in Schedules(scenario)}
    assert seen == {
        (("a", 3600), ("b", 3600), ("c", 7200)),
        (("b", 3600), ("a", 3600), ("c", 7200)),
    }


def test_a_timeout_can_come_before_or_after_what_it_bounds():
    async def scenario():
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(5)
        except TimeoutError:
            return "late"
        return "in time"

    assert {schedule.result for schedule in Schedules(scenario)} == {"late", "in time"}


def test_work_for_a_thread_is_one_callback():
    async def scenario():
        log = []
        await asyncio.gather(asyncio.to_thread(log.append, "thread"), steps("a", log, 2))
        return tuple(log)

    seen = {schedule.result for schedule in Schedules(scenario)}
    assert len(seen) == 3
    assert all("thread" in order for order in seen)


def test_what_a_scenario_leaves_behind_is_cancelled():
    ended = []

    async def scenario():
        async def lingering():
            try:
                await asyncio.sleep(10**6)
            finally:
                ended.append("cancelled")

        asyncio.ensure_future(lingering())  # noqa: RUF006 - left behind on purpose
        await asyncio.sleep(0)
        return True

    count = sum(1 for _ in Schedules(scenario))
    assert len(ended) >= count - 1 > 0  # in one order it was never begun


def test_a_scenario_that_is_not_the_same_each_time_is_told_so():
    runs = []

    async def scenario():
        runs.append(1)
        await asyncio.gather(*[steps(name, []) for name in "abc"[len(runs) - 1 :]])

    with pytest.raises(ScheduleError, match="not the same each time"):
        Schedules(scenario).check()
