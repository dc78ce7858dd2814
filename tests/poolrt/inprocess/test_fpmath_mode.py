"""Products in a mode of floating point: bytes of `strict` where nothing is faster, the error of bfloat16 elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt import Executor, Graph
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.primitives.provider import PrimitiveProvider


@pytest.mark.parametrize("mode", ["bf16", "any", "f16"])
def test_results_have_the_error_of_the_mode(cache: PrimitiveProvider, mode: str) -> None:
    rng = np.random.default_rng()
    rows, depth, columns = (int(rng.integers(33, 80)) for _ in range(3))
    x, weights = rng.standard_normal((rows, depth), np.float32), rng.standard_normal((depth, columns), np.float32)
    found = {}
    for name in ("strict", mode):
        g = Graph("product", fpmath_mode=name)
        g.output("y", g.matmul(g.input("x", x.shape), weights))
        found[name] = Executor(g, cache=cache).run(x=x)["y"]
    exact, sizes = x.astype(np.float64) @ weights, np.abs(x).astype(np.float64) @ np.abs(weights)
    assert (np.abs(found["strict"] - exact) <= (depth + 2) * 2.0**-24 * sizes).all()
    if mode == "f16" or "avx512_bf16" not in cpu_target().extensions:
        assert found[mode].tobytes() == found["strict"].tobytes()
    # Each factor is rounded to 8 bits.
    assert (np.abs(found[mode] - exact) <= (2.0**-8 + 2.0**-18 + (depth + 2) * 2.0**-24) * sizes).all()
