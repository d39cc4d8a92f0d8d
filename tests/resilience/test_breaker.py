"""The breaker itself, and the retry budget: what they promise, whoever calls them and from whichever thread."""

import copy
import gc
import pickle
import threading
import weakref

from hypothesis import given, strategies as st

from glidepath import tool
from glidepath.resilience import model_breaker
from glidepath.run import (
    MARK_EVERY,
    MODEL_FAILURES,
    PROBE_EVERY,
    TOOL_FAILURES,
    Admission,
    Breaker,
    BreakerState,
    Health,
    tool_breaker,
)
from glidepath.testing import ScriptedModel


def opened(limit=3, now=0.0):
    breaker = Breaker(limit)
    for _ in range(limit):
        breaker.record_failure(now)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row_and_not_before():
    breaker = Breaker(3)
    assert [breaker.record_failure(0) for _ in range(3)] == [False, False, True]
    assert breaker.state is BreakerState.OPEN
    assert breaker.admit(0) is Admission.REFUSED


def test_a_success_in_between_starts_the_count_again():
    breaker = Breaker(3)
    breaker.record_failure(0)
    breaker.record_failure(0)
    assert breaker.record_success() is False
    assert not breaker.alert
    assert not any([breaker.record_failure(0), breaker.record_failure(0)])
    assert breaker.admit(0) is Admission.FREE


def test_one_probe_every_thirty_seconds():
    breaker = opened()
    assert [breaker.admit(t) for t in (0, 15, 29.9)] == [Admission.REFUSED] * 3
    assert breaker.admit(30) is Admission.PROBE
    assert breaker.state is BreakerState.HALF_OPEN
    assert [breaker.admit(t) for t in (30, 45, 59.9)] == [Admission.REFUSED] * 3
    assert breaker.admit(60) is Admission.PROBE  # the first never came back


def test_a_probe_decides():
    breaker = opened()
    breaker.admit(30)
    assert breaker.record_failure(31, probe=True)
    assert (breaker.state, breaker.admit(59)) == (BreakerState.OPEN, Admission.REFUSED)
    assert breaker.admit(60) is Admission.PROBE
    assert breaker.record_success()
    assert (breaker.state, breaker.failures, breaker.alert) == (BreakerState.CLOSED, 0, False)
    assert breaker.admit(60) is Admission.FREE


def test_a_late_failure_of_an_ordinary_call_does_not_end_the_probe():
    breaker = opened()
    breaker.admit(30)
    assert not breaker.record_failure(31)
    assert breaker.state is BreakerState.HALF_OPEN


def test_a_probe_that_was_stopped_leaves_its_place_to_the_next():
    breaker = opened()
    breaker.admit(30)
    assert breaker.record_no_answer(31)
    assert breaker.admit(31) is Admission.PROBE
    breaker.record_success()
    assert not breaker.record_no_answer(32)


def test_the_clock_of_another_loop_never_makes_the_wait_longer():
    breaker = opened(now=1_000_000.0)
    assert breaker.admit(0) is Admission.REFUSED
    assert breaker.admit(PROBE_EVERY) is Admission.PROBE


@given(st.lists(st.tuples(st.sampled_from(["ask", "fail", "succeed", "stop"]), st.floats(0, 20)), max_size=60))
def test_whatever_happens_probes_are_thirty_seconds_apart_unless_one_was_stopped(script):
    breaker, now, last = Breaker(2), 0.0, None
    probing = False
    for what, step in script:
        now += step
        if what == "ask":
            admission = breaker.admit(now)
            assert (admission is Admission.FREE) == (breaker.state is BreakerState.CLOSED)
            if admission is Admission.PROBE:
                assert last is None or now - last >= PROBE_EVERY - 1e-6
                last, probing = now, True
        elif what == "fail":
            breaker.record_failure(now, probe=probing)
            probing = False
        elif what == "succeed":
            breaker.record_success()
            last, probing = None, False
        elif probing:
            breaker.record_no_answer(now)
            last, probing = None, False
        assert breaker.alert or breaker.state is BreakerState.CLOSED
        assert breaker.wait(now) <= PROBE_EVERY


def test_one_breaker_for_one_object_and_none_outlives_it():
    model, other = ScriptedModel([]), ScriptedModel([])
    assert model_breaker(model) is model_breaker(model)
    assert model_breaker(model) is not model_breaker(other)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_model_without_a_dict_has_a_breaker_too():
    class Slim:
        __slots__ = ("name",)

    assert model_breaker(Slim()).limit == MODEL_FAILURES


def test_a_tool_gets_its_breaker_when_it_is_asked_for_and_a_bound_copy_its_own():
    class Desk:
        @tool
        async def look(self) -> str:
            """Look."""
            return ""

    unbound = Desk.look
    assert unbound.breaker is None
    first = tool_breaker(unbound)
    assert unbound.breaker is first
    assert first.limit == TOOL_FAILURES
    assert Desk().look.breaker is None


def test_a_copy_of_a_model_starts_anew_and_can_be_sent_to_another_process():
    health = Health()
    health.record_failure(0)
    for twin in (copy.deepcopy(health), pickle.loads(pickle.dumps(health))):
        assert (twin.failures, twin.limit, twin.calls) == (0, MODEL_FAILURES, 0)


def test_threads_open_it_once_and_only_one_of_them_probes():
    breaker, seen = Breaker(50), []

    def hammer():
        seen.extend(breaker.record_failure(0) for _ in range(1_000))
        seen.extend(breaker.admit(30) is Admission.PROBE for _ in range(1_000))

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(seen) == 2
    assert breaker.failures == 8_000


# --- the retry budget -----------------------------------------------------------------------------------------


def first_tries(health, count, now):
    for _ in range(count):
        health.calls += 1
        if not health.calls % MARK_EVERY:
            health.mark(now)


def retries(health, now, asked=10_000):
    return sum(health.may_retry(now) for _ in range(asked))


def test_a_lone_run_can_use_its_retries():
    health = Health()
    first_tries(health, 1, 0)
    assert retries(health, 0) == 10


@given(st.integers(50, 5_000))
def test_retries_are_a_fifth_of_the_first_tries_at_most(count):
    health = Health()
    first_tries(health, count, 0)
    assert 0.2 * (count - MARK_EVERY) - 1 <= retries(health, 1) <= 0.2 * count


def test_a_good_hour_is_no_licence_for_a_bad_minute():
    health = Health()
    for second in range(3_600):
        first_tries(health, 16, second)
    assert retries(health, 3_600) <= 0.2 * 16 * 60


def test_the_budget_comes_back_with_time_and_load():
    health = Health()
    first_tries(health, 100, 0)
    spent = retries(health, 0)
    assert retries(health, 59) == 0
    first_tries(health, 100, 59)
    assert retries(health, 59) > 0
    assert spent + retries(health, 200) >= 10


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.floats(0, 70)), max_size=30))
def test_a_retry_is_given_only_while_it_is_a_fifth_of_the_last_minute_or_one_of_ten(script):
    health, now, firsts, again = Health(), 0.0, [], []
    for count, asked, step in script:
        now += step
        first_tries(health, count, now)
        firsts += [now] * count
        given_now = retries(health, now, asked)
        again += [now] * given_now
        recent = sum(now - t < 60 for t in again)
        assert not given_now or recent <= max(10, 0.2 * sum(now - t < 60 for t in firsts))


def test_what_it_remembers_does_not_grow_with_the_load():
    health = Health()
    for tick in range(100_000):
        first_tries(health, 1, tick / 1_000)
    assert len(health._marks) <= 61


def test_a_clock_that_starts_again_does_not_lock_the_budget():
    health = Health()
    first_tries(health, 100, 1_000_000)
    retries(health, 1_000_000)
    assert retries(health, 0) == 10
