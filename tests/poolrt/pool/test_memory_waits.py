"""Runs that lack memory of the arena: nothing that keeps none delays their error, and nothing waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import ArenaFull

from .processes import BOUND_S, relu_graph, wait_until

#: float32 values of a tensor that fits into the arena once, but not twice with its results.
LARGE = (1 << 20,)


def hold(begun: str, end: str) -> None:
    """Make one file, and return once another exists."""
    import time
    from pathlib import Path

    Path(begun).touch()
    while not Path(end).exists():
        time.sleep(0.005)


@pytest.fixture
def two(settings: dict[str, Any]) -> Iterator[poolrt.Pool]:
    """A pool of two workers, whose arena holds three large tensors."""
    with poolrt.Pool(workers=2, threads=1, **{**settings, "arena_bytes": 14 << 20}) as pool:
        yield pool


def test_a_function_under_way_delays_neither_the_error_of_a_full_arena_nor_other_runs(
    two: poolrt.Pool, tmp_path: Path
) -> None:
    # Given a model of which the arena holds one input and two results, all in use
    large, small = two.load(relu_graph(LARGE)), two.load(relu_graph())
    x = two.empty(LARGE)
    x[:] = 1
    kept = [large.run(x=x) for _ in range(2)]
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
