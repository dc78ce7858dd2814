"""What reference implementations refuse, and what they need no kernel for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from poolrt.workers.desc import (
    Arg,
    Binary,
    Concat,
    Eltwise,
    Lrn,
    MemoryDesc,
    OpDesc,
    PostOp,
    Prelu,
    PrimitiveAttr,
    Quantisation,
    Reduction,
    Reorder,
    Resampling,
    Shuffle,
    Softmax,
    Sum,
)
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc

from .drawing import reference_of


def md(*dims: int, dtype: str = "s8", tag: str = "") -> MemoryDesc:
    return MemoryDesc(dims, dtype, tag)


def relu(*dims: int, dtype: str = "s8", prop: str = "forward_inference") -> Eltwise:
    return Eltwise(md(*dims, dtype=dtype), md(*dims, dtype=dtype), "relu", prop=prop)


def added(source: MemoryDesc) -> PrimitiveAttr:
    return PrimitiveAttr((PostOp("binary", "add", src1=source),))


REFUSED: list[tuple[OpDesc, PrimitiveAttr, str]] = [
    (relu(2, 3), added(md(2, 3, tag="any")), "must be given"),
    (relu(2, 3), added(md(2, 2)), "does not broadcast"),
    (relu(2, 3), added(md(3)), "does not broadcast"),
    (relu(2, 3), PrimitiveAttr((PostOp.accumulate(dtype="s32"),)), "cannot read s8 as s32"),
    (relu(2, 3), PrimitiveAttr((), (Quantisation(Arg.WEIGHTS),)), "no argument 33"),
    (relu(2, 3), PrimitiveAttr((), (Quantisation(Arg.SRC, 4),)), "names a dimension"),
    (relu(2, 3, prop="backward_data"), PrimitiveAttr((PostOp("eltwise", "relu"),)), "backward"),
    (relu(2, 3, prop="backward_data"), PrimitiveAttr((), (Quantisation(Arg.SRC),)), "backward"),
]


@pytest.mark.parametrize(("op", "attr", "why"), REFUSED, ids=[why for *_, why in REFUSED])
def test_attributes_that_make_no_sense_are_refused_with_the_reason(op: OpDesc, attr: PrimitiveAttr, why: str) -> None:
    with pytest.raises(UnsupportedPrimitive, match=why):
        primitive_desc(op, attr, cpu_target())


def operations(*dims: int) -> list[OpDesc]:
    """Return every operation on tensors of a shape of rank 3, each with a destination of that shape."""
    src = md(*dims, dtype="f16", tag="aBc2b")
    backward: dict[str, Any] = {"prop": "backward_data"}
    return [
        Eltwise(src, src, "tanh"), Eltwise(src, src, "tanh", **backward), Binary(src, src, src, "max"),
        Sum((src, src), src, (2.0, 1.0)), Concat((src, md(dims[0], 0, dims[2])), src, 1), Reorder(src, md(*dims)),
        Prelu(src, md(1, 1, 1), src), Shuffle(src, src, 1, 1), Reduction(src, src, "mean"),
        Resampling(src, src, "linear"), Softmax(src, src, 2), Softmax(src, src, 1, "log", **backward),
        Lrn(src, src, 3, 1.0, 0.75, 1.0, "within_channel"),
    ]  # fmt: skip


@pytest.mark.parametrize("dims", [(0, 3, 2), (2, 3, 0), (2, 0, 2)])
def test_tensors_without_elements_need_no_launch(dims: tuple[int, int, int]) -> None:
    for op in operations(*dims):
        assert reference_of(op, PrimitiveAttr()).program().launches == ()


def test_types_layouts_shapes_and_attributes_need_no_kernels_of_their_own() -> None:
    """Of each operation, what differs between two primitives are tables and arguments."""
    for first, second in zip(operations(2, 4, 3), operations(3, 6, 5), strict=True):
        plain = reference_of(first, PrimitiveAttr()).program()
        if isinstance(second, Eltwise | Softmax) and not second.is_forward:
            attr = PrimitiveAttr()
        else:
            changed = dataclasses.replace(second.memories()[Arg.DST], dtype="s32", tag="cab")
            fields: dict[str, Any] = {"dst": changed}
            second = dataclasses.replace(second, **fields)
            attr = PrimitiveAttr((PostOp.accumulate(), PostOp("eltwise", "gelu_erf")), (Quantisation(Arg.DST, 2),))
        other = reference_of(second, attr).program()
        assert plain.kernels[:1] == other.kernels[:1]
        assert {spec.params for spec in (*plain.kernels, *other.kernels)} == {()}
        assert plain.tables != other.tables
