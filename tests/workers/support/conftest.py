"""Fixtures: supported problems are verified on every kind of engine, and on a CPU on threadpools too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.workers.levels import EVERYTHING, WITH_ALL_INSTRUCTIONS, target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.threadpools.every_pool import HELD_BACK, EveryPool
from tests.workers.threadpools.kinds import CASES, region_loop

from .pooled_runner import PooledRunner
from .verification import Verification

#: Kinds of engines: a CPU, one with all instructions that kernels use, of which this host may lack some, and OpenCL.
ENGINES: Final = ("native", WITH_ALL_INSTRUCTIONS, "opencl")
#: The thorough tier has every threadpool and every problem of a cell. `make test` draws some in each run: threadpools beside
#: the one that holds work back, and a problem for each implementation of a cell.
WHOLE: Final = " whole"
DRAWN_POOLS: Final = 2
DRAWN_PROBLEMS: Final = 1


@pytest.fixture(
    scope="session",
    params=[
        # The compiler takes half a second for the kernels of a row, PoCL a whole one.
        *(pytest.param(kind, marks=pytest.mark.one_in(12 if kind == "opencl" else 6)) for kind in ENGINES),
        *(pytest.param(kind + WHOLE, marks=pytest.mark.slow) for kind in ENGINES),
    ],
)
def verification(request: pytest.FixtureRequest) -> Iterator[Verification]:
    """Return a verification of cells on each kind of engine."""
    rng = random.SystemRandom()
    seed, kind = rng.randrange(1 << 32), str(request.param).removesuffix(WHOLE)
    whole = kind != request.param
    most = None if whole else DRAWN_PROBLEMS
    runner: Any = request.getfixturevalue("opencl" if kind == "opencl" else "native")
    if kind == WITH_ALL_INSTRUCTIONS:
        runner = NativeRunner(target_of(EVERYTHING))
    if kind == "opencl":
        yield Verification(runner, seed, most)
        return
    others = [case for case in CASES if case != HELD_BACK]
    pools = EveryPool(region_loop(), seed, CASES if whole else [HELD_BACK, *rng.sample(others, DRAWN_POOLS)])
    yield Verification(PooledRunner(runner, pools), seed, most)
    pools.close()
