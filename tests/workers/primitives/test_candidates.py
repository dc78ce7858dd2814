"""What is offered for an operation: found again from the same arguments, by any thread, and never too much of it kept."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from poolrt.workers import Eltwise
from poolrt.workers.desc import MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.primitives.candidates import ImplementationCandidates, PrimitiveDescCache, identical

MD = MemoryDesc((4,), "f32")
#: As many as are kept.
KEPT = 1024
THREADS = 32
BOUND_S = 60.0


def test_the_least_recently_used_description_is_dropped() -> None:
    found, known = (
        ImplementationCandidates(Eltwise(MD, MD, "relu"), PrimitiveAttr(), cpu_target()),
        PrimitiveDescCache(),
    )
    for number in range(KEPT):
        known.put((number,), found)
    assert known.find((0,)) is found
    known.put((KEPT,), found)
    assert known.find((1,)) is None
    assert {known.find((number,)) for number in (0, 2, KEPT)} == {found}


def test_threads_that_describe_at_once_get_what_they_ask_for() -> None:
    engine = Engine("cpu")

    def describe(seed: int) -> bool:
        rng = random.Random(seed)
        right = True
        # More than are kept, so that threads drop what others look for
        for _ in range(200):
            size, slope = rng.randrange(1, 2 * KEPT), rng.choice((0.0, -0.0, 1.0))
            md, attr = MemoryDesc((size,), "f32"), PrimitiveAttr((PostOp("eltwise", "relu", slope),))
            pd = Eltwise.PrimitiveDesc(engine, md, md, "abs", attr=attr).pd
            right = right and pd.memories()[1].dims == (size,) and identical(pd.attr, attr)
        return right

    with ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(describe, range(THREADS), timeout=BOUND_S))


def test_only_values_of_one_type_and_sign_are_identical() -> None:
    attrs = [PrimitiveAttr((PostOp("eltwise", "relu", slope),)) for slope in (0.0, -0.0, 1)]
    values = [1, 1.0, True, 0.0, -0.0, "1", (1, (2, 0.0)), (1, (2, -0.0)), (1, (2,)), None, MD, *attrs]
    for i, one in enumerate(values):
        assert [identical(one, other) for other in values] == [j == i for j in range(len(values))]
    assert identical((1, (2, 0.0), attrs[1]), (1, (2, 0.0), PrimitiveAttr((PostOp("eltwise", "relu", -0.0),))))
    assert identical(attrs[0], PrimitiveAttr((PostOp("eltwise", "relu", 0),)))


def test_equal_attributes_are_one_object_in_queries_and_signs_of_zero_count() -> None:
    known = PrimitiveDescCache()
    first, again, other = (PrimitiveAttr((PostOp("eltwise", "relu", zero),)) for zero in (0.0, 0.0, -0.0))
    assert known.same(first) is first
    assert known.same(again) is first
    assert known.same(other) is other
    assert known.same(again) is first
