"""What native gradients have in common: f32, no attributes, every tensor in one layout."""

from __future__ import annotations

from typing import TypeVar

from ...desc import MemoryDesc, OpDesc, PrimitiveAttr
from ...engines.target import Target
from ..layouts import complete_layouts
from .blocks import refuse, refuse_different
from .implementation import NativeImplementation

Op = TypeVar("Op", bound=OpDesc)


class NativeBackward(NativeImplementation[Op]):
    """Completes layouts in the order that gradients follow; a subclass refuses more and describes the program."""

    general = True
    #: The fields whose layouts are chosen, in order.
    order: tuple[str, ...] = ("src", "dst", "diff_dst", "diff_src")

    def complete(self, op: Op, attr: PrimitiveAttr, target: Target) -> Op:
        return complete_layouts(op, self.order)


def refuse_gradient(op: OpDesc, attr: PrimitiveAttr, *tensors: MemoryDesc | None) -> str | None:
    """Return why native kernels cannot compute a gradient of tensors whose layouts are chosen, or None."""
    if op.is_forward:
        return "only gradients are supported"
    if attr.post_ops or not attr.is_plain:
        return "post-ops, scales and zero points are not supported"
    found = [md for md in tensors if md is not None]
    for md in found:
        if md.strides:
            return f"strides {md.strides} are not supported"
    return refuse(*found) or refuse_different(*found)
