"""The pool of Python threads: every task once, errors to the caller, nothing left running."""

from __future__ import annotations

import threading

import pytest

from poolrt.workers.threadpools.threads import ThreadsPool


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_each_task_of_a_region_runs_once(threads: int) -> None:
    done: list[tuple[int, int]] = []
    with ThreadsPool(threads) as pool:
        assert pool.get_num_threads() == threads
        for n in (1, threads, 20):
            done.clear()
            pool.parallel_for(n, lambda i, total: done.append((i, total)))
            assert sorted(done) == [(i, n) for i in range(n)]


def test_tasks_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def meet(_i: int, _n: int) -> None:
        meeting.wait()  # breaks where one task waits for the other to end

    with ThreadsPool(2) as pool:
        pool.parallel_for(2, meet)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_reaches_the_caller_after_the_region_has_ended(failing: int) -> None:
    done: list[int] = []

    def task(i: int, _: int) -> None:
        if i == failing:
            raise ArithmeticError(f"task {i}")
        done.append(i)

    with ThreadsPool(3) as pool:
        with pytest.raises(ArithmeticError, match=f"task {failing}"):
            pool.parallel_for(3, task)
        assert sorted(done) == [i for i in range(3) if i != failing]
        pool.parallel_for(3, lambda i, _: done.append(i))  # the pool serves on


def test_closing_ends_the_threads() -> None:
    before = threading.active_count()
    with ThreadsPool(4):
        pass
    assert threading.active_count() == before


def test_a_pool_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        ThreadsPool(0)
