"""Calls that wait in the ring of a worker that is lost, in a pool that has no other one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import WorkerLost

from .called_with_arrays import sum_when_gone
from .processes import BOUND_S, wait_until


@pytest.mark.parametrize("make", [float, np.ones], ids=["scalars", "arrays"])
@pytest.mark.parametrize("map_", [False, True], ids=["submit", "map"])
@pytest.mark.one_in(2)
def test_calls_that_were_not_begun_are_called_by_the_next_worker(
    settings: dict[str, Any], tmp_path: Path, make: Callable[[int], Any], map_: bool
) -> None:
    hold = tmp_path / "hold"
    values = [make(20_000 + number) for number in range(8)]
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        for _ in range(20):
            pool.submit(sum_when_gone, "", values[0]).result(BOUND_S)
        wait_until(lambda: bool(pool._session.link.client.calls.exist), "the function is called on rings")
        hold.touch()
        first = pool.submit(sum_when_gone, str(hold), values[0])
        if map_:
            found = pool.map(sum_when_gone, [""] * len(values), values, timeout=BOUND_S)
        else:
            found = (each.result(BOUND_S) for each in [pool.submit(sum_when_gone, "", value) for value in values])
        wait_until(first.running, "the first one is called")
        os.kill(pool.stats()["workers"][0]["pid"], signal.SIGKILL)
        with pytest.raises(WorkerLost):
            first.result(BOUND_S)
        hold.unlink()
        assert list(found) == [float(np.sum(value)) for value in values]
