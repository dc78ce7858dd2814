"""Matmul, drawn at random: its sums are exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import Arg, Matmul, MemoryDesc, PrimitiveAttr, Quantisation
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_descs

from .drawing import Runner, attributes, check, described, examples


@st.composite
def matmuls(draw: st.DrawFn) -> Matmul:
    batch = draw(st.lists(st.integers(0, 3), max_size=3))
    left, right = ([size if draw(st.integers(0, 2)) else 1 for size in batch] for _ in range(2))
    both = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
    rows, depth, columns = (draw(st.integers(0, 6)) for _ in range(3))
    spread = [draw(st.sampled_from((1, size))) for size in (*both, rows, columns)]
    bias = draw(st.none() | described((*(1,) * (len(batch) + 1), columns)) | described(tuple(spread)))
    return Matmul(
        draw(described((*left, rows, depth))),
        draw(described((*right, depth, columns))),
        bias,
        draw(described((*both, rows, columns))),
    )


@pytest.mark.parametrize(
    "runner", ["held_back", *(pytest.param(n, marks=pytest.mark.slow) for n in ("opencl", "every_pool"))], indirect=True
)
@examples(75)
@given(data=st.data())
def test_matmul_with_attributes(runner: Runner, data: st.DataObject) -> None:
    op = data.draw(matmuls())
    check(runner, op, data.draw(attributes(op, (Arg.SRC, Arg.WEIGHTS))), threshold=0.0)


def test_a_bias_for_more_than_columns_is_left_to_the_reference() -> None:
    left, right, dst = MemoryDesc((2, 3, 5), "f32"), MemoryDesc((2, 5, 4), "f32"), MemoryDesc((2, 3, 4), "f32")
    for dims, names in (
        ((1, 1, 4), ["native:tiles", "ref:matmul"]),
        ((1, 3, 1), ["ref:matmul"]),
        ((2, 1, 4), ["ref:matmul"]),
    ):
        op = Matmul(left, right, MemoryDesc(dims, "f32"), dst)
        assert [pd.impl_name() for pd in primitive_descs(op, PrimitiveAttr(), cpu_target())] == names
    for wrong in ((4,), (1, 2, 4), (2, 3, 5)):
        with pytest.raises(ValueError, match=r"bias: expect each of \(2, 3, 4\) or 1"):
            Matmul(left, right, MemoryDesc(wrong, "f32"), dst)


def test_a_large_batch_is_broadcast_either_way(runner: Runner) -> None:
    def batches(*dims: int) -> MemoryDesc:
        return MemoryDesc(dims, "bf16")

    op = Matmul(batches(2, 1, 3, 4, 5), batches(1, 7, 3, 5, 2), batches(1, 1, 1, 1, 2), batches(2, 7, 3, 4, 2))
    quantised = Quantisation(Arg.SRC, 0b00101), Quantisation(Arg.WEIGHTS, 0b10110)
    check(runner, op, PrimitiveAttr(scales=quantised, zero_points=quantised), threshold=0.0)
