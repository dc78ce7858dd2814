"""Post-op chains of native kernels: any eltwise steps and one binary step whose source has exactly dst's layout.

The chain is part of the kernel's identity, its parameters (a negative slope, a clip) included: they are few, and as
constants they cost nothing at run time.
"""

from __future__ import annotations

from ...desc import MemoryDesc, PrimitiveAttr, post_op_src
from ...kernels.spec import Value
from ..program import LaunchArgument


def refuse_chain(attr: PrimitiveAttr, dst: MemoryDesc) -> str | None:
    """Return why a chain cannot be applied to ``dst`` (its layout chosen), or None."""
    sources = [p.src1 for p in attr.post_ops if p.src1 is not None]
    if len(sources) > 1:
        return "more than one binary post-op"
    if any(p.algorithm == "softplus" and p.alpha == 0.0 for p in attr.post_ops):
        return "softplus divides by alpha, which is 0"
    for source in sources:
        if source != dst:
            return f"the binary post-op's source is {source}, the destination {dst}"
    return None


def chain(attr: PrimitiveAttr) -> tuple[Value, ...]:
    """Return the chain as a kernel parameter."""
    return tuple(
        (p.kind, p.algorithm, float(p.alpha), float(p.beta)) if p.kind == "eltwise" else (p.kind, p.algorithm)
        for p in attr.post_ops
    )


def chain_source(attr: PrimitiveAttr) -> LaunchArgument:
    """Return the launch argument that holds the address of the binary step's source, 0 if there is none."""
    for index, step in enumerate(attr.post_ops):
        if step.src1 is not None:
            return ("m", (post_op_src(index), 0))
    return ("i", 0)
