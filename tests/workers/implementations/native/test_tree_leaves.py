"""Leaves of decision trees on native kernels: few and many rows, numbers that are none, and nodes that there are not."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, TreeLeaves
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references.tree_leaves import tree_leaves
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.support.trees import described, random_trees


@pytest.mark.parametrize("bounds", [1, 2])
def test_rows_end_in_leaves_whatever_their_number(native: NativeRunner, isa: str, bounds: int) -> None:
    rng = np.random.default_rng()
    # One row, a few and many; fewer trees than are followed at once, and a number that is no multiple of it.
    for rows, columns, trees, levels in ((1, 5, 21, 4), (3, 2, 5, 3), (11, 7, 9, 2), (65, 3, 2, 5), (13, 1, 1, 1)):
        dtype = ("f32", "f64")[int(rng.integers(2))]
        op = described(rows, columns, trees, levels, bounds, dtype)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:tree_leaves"
        kind = np.float32 if dtype == "f32" else np.float64
        src = (rng.integers(-4, 5, (rows, columns)) / 2).astype(kind)
        src[rng.random(src.shape) < 0.2] = np.nan
        nodes, limits, roots = random_trees(op, int(rng.integers(1 << 30)))
        given = nodes.astype(np.int32), limits.astype(kind), roots.astype(np.int32)
        args = dict(zip((Arg.SRC, Arg.SRC_1, Arg.SRC_2, Arg.WEIGHTS), (src, *given), strict=True))
        got = native.results(pd, {int(arg): array for arg, array in args.items()})[Arg.DST]
        np.testing.assert_array_equal(got, tree_leaves(op, src, *given), err_msg=str(op))


def test_nodes_in_a_ring_end_after_the_levels(native: NativeRunner) -> None:
    op = described(1, 1, 9, 3, nodes=2)
    given = {
        Arg.SRC: np.zeros((1, 1), np.float32), Arg.SRC_1: np.array([[0, 1, 1, 0], [0, 0, 0, 0]], np.int32),
        Arg.SRC_2: np.zeros((2, 1), np.float32), Arg.WEIGHTS: np.zeros(9, np.int32),
    }  # fmt: skip
    found = native.results(primitive_desc(op, PrimitiveAttr(), cpu_target()), {int(a): x for a, x in given.items()})
    np.testing.assert_array_equal(found[Arg.DST], 1)


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: TreeLeaves, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    refused(described(2, 3, 2, 1, dtype="s32"), "s32 by limits of s32 to s32")
    refused(described(2, 3, 2, 1), "post-ops", PrimitiveAttr(post_ops=(PostOp("eltwise", "relu"),)))
    with pytest.raises(ValueError, match="limits"):
        described(2, 3, 2, 1, bounds=3)
    with pytest.raises(ValueError, match="nodes"):
        floats, numbers = MemoryDesc((2, 3), "f32"), MemoryDesc((2, 3), "s32")
        TreeLeaves(floats, numbers, floats, numbers, numbers, 1)
