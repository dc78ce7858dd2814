"""Matmul on the CPU engine: every layout of the weights, odd and empty sizes, broadcast batches."""

from __future__ import annotations

import dataclasses

import pytest

from poolrt.workers.desc import Arg, Matmul, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.workers.cases import Case, cases
from tests.workers.native_runner import NativeRunner

TRANSPOSED = {2: "ba", 3: "acb", 4: "dabc"}


def with_weights(case: Case, tag: str) -> Case:
    assert isinstance(case.op, Matmul)
    op = dataclasses.replace(case.op, weights=case.op.weights.with_tag(tag))
    return dataclasses.replace(case, name=f"{case.name} weights {tag}", op=op)


@pytest.mark.parametrize("case", cases("matmul"), ids=str)
def test_row_major_packed_and_transposed_weights_give_the_same(native: NativeRunner, case: Case, isa: str) -> None:
    assert isinstance(case.op, Matmul)
    for tag in ("", "any", TRANSPOSED[case.op.weights.ndims]):
        opened = with_weights(case, tag)
        pd = primitive_desc(opened.op, case.attr, cpu_target(isa))
        native.check(dataclasses.replace(opened, op=pd.op), isa)


def test_constant_weights_are_packed_by_a_reorder_and_not_at_every_run() -> None:
    case = with_weights(cases("matmul")[1], "any")
    pd = primitive_desc(case.op, PrimitiveAttr(), cpu_target())
    assert pd.memories()[Arg.WEIGHTS].tag == "Ba16b"
    assert {spec.generator for spec in pd.program().kernels} == {"gemm", "gemm_pack"}


def test_a_source_that_is_not_row_major_is_refused() -> None:
    op = Matmul(MemoryDesc((3, 4), "f32", "ba"), MemoryDesc((4, 5), "f32"), None, MemoryDesc((3, 5), "f32"))
    with pytest.raises(UnsupportedPrimitive, match="row-major"):
        primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)
    assert primitive_desc(op, PrimitiveAttr(), cpu_target()).impl_name() == "ref:matmul"
