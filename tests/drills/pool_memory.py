"""The drill of a full arena beside a function that holds none of it."""

from __future__ import annotations

import gc
import time
from typing import Any, Final

import numpy as np

import poolrt
from poolrt.errors import ArenaFull

from ..poolrt.pool.processes import relu_graph
from .pools import served
from .stage import Stage
from .traffic import product_graph

#: float32 values of a tensor, and bytes of an arena that holds a few of them.
_LARGE: Final = (10 << 18,)
_ARENA: Final = 64 << 20
#: Bound, in seconds, on the error of a full arena, and on another client's run beside it.
_SOON_S: Final = 0.5
_RUNS: Final = 100


def function_beside_full_arena(stage: Stage) -> None:
    """A function under way and a full arena: the error comes at once, and runs of another client go on."""
    lasts_s = 2 * stage.scale.outage_s + 2
    with (
        served(stage, workers=2, arena_bytes=_ARENA) as path,
        poolrt.connect(path) as crowded,
        poolrt.connect(path) as other,
    ):
        small, x = other.load(product_graph()[0], progress=False), np.ones((32, 256), np.float32)
        alone_s = max(_timed(small, x) for _ in range(_RUNS))
        large = crowded.load(relu_graph(_LARGE), progress=False)
        given = crowded.empty(_LARGE)
        given[:] = 1
        kept = []
        try:
            while True:
                kept.append(crowded.empty(_LARGE))  # results would be copied out of an arena that is half full
        except ArenaFull:
            pass
        function = crowded.submit(time.sleep, lasts_s)
        begin = time.monotonic()
        waits = large.submit(x=given)
        beside_s = max(_timed(small, x) for _ in range(_RUNS))
        failed = waits.exception(2 * lasts_s)
        took = time.monotonic() - begin
        outcome = stage.outcome
        outcome.faults, outcome.calls, outcome.longest_s = 1, 2 * _RUNS, max(alone_s, beside_s)
        outcome.answered = 2 * _RUNS
        bound = _SOON_S + outcome.noise_s
        stage.expect(isinstance(failed, ArenaFull), f"a full arena gave {failed!r}")
        stage.expect(not function.done(), "the error came only after the function")
        stage.expect(beside_s <= bound, f"another client's run took {beside_s:.2f} s, alone {alone_s:.3f} s")
        stage.note(
            f"the error after {took:.3f} s; another client's longest run {alone_s:.3f} s, beside it {beside_s:.3f} s"
        )
        del kept
        gc.collect()
        stage.expect(bool((large.run(x=given)["y"] == 1).all()), "memory that was released cannot be used")
        function.result(4 * lasts_s)


def _timed(model: poolrt.Model, x: Any) -> float:
    begin = time.monotonic()
    model.run(x=x)
    return time.monotonic() - begin
