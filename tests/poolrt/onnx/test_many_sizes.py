"""A session of a BERT on many sizes: right for each, nothing created after the first sizes of each kind, bounded memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import poolrt.onnx
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.native.convolution_tiles import product_tiles
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.onnx.transformers import bert

from .models import rival, session
from .test_open_sizes import feed_of

BOUND = 4 << 20


def kinds(batch: int, length: int) -> Iterable[tuple[str, int]]:
    """Return what kernels depend on: the most rows of register tiles, and how many vectors of queries are computed at once."""
    isa = cpu_target().isa
    yield "rows of layers", product_tiles(isa, batch * length)[0][0]
    yield "rows of the pooler", 1 if batch == 1 else product_tiles(isa, batch)[0][0]
    yield "queries", length if length <= 8 else -(-length // 16) + 8
    yield "one of a batch", min(batch, 2)
    # A mask of one number has no axis along which an operand moves.
    yield "one number", min(batch * length, 2)


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def check(sizes: Iterable[tuple[int, int]], cache: PrimitiveProvider) -> tuple[int, poolrt.onnx.InferenceSession]:
    """Run on all sizes; return how many created, and the session."""
    made = bert("sequence")
    found, expected = session(made, cache, plan_bytes=BOUND), rival(made)
    random, known, creating = np.random.default_rng(), set[tuple[str, int]](), 0
    context: Any = found._plans.context  # type: ignore[attr-defined]
    for batch, length in sizes:
        before, feed = cache.creations(), feed_of(random, batch, length)
        (given,), (wanted,) = found.run(None, feed), expected.run(None, feed)
        np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-5, err_msg=f"{batch} x {length}")
        created, new = cache.creations() - before, set(kinds(batch, length)) - known
        assert new or not created, f"{batch} x {length} created {created}"
        creating, known = creating + bool(created), known | new
        assert context.nbytes <= BOUND
    return creating, found


def test_sizes_of_one_kind_create_nothing_after_the_first(cache: PrimitiveProvider) -> None:
    # Tiles of the most rows on each ISA level, from 182 rows on; queries of two vectors
    sizes = [(7, length) for length in range(26, 33, 2)] + [(8, length) for length in range(23, 33, 2)]
    derived = cache.stats()["derived"]
    creating, _ = check([sizes[i] for i in np.random.default_rng().permutation(len(sizes))], cache)
    assert creating <= 1
    assert cache.stats()["derived"] - derived >= 13 * (len(sizes) - 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_200_sizes_create_what_few_kernels_need_in_bounded_memory(cache: PrimitiveProvider) -> None:
    every = [(batch, length) for batch in range(1, 17) for length in range(1, 33)]
    chosen = [every[i] for i in np.random.default_rng().permutation(len(every))[:200]]
    before = cache.creations()
    check(chosen[:100], cache)
    assert cache.creations() - before < 40  # of 1,400 primitives
    gc.collect()
    resident_before = resident()
    check(chosen[100:], cache)
    gc.collect()
    assert resident() - resident_before < 2 * BOUND
