"""Many processes at once: more than the connections to the fork server could hold the news of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poolrt

from .processes import family, relu_graph, wait_until

#: About 280 forks fill both directions of a fork server's connection; then each side would wait for the other.
WORKERS = 300


@pytest.mark.slow
def test_a_pool_of_hundreds_of_workers_comes_up_works_and_ends(settings: dict[str, Any]) -> None:
    before = set(family())
    with poolrt.Pool(workers=WORKERS, threads=1, **settings) as pool:
        assert pool.load(relu_graph()).run(x=np.ones((4, 8), np.float32))["y"].sum() == 32
        wait_until(lambda: all(worker["pid"] for worker in pool.stats()["workers"]), "all workers are up", 60.0)
        assert len({worker["pid"] for worker in pool.stats()["workers"]}) == WORKERS
    assert set(family()) - before == set()
