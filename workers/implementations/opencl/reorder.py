"""Reorder on OpenCL: any permutation of dimensions into any other, walked in dst's order."""

from __future__ import annotations

from ...desc import Arg, MemoryDesc, PrimitiveAttr, Reorder
from ...engines.target import Target
from ..cross_engine import ReorderAcrossEngines
from ..program import Program
from .copies import copy_dimensions, copy_fits, copy_kernel, copy_launch
from .grid import memory
from .implementation import OpenClImplementation


class OpenClReorder(OpenClImplementation[Reorder]):
    """A transposition between layouts without blocks."""

    name = "opencl:strided"

    def reject(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops:
            return "no post-ops"
        for desc in (op.src, op.dst):
            if desc.dtype != "f32" or desc.layout.blocks:
                return f"{desc}: only f32 without blocks"
        if not copy_fits(*_walk(op)):
            return f"the transposition has {copy_dimensions(*_walk(op))} outer dimensions"
        return None

    def describe(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Program:
        sizes, source, destination = _walk(op)
        places = memory(Arg.SRC), memory(Arg.DST)
        return Program(
            (copy_kernel(target),), (copy_launch(sizes, (places[0], source), (places[1], destination), target),)
        )


def _walk(op: Reorder) -> tuple[list[int], list[int], list[int]]:
    """Return sizes and both strides in the order of dst's memory."""
    order = op.dst.layout.order

    def walked(desc: MemoryDesc) -> list[int]:
        strides = desc.outer_strides()
        return [strides[dim] for dim in order]

    return [op.dst.dims[dim] for dim in order], walked(op.src), walked(op.dst)


IMPLEMENTATIONS = (OpenClReorder(), ReorderAcrossEngines("opencl:cross_engine", "opencl"))
