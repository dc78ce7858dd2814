"""Runs that lack memory of the arena: nothing that keeps none delays their error, and nothing waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import ArenaFull

from .prepared import runs_on_rings
from .processes import BOUND_S, relu_graph, stopped, wait_until, workers_of

#: float32 values of a tensor that fits into the arena three times.
LARGE = (1 << 20,)
#: Programs that keep the outputs of all runs.
KEEPERS: dict[str, Callable[[poolrt.Model, list[Any]], list[Any]]] = {
    "run": lambda model, inputs: [model.run(x=x) for x in inputs],
    "map": lambda model, inputs: [*model.map({"x": x} for x in inputs)],
    "submit": lambda model, inputs: [future.result(BOUND_S) for future in [model.submit(x=x) for x in inputs]],
}


def hold(begun: str, end: str) -> None:
    """Make one file, and return once another exists."""
    import time
    from pathlib import Path

    Path(begun).touch()
    while not Path(end).exists():
        time.sleep(0.005)


def load_on_rings(pool: poolrt.Pool) -> poolrt.Model:
    """Return a model with large tensors whose runs go by rings."""
    model, x = pool.load(relu_graph(LARGE), progress=False), np.ones(LARGE, np.float32)
    wait_until(lambda: runs_on_rings(pool, model, x=x), "runs go by rings")
    return model


@pytest.fixture
def two(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    """A pool of two workers, whose arena holds three large tensors."""
    with poolrt.Pool(workers=2, threads=1, **{**settings, "arena_bytes": 14 << 20}) as pool:
        yield pool


def test_a_function_under_way_delays_neither_the_error_of_a_full_arena_nor_other_runs(
    two: poolrt.Pool, tmp_path: Path
) -> None:
    # Given a model of which the arena holds an input and two tensors more, all in use
    large, small = two.load(relu_graph(LARGE)), two.load(relu_graph())
    x = two.empty(LARGE)
    x[:] = 1
    kept = [two.empty(LARGE) for _ in range(2)]
    # When it is run once more beside a function that has not ended
    begun, end = tmp_path / "begun", tmp_path / "end"
    function = two.submit(hold, str(begun), str(end))
    wait_until(begun.exists, "the function has begun")
    # Then that is an error, and other models run, before the function has ended
    with pytest.raises(ArenaFull, match="arena_bytes"):
        large.submit(x=x).result(BOUND_S)
    assert small.submit(x=np.ones((4, 8), np.float32)).result(BOUND_S)["y"].sum() == 32
    assert not function.done()
    end.touch()
    function.result(BOUND_S)
    # And with memory given back it runs again
    del kept
    assert large.run(x=x)["y"].sum() == LARGE[0]


@pytest.mark.parametrize("how", KEEPERS)
@pytest.mark.one_in(3)
def test_a_program_may_keep_more_outputs_than_the_arena_holds(two: poolrt.Pool, how: str) -> None:
    model = load_on_rings(two)
    inputs = [np.full(LARGE, number, np.float32) for number in range(1, 9)]
    kept = KEEPERS[how](model, inputs)
    assert [(each["y"].min(), each["y"].max()) for each in kept] == [(number, number) for number in range(1, 9)]
    # And once they are dropped, outputs are not copied: as an input, one needs no memory
    del kept
    y = model.run(x=inputs[0])["y"]
    held = two.empty(LARGE)
    assert model.run(x=y)["y"].sum() == held.size


def test_runs_of_many_threads_wait_for_memory(two: poolrt.Pool) -> None:
    # Given a model of which the arena holds input and output of one run, and one output more
    model = load_on_rings(two)
    sums: list[float] = []

    def work(number: int) -> None:
        x = np.full(LARGE, number, np.float32)
        sums.extend(float(model.run(x=x)["y"].sum()) / x.size for _ in range(6))

    with ThreadPoolExecutor(6) as threads:
        [*threads.map(work, range(1, 7))]
    assert sorted(sums) == sorted([*range(1, 7)] * 6)


def test_a_timeout_ends_a_wait_for_memory(two: poolrt.Pool) -> None:
    # Given a run that keeps a stopped worker's memory
    model, x = load_on_rings(two), np.ones(LARGE, np.float32)
    with stopped(*workers_of(two)):
        future = model.submit(x=x)
        with pytest.raises(TimeoutError, match=r"0\.2 s"):
            model.run(x=x, timeout=0.2)
    # When the worker goes on, all is as before
    assert future.result(BOUND_S)["y"].sum() == model.run(x=x)["y"].sum() == x.size
