"""The codec: dataclasses come back equal from plain values, and malformed data are refused by the name of a field."""

from __future__ import annotations

import pytest

from poolrt.workers.desc import MemoryDesc, PostOp, PrimitiveAttr, Quantisation
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.engines.target import Target
from poolrt.workers.plans.execution_plan import (
    CrossEngineReorder,
    ExecutionPlan,
    Place,
    PlaceKind,
    PlanConstant,
    Port,
    Step,
)

_PLAN = ExecutionPlan(
    engines=("cpu", "opencl:0"),
    steps=(
        Step(0, ((1, Place(PlaceKind.INPUT, 0)), (17, Place(PlaceKind.WORK, 0, 64))), "relu"),
        CrossEngineReorder(Place(PlaceKind.WORK, 0), 0, Place(PlaceKind.WORK, 0), 1, 64, 1, "to opencl:0"),
    ),
    constants=(PlanConstant(0, 64, 64, None), PlanConstant(1, 64, 128, 0)),
    inputs=(Port("x", (4, 4), "f32", 64),),
    outputs=(Port("y", (4, 4), "f32", 64),),
    workspaces=(128, 128),
    primitives=(0,),
)
_ATTR = PrimitiveAttr(
    post_ops=(PostOp("binary", "add", src1=MemoryDesc((1, 4), "f32")), PostOp.accumulate(0.5)),
    scales=(Quantisation(1, 0, (0.5,)),),
    zero_points=(Quantisation(1, 0, (3,)),),
)


@pytest.mark.parametrize("value", [_PLAN, _ATTR, MemoryDesc((2, 3), "f32", strides=(8, 1))])
def test_data_come_back_equal(value: object) -> None:
    assert decode(type(value), encode(value)) == value


@pytest.mark.parametrize(
    ("kind", "wire", "complaint"),
    [
        (MemoryDesc, [[2, "3"], "f32", "ab", []], r"MemoryDesc\.dims: expected int, got '3'"),
        (MemoryDesc, [[2, True], "f32", "ab", []], r"MemoryDesc\.dims: expected int, got True"),
        (MemoryDesc, [[2, 3], "f32", "ab"], r"expected MemoryDesc\.dims, .*, got 3 values"),
        (MemoryDesc, {"dims": [2]}, "expected list, got"),
        (Target, ["cpu", "native", [["isa"]], 0], r"Target\.device: expected item 0, item 1, got 1 values"),
        (Target, ["cpu", "native", [], -1], "threads must be 0 or more"),
        (PrimitiveAttr, [[], [], [], "strict", "library", 1, 0], r"PrimitiveAttr\.deterministic: expected bool, got 1"),
        (Step, [0, [[1, [9, 0, 0]]], "relu"], r"Step\.args: item 1: Place\.kind: 9 is not a valid PlaceKind"),
        (
            ExecutionPlan,
            [[], [[1, 2]], [], [], [], [], [], [], None, []],
            r"ExecutionPlan\.steps: expected one of Step, ",
        ),
        (ExecutionPlan, [["cpu"], [], [], [], [], [], [], [], None, []], "0 workspaces for 1 engines"),
    ],
)
def test_malformed_data_are_refused_by_the_name_of_the_field(kind: type[object], wire: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode(kind, wire)
