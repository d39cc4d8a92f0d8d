"""The lock of a budget's tree: made when somebody needs it, one for all who do."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from glidepath.ledger import Caps, Meter

THREADS = 8


def test_threads_that_need_it_at_the_same_time_get_one_lock():
    meter, together = Meter(Caps(tokens=100)), threading.Barrier(THREADS)

    def found(_):
        together.wait(60)
        return meter.tree.lock

    with ThreadPoolExecutor(THREADS) as pool:
        locks = list(pool.map(found, range(THREADS)))
    assert {id(lock) for lock in locks} == {id(meter.tree.lock)}


def test_it_is_made_once_for_all_meters_of_a_tree():
    root = Meter(Caps(tokens=100))
    child = Meter(Caps(), root)
    assert child.tree.lock is root.tree.lock


def test_a_lock_that_another_thread_has_just_made_is_taken():
    tree = Meter(Caps()).tree
    assert type(tree).__getattr__(tree, "lock") is type(tree).__getattr__(tree, "lock")


def test_a_tree_has_nothing_else():
    with pytest.raises(AttributeError):
        _ = Meter(Caps()).tree.nothing
