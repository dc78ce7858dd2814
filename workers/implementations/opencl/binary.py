"""Binary on OpenCL: broadcasting is a stride of 0; equal shapes merge into one long row."""

from __future__ import annotations

from typing import Final

from ...desc import Arg, Binary, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .grid import LIGHT, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation
from .layouts import contiguous_strides, merged
from .post_ops import chain_arguments, chain_parameter

#: Outer dimensions that the kernel counts.
_OUTER: Final = 4


class OpenClBinary(OpenClImplementation[Binary]):
    """A function of two variables with broadcasting, up to five dimensions after merging."""

    name = "opencl:vector"
    takes_post_ops = True

    def reject(self, op: Binary, attr: PrimitiveAttr, target: Target) -> str | None:
        sizes, _ = _shape(op.src0, op.src1, op.dst)
        if len(sizes) > _OUTER + 1:
            return f"broadcasting leaves {len(sizes)} dimensions, at most {_OUTER + 1}"
        return super().reject(op, attr, target)

    def describe(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Program:
        kernel = binary_kernel(op.algorithm, attr, target)
        operands = (op.src0, op.src1, op.dst)
        args = (memory(Arg.SRC), memory(Arg.SRC_1), memory(Arg.DST))
        return Program((kernel,), (binary_launch(0, operands, args, attr, target),))


def binary_kernel(algorithm: str, attr: PrimitiveAttr, target: Target) -> KernelSpec:
    """Return the kernel of an algorithm with a chain of post-ops."""
    return KernelSpec.of(
        "binary",
        v=vector_width(target),
        function=f"binary_{algorithm}",
        post_ops=chain_parameter(attr),
        local=group(target, LIGHT),
    )


def binary_launch(
    kernel: int,
    operands: tuple[MemoryDesc, MemoryDesc, MemoryDesc],
    args: tuple[LaunchArgument, LaunchArgument, LaunchArgument],
    attr: PrimitiveAttr,
    target: Target,
) -> Launch:
    """Return the launch of a binary kernel on (src0, src1, dst), given by descriptor and by place."""
    sizes, strides = _shape(*operands)
    *outer, inner = sizes
    rows = 1
    for size in outer:
        rows *= size
    fill = _OUTER - len(outer)
    counted = [1] * fill + outer
    steps = [[0] * fill + s[:-1] for s in strides]
    items = rows * -(-inner // vector_width(target))
    numbers = integers(rows, inner, *(s[-1] for s in strides), *counted[1:], *steps[0], *steps[1])
    return launch(kernel, items, group(target, LIGHT), *args, *numbers, *chain_arguments(attr))


def _shape(src0: MemoryDesc, src1: MemoryDesc, dst: MemoryDesc) -> tuple[list[int], list[list[int]]]:
    """Return merged sizes of dst and the strides of both sources, the innermost one 1 or 0."""
    strides = [
        [0 if size == 1 else step for size, step in zip(s.dims, contiguous_strides(s.dims), strict=True)]
        for s in (src0, src1)
    ]
    return merged(dst.dims, *strides)


IMPLEMENTATIONS = (OpenClBinary(),)
