"""Inner product on the CPU engine."""

from __future__ import annotations

import dataclasses

import pytest

from poolrt.workers.desc import Arg, InnerProduct, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.cases import Case, cases
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


@pytest.mark.parametrize("case", cases("inner_product"), ids=str)
def test_every_layout_of_the_weights_gives_the_same(native: NativeRunner, case: Case, isa: str) -> None:
    assert isinstance(case.op, InnerProduct)
    for tag in ("", "ba", "any"):
        opened = dataclasses.replace(case.op, weights=case.op.weights.with_tag(tag))
        pd = primitive_desc(opened, case.attr, target_of(isa))
        native.check(dataclasses.replace(case, name=f"{case.name} weights {tag}", op=pd.op), isa)


def test_one_row_is_multiplied_in_place_and_reads_each_weight_once() -> None:
    case = cases("inner_product")[0]
    assert isinstance(case.op, InnerProduct)
    opened = dataclasses.replace(case.op, weights=case.op.weights.with_tag("any"))
    pd = primitive_desc(opened, PrimitiveAttr(), cpu_target())
    assert pd.memories()[Arg.WEIGHTS].tag == "Ab16a"
    program = pd.program()
    assert [spec.generator for spec in program.kernels] == ["gemv"]
    assert program.scratchpad == 0
