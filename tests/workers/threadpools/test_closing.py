"""A pool that one thread closes in any line of another one's submission runs what it has accepted, and refuses the rest."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.at_lines import at_each_line

from .kinds import Loop

BOUND_S = 20.0


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", [ThreadsPool, NativePool])
def test_a_pool_may_be_closed_in_any_line_of_a_submission(kind: type, asynchronous: bool, loop: Loop) -> None:
    pools: list[ThreadsPool | NativePool] = []
    closings: list[Future[None]] = []

    def make() -> None:
        pools[:] = [NativePool(2, asynchronous, loop) if kind is NativePool else ThreadsPool(2, asynchronous)]

    def close_beside() -> None:
        closings.append(closer.submit(pools[0].close))
        # It waits longer if it waits for this thread.
        wait(closings, 0.02)

    def submit() -> None:
        ran: list[int] = []
        accepted = 0
        try:
            for _ in range(2):
                pools[0].parallel_for(3, lambda i, _: ran.append(i))
                accepted += 3
            pools[0].wait()
        except RuntimeError as error:
            assert "closed" in str(error)
        pools[0].close()
        while closings:
            closings.pop().result(BOUND_S)
        assert len(ran) == accepted
        make()

    make()
    with ThreadPoolExecutor(1) as closer:
        files = (f"workers/threadpools/{name}.py" for name in ("native", "native_queue", "own_threads", "threads"))
        assert at_each_line(submit, close_beside, *files, step=3) > 20
    pools[0].close()
