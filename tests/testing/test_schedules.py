"""Every order of a small program is tried, once each; a race is found and can be run again."""

import asyncio
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from glidepath.errors import ConfigurationError
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
    choices = [schedule.choices for schedule in Schedules(two(1, "abc"))]
    assert len(choices) == len(set(choices))


def test_how_far_it_went_is_told_and_can_be_bounded():
    whole = Schedules(two(1, "abc")).check()
    assert whole.complete
    part = Schedules(two(1, "abc"), most=10).check()
    assert (part.schedules, part.complete) == (10, False)
    short = Schedules(two(1, "abc"), detours=1).check()
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


def is_two(money):
    return money == 2


def read_program(error):
    return f"from glidepath{str(error).rpartition(chr(10) * 2 + 'from glidepath')[2]}"


def test_a_schedule_that_fails_is_printed_as_a_program_that_fails_the_same_way():
    with pytest.raises(ScheduleError) as caught:
        Schedules(lost_update).check(is_two)
    program = read_program(caught.value)
    assert f"from {__name__} import lost_update" in program
    with pytest.raises(ScheduleError) as again:
        exec(program, {})
    assert str(again.value) == str(caught.value)


def test_where_nobody_can_import_what_must_hold_the_program_prints_what_did_not(capsys):
    with pytest.raises(ScheduleError) as caught:
        Schedules(lost_update).check(lambda money: money == 2)
    exec(read_program(caught.value), {})
    assert capsys.readouterr().out == "1\n"


def test_a_scenario_that_nobody_can_import_is_asked_for():
    async def scenario():
        raise ValueError("no")

    with pytest.raises(ScheduleError) as caught:
        Schedules(scenario).check()
    program = read_program(caught.value)
    assert "# scenario: as you have given it" in program
    with pytest.raises(ScheduleError, match="ValueError: no"):
        exec(program, {"scenario": scenario})


def test_a_program_that_was_run_as_a_script_is_imported_by_its_name(tmp_path):
    """What fails in a script is printed as a program that runs beside it, and fails there, too."""
    script = tmp_path / "tills.py"
    script.write_text(
        "import asyncio\nfrom glidepath.testing import Schedules\n\n"
        "async def life():\n    await asyncio.sleep(0)\n    return 1\n\n"
        "def is_two(money):\n    return money == 2\n\n"
        "if __name__ == '__main__':\n    Schedules(life).check(is_two)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    program = read_program(done.stderr.rstrip())
    assert "from tills import life\nfrom tills import is_two" in program
    again = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert again.stderr.partition("this schedule fails")[2] == done.stderr.partition("this schedule fails")[2] != ""


def test_a_death_that_fails_is_printed_as_a_program_that_repeats_it():
    disk = []

    async def life():
        disk.clear()
        disk.append("paid")
        await asyncio.sleep(0)
        disk.append("noted")

    async def recover():
        return "noted" in disk

    with pytest.raises(ScheduleError) as caught:
        Schedules(life).check_crashes(recover, bool)
    program = read_program(caught.value)
    assert "# scenario and recover: as you have given them" in program
    with pytest.raises(ScheduleError) as again:
        exec(program, {"scenario": life, "recover": recover})
    assert str(again.value) == str(caught.value)


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


# --- one of all orders that come to the same ------------------------------------------------------------------------


class Cell:
    """A number that tasks share."""

    def __init__(self):
        self.value = 0


def random_tasks(programs):
    """Each program is a list of steps: add to a cell, copy one cell to another, or keep to itself."""

    async def scenario():
        cells = [Cell(), Cell()]

        async def run(name, steps):
            seen = []
            for kind in steps:
                if kind == "own":
                    seen.append(name)
                elif kind == "copy":
                    cells[1].value = cells[0].value
                else:
                    cells[kind].value = cells[kind].value * 2 + name
                seen.append(cells[1].value if kind == "copy" else None)
                await asyncio.sleep(0)
            return tuple(seen)

        tasks = [asyncio.ensure_future(run(name, steps)) for name, steps in enumerate(programs, 1)]
        return tuple([await task for task in tasks]), tuple(cell.value for cell in cells)

    return scenario


steps_of_a_task = st.lists(st.sampled_from([0, 1, "copy", "own"]), max_size=2)


@settings(max_examples=25, deadline=None)
@given(st.lists(steps_of_a_task, min_size=2, max_size=2) | st.lists(steps_of_a_task.map(lambda it: it[:1]), max_size=3))
def test_the_reduction_misses_no_result(programs):
    scenario = random_tasks(programs)
    whole, reduced = Schedules(scenario), Schedules(scenario, shared=[Cell])
    assert {schedule.result for schedule in reduced} == {schedule.result for schedule in whole}


def tasks_with_everything(programs):
    """The same with what tasks do to each other: they wait, wake, lock, sleep, start others, and cancel."""

    async def scenario():
        cells, lock, event, tasks = [Cell(), Cell()], asyncio.Lock(), asyncio.Event(), []

        async def do(name, kind):
            if kind == "lock":
                async with lock:
                    cells[0].value = cells[0].value * 3 + name
                    await asyncio.sleep(0)
            elif kind == "set":
                event.set()
            elif kind == "wait":
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await event.wait()
                        cells[1].value = cells[1].value * 3 + name
            elif kind == "sleep":
                await asyncio.sleep(1)
            elif kind == "start":
                await asyncio.gather(do(name, 0), do(name + 3, 0))
            elif kind == "cancel":
                tasks[name % len(tasks)].cancel()
            else:
                cells[kind].value = cells[kind].value * 2 + name

        async def run(name, steps):
            for kind in steps:
                await do(name, kind)
                await asyncio.sleep(0)
            return cells[0].value

        tasks += [asyncio.ensure_future(run(name, steps)) for name, steps in enumerate(programs, 1)]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        return tuple(map(repr, done)), tuple(cell.value for cell in cells)

    return scenario


everything = st.lists(st.sampled_from([0, 1, "lock", "set", "wait", "sleep", "start", "cancel"]), max_size=2)


@settings(max_examples=40, deadline=None)
@given(st.lists(everything, min_size=2, max_size=2) | st.lists(everything.map(lambda it: it[:1]), max_size=3))
def test_the_reduction_misses_nothing_that_tasks_do_to_each_other(programs):
    scenario = tasks_with_everything(programs)
    whole = {schedule.result for schedule in Schedules(scenario, most=3_000)}
    assert whole <= {schedule.result for schedule in Schedules(scenario, shared=[Cell])}


def test_a_death_with_the_reduction_is_never_tried_at_a_time_that_has_not_come():
    """A timer of one task is not due before the other one has done what it has to do now."""
    tills = []

    async def scenario():
        async def note(name, seconds):
            await asyncio.sleep(seconds)
            tills[0].notes += (name,)

        tills[:] = [Till()]
        tasks = [asyncio.ensure_future(note("late", 5)), asyncio.ensure_future(note("early", 0))]
        for task in tasks:
            await task

    async def recover():
        return tills[0].notes

    for shared in (None, [Till], []):
        found = set()
        Schedules(scenario, shared=shared).check_crashes(recover, found.add)
        assert found == {(), ("early",), ("early", "late")}


def test_tasks_that_share_nothing_need_no_second_schedule():
    scenario = random_tasks([["own", "own"], ["own", "own"], ["own"]])
    whole, reduced = Schedules(scenario, most=50).check(), Schedules(scenario, shared=[Cell]).check()
    assert reduced.complete
    assert reduced.schedules < 20 < whole.schedules


def test_a_race_is_found_with_the_reduction_too_and_its_schedule_replays():
    async def scenario():
        cell = Cell()

        async def deposit():
            before = cell.value
            await asyncio.sleep(0)
            cell.value = before + 1

        tasks = [asyncio.ensure_future(deposit()) for _ in range(2)]
        for task in tasks:
            await task
        return cell.value

    schedules = Schedules(scenario, shared=[Cell])
    with pytest.raises(ScheduleError) as caught:
        schedules.check(lambda money: money == 2)
    assert schedules.replay(caught.value.choices) == 1


def test_one_task_that_cancels_another_is_seen():
    async def scenario():
        async def work():
            await asyncio.sleep(0)
            return "done"

        async def stop(task):
            task.cancel()

        task = asyncio.ensure_future(work())
        other = asyncio.ensure_future(stop(task))
        await other
        try:
            return await task
        except asyncio.CancelledError:
            return "cancelled"

    seen = {schedule.result for schedule in Schedules(scenario, shared=[])}
    assert seen == {schedule.result for schedule in Schedules(scenario)} == {"done", "cancelled"}


def test_classes_are_as_they_were_afterwards():
    before = dict(vars(Cell))
    Schedules(random_tasks([[0], [0]]), shared=[Cell]).check()
    assert dict(vars(Cell)) == before


def test_a_class_that_cannot_be_watched_is_refused():
    with pytest.raises(ConfigurationError, match=r"shared=dict: .*written in Python"):
        Schedules(two(), shared=[dict]).check()


def test_a_bound_and_the_reduction_exclude_each_other():
    with pytest.raises(ConfigurationError, match="not both"):
        Schedules(two(), shared=[Cell], detours=1)


# --- death ----------------------------------------------------------------------------------------------------------


def paying(*, noted_first):
    """Pays once and notes it; the next process pays if there is no note."""
    disk = []

    async def life():
        if noted_first:
            disk.append("noted")
            await asyncio.sleep(0)
            disk.append("paid")
        else:
            disk.append("paid")
            await asyncio.sleep(0)
            disk.append("noted")
        try:
            await asyncio.sleep(0)
        finally:
            disk.append("cleaned up")

    def scenario():
        disk.clear()
        return life()

    async def recover():
        if "noted" not in disk:
            disk.append("paid")
        return tuple(disk)

    return Schedules(scenario), recover


def test_a_death_between_an_effect_and_its_note_is_found_and_can_be_repeated():
    schedules, recover = paying(noted_first=False)
    with pytest.raises(ScheduleError, match=r"replay_crash\(\[\], 1, recover\)") as caught:
        schedules.check_crashes(recover, lambda disk: disk.count("paid") < 2)
    assert schedules.replay_crash(caught.value.choices, 1, recover) == ("paid", "paid")


def test_a_death_is_tried_in_every_state_and_nothing_of_the_dead_runs_before_the_next_process():
    schedules, recover = paying(noted_first=True)
    found = set()
    explored = schedules.check_crashes(recover, found.add)
    assert explored.crashes == explored.states == 4  # the last one ends the loop
    assert found == {("noted",), ("noted", "paid"), ("noted", "paid", "cleaned up")}


class Till:
    def __init__(self):
        self.notes = ()


@pytest.mark.parametrize("shared", [None, [Till]])
def test_of_deaths_that_leave_the_same_behind_one_is_tried(shared):
    tills = []

    async def scenario():
        async def note(name):
            await asyncio.sleep(0)
            tills[0].notes += (name,)
            await asyncio.sleep(0)

        tills[:] = [Till()]
        await asyncio.gather(note("a"), note("b"))

    async def recover():
        return tills[0].notes

    schedules, every, some = Schedules(scenario, shared=shared), set(), set()
    whole = schedules.check_crashes(recover, every.add)
    fewer = schedules.check_crashes(recover, some.add, survives=lambda: tills[0].notes)
    assert every == some == {(), ("a",), ("b",), ("a", "b"), ("b", "a")}
    assert (whole.crashes, fewer.crashes) == (whole.states, 5)
    assert fewer.states == whole.states > 5
    assert schedules.check_crashes(recover, survives=lambda: None).crashes == 1


def test_the_same_left_behind_at_another_time_is_another_death():
    async def scenario():
        await asyncio.sleep(5)
        await asyncio.sleep(5)

    async def recover():
        return asyncio.get_running_loop().time()

    times = []
    Schedules(scenario).check_crashes(recover, times.append, survives=lambda: None)
    assert times == [3600, 3605, 3610]


def test_the_next_process_begins_when_every_lease_is_over():
    async def scenario():
        await asyncio.sleep(5)

    async def recover():
        return asyncio.get_running_loop().time()

    assert Schedules(scenario).replay_crash((), 1, recover) == 3600


def test_a_death_after_the_end_of_the_scenario_is_an_error_of_the_caller():
    schedules, recover = paying(noted_first=True)
    with pytest.raises(ScheduleError, match="ends after 4 callbacks, before 9"):
        schedules.replay_crash((), 9, recover)
