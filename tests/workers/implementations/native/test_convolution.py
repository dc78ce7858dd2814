"""Convolution on the CPU engine: every implementation against the definition, its choice, and the work it describes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from poolrt.workers.desc import Arg, Convolution, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc, primitive_descs
from poolrt.workers.kernels.spec import KernelSpec
from tests.workers.cases import Case, cases
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def open_layouts(case: Case) -> Case:
    """Return a case with the layouts of src, weights and dst left to the implementation."""
    op: Any = case.op
    changed = {name: getattr(op, name).with_tag("any") for name in ("src", "weights", "dst")}
    return dataclasses.replace(case, op=dataclasses.replace(op, **changed))


def completed(case: Case, isa: str) -> list[Case]:
    """Return a case once for each implementation made for speed that takes it, in the layouts which that one chooses."""
    found = []
    opened = open_layouts(case)
    for pd in primitive_descs(opened.op, PrimitiveAttr(), target_of(isa)):
        if pd.impl_name() == "ref:convolution":
            continue
        dst = pd.memories()[Arg.DST]
        steps = tuple(dataclasses.replace(p, src1=dst) if p.src1 else p for p in case.attr.post_ops)
        name = f"{case.name} {pd.impl_name()}"
        found.append(dataclasses.replace(case, name=name, op=pd.op, attr=PrimitiveAttr(steps)))
    return found


@pytest.mark.parametrize("case", cases("convolution"), ids=str)
def test_every_implementation_computes_the_definition(native: NativeRunner, case: Case, isa: str) -> None:
    variants = completed(case, isa)
    assert variants
    for variant in variants:
        native.check(variant, isa)


@pytest.mark.parametrize("case", [*cases("convolution")[::4], *cases("convolution", "blocked")[::4]], ids=str)
def test_layouts_that_are_given_are_kept(native: NativeRunner, case: Case, isa: str) -> None:
    native.check(case, isa)


def convolution(
    ic: int, oc: int, size: int, kernel: int, stride: int = 1, groups: int = 1, rank: int = 2
) -> Convolution:
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1

    def md(*dims: int) -> MemoryDesc:
        return MemoryDesc(dims, "f32", "any")

    return Convolution(
        md(1, ic, *(size,) * rank), md(oc, ic // groups, *(kernel,) * rank), None, md(1, oc, *(out,) * rank),
        (stride,) * rank, (0,) * rank, (pad,) * rank, (pad,) * rank, groups,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "name", "weights"),
    [
        (convolution(64, 64, 56, 3), "native:blocked", "ABcd16b16a"),
        (convolution(3, 64, 224, 7, 2), "native:few_channels", "Acdb16a"),
        (convolution(272, 272, 14, 3, groups=272), "native:depthwise", "Abcd16a"),
        (convolution(96, 256, 27, 5, groups=2), "native:blocked", "ABcd16b16a"),
        (convolution(272, 112, 14, 1, groups=4), "native:grouped", "ABcd16b28a"),
        (convolution(16, 16, 9, 3, rank=3), "native:blocked", "ABcde16b16a"),
        (convolution(3, 16, 9, 3, rank=3), "native:few_channels", "Acdeb16a"),
        (convolution(40, 40, 9, 3, groups=40, rank=3), "native:depthwise", "Abcde16a"),
        (convolution(24, 40, 9, 3, groups=2, rank=3), "native:grouped", "ABcde16b20a"),
    ],
)
def test_the_best_implementation_is_chosen(op: Convolution, name: str, weights: str) -> None:
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
    assert (pd.impl_name(), pd.memories()[Arg.WEIGHTS].tag) == (name, weights)


@pytest.mark.parametrize(
    "step",
    [
        PostOp("eltwise", "tanh"),
        PostOp("eltwise", "relu", 0.1),
        PostOp("binary", "mul", src1=MemoryDesc((1, 1, 1, 1), "f32")),
    ],
)
def test_post_ops_that_are_not_supported_are_refused_with_a_reason(step: PostOp) -> None:
    op, attr = convolution(16, 16, 8, 3), PrimitiveAttr((step,))
    with pytest.raises(UnsupportedPrimitive, match="only relu and add"):
        primitive_desc(op, attr, cpu_target(), references=False)
    assert primitive_desc(op, attr, cpu_target()).impl_name() == "ref:convolution"


def test_few_kernels_serve_all_convolutions_of_a_residual_network() -> None:
    specs: set[KernelSpec] = set()
    for stage, width in enumerate((64, 128, 256, 512)):
        size = 56 >> stage
        inputs = 64 if stage == 0 else 2 * width
        stride = 1 if stage == 0 else 2
        for op in (
            convolution(inputs, width, size * stride, 1, stride),
            convolution(width, width, size, 3),
            convolution(width, 4 * width, size, 1),
            convolution(4 * width, width, size, 1),
            convolution(inputs, 4 * width, size * stride, 1, stride),
        ):
            dst = MemoryDesc(op.dst.dims, "f32", "aBcd16b")
            for chain in (
                (),
                (PostOp("eltwise", "relu"),),
                (PostOp("binary", "add", src1=dst), PostOp("eltwise", "relu")),
            ):
                specs.update(primitive_desc(op, PrimitiveAttr(chain), target_of("x86-64-v4")).program().kernels)
    specs.update(
        primitive_desc(convolution(3, 64, 224, 7, 2), PrimitiveAttr(), target_of("x86-64-v4")).program().kernels
    )
    assert len(specs) <= 8
