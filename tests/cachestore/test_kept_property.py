"""A kept property is computed once, is the same for all threads, and holds up no other thread or process."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from poolrt.cachestore.kept_property import kept_property

BOUND_S = 20


class Thing:
    """Counts how often its property is computed; some wait for one another meanwhile."""

    def __init__(self, barrier: threading.Barrier | None = None) -> None:
        self.barrier = barrier
        self.count = 0

    @kept_property
    def made(self) -> list[int]:
        """What is made."""
        self.count += 1
        if self.barrier is not None:
            self.barrier.wait()
        return [self.count]


def test_it_is_computed_when_it_is_first_read_and_kept() -> None:
    thing, other = Thing(), Thing()
    assert "made" not in vars(thing)
    assert thing.made is thing.made
    assert (thing.made, thing.count, other.count) == ([1], 1, 0)
    del thing.made
    assert thing.made == [2]
    assert isinstance(Thing.made, kept_property)
    assert Thing.made.__doc__ == "What is made."


def test_threads_that_compute_it_at_once_get_the_same_and_do_not_wait_for_one_another() -> None:
    thing = Thing(threading.Barrier(3, timeout=BOUND_S))
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: thing.made, range(3)))
    assert thing.count == 3
    assert all(each is thing.made for each in found)


# Python 3.12 warns of threads at a fork, which this test is about.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_computes_it_computes_it_too() -> None:
    barrier = threading.Barrier(2, timeout=BOUND_S)
    slow, other = Thing(barrier), Thing()
    thread = threading.Thread(target=lambda: slow.made)
    thread.start()
    while not slow.count:
        pass
    pid = os.fork()
    if pid == 0:
        signal.alarm(BOUND_S)
        os._exit(0 if other.made == [1] else 1)
    barrier.wait()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
