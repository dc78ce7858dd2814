"""Chains of post-operations that every OpenCL kernel accepts, as kernel parameters and as launch arguments.

Any number of eltwise steps and at most one binary step, whose second source has dst's shape and layout.
"""

from __future__ import annotations

from ...desc import MemoryDesc, PrimitiveAttr, post_op_src
from ...kernels.spec import Value
from ..program import LaunchArgument
from .grid import memory


def reject_chain(attr: PrimitiveAttr, dst: MemoryDesc) -> str | None:
    """Return why a chain cannot be applied, or None."""
    binary = [step.src1 for step in attr.post_ops if step.src1 is not None]
    if len(binary) > 1:
        return "at most one binary post-op"
    if any(s.dims != dst.dims or s.dtype != "f32" or not (s.is_plain or s.is_any) for s in binary):
        return "the second source of a binary post-op must have dst's shape, row-major f32"
    return None


def chain_parameter(attr: PrimitiveAttr) -> Value:
    """Return the kernel parameter ``post_ops``."""
    return tuple(
        (step.kind, step.algorithm, *((float(step.alpha), float(step.beta)) if step.kind == "eltwise" else ()))
        for step in attr.post_ops
    )


def chain_arguments(attr: PrimitiveAttr) -> tuple[LaunchArgument, ...]:
    """Return the launch arguments that a kernel with the chain takes after its own."""
    return tuple(memory(post_op_src(i)) for i, step in enumerate(attr.post_ops) if step.kind == "binary")
