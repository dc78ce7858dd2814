"""Non-maximum suppression of float32, with any strides."""

from __future__ import annotations

from ...desc import Arg, NonMaxSuppression, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .strided_loops import byte_strides, refuse_blocks

#: Bytes of a place in the heap of boxes: key and index.
_PAIR = 16
#: Bytes of the index of a chosen box, and of its two corners and its area, in whole vectors.
_CHOSEN = 8 + 5 * 4


class NativeNonMaxSuppression(NativeImplementation[NonMaxSuppression]):
    """An item for each class of each image, with a heap of the boxes; then one that joins what they chose."""

    name = "native:non_max_suppression"
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: NonMaxSuppression, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        for name, md in (("boxes", op.boxes), ("scores", op.scores), ("limits", op.limits)):
            if md.dtype != "f32":
                return f"{name} of {md.dtype}; only f32 is supported"
        for name, md in (("indices", op.indices), ("count", op.count)):
            if md.dtype not in ("s32", "s64"):
                return f"{name} of {md.dtype}; only s32 and s64 are supported"
        return refuse_blocks(*op.memories().values())

    def program(self, op: NonMaxSuppression, attr: PrimitiveAttr, target: Target) -> Program:
        images, classes, size = op.scores.dims
        parts, room = images * classes, -(-op.most // 16) * 16
        # In this order: how many boxes are chosen, which, their corners and areas, the heap.
        each = 64 + room * _CHOSEN + size * _PAIR
        choose = KernelSpec.of("non_max_suppression", center_point=op.center_point)
        joined = KernelSpec.of(
            "non_max_suppression_rows", size=item_size(op.indices.dtype), count_size=item_size(op.count.dtype)
        )
        sources: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.SRC_1, Arg.SRC_2)]
        strides = (*byte_strides(op.boxes), *byte_strides(op.scores), *byte_strides(op.limits))
        numbers = (classes, size, op.most, room, each, *strides)
        first = Launch(0, (*sources, ("s", 0), *(("i", number) for number in numbers)), parts)
        targets: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.DST, Arg.DST_1)]
        numbers = (parts, classes, op.indices.dims[0], each, *byte_strides(op.indices))
        second = Launch(1, (*targets, ("s", 0), *(("i", number) for number in numbers)), 1)
        return Program((choose, joined), (first, second) if parts else (second,), b"", each * max(parts, 1))


IMPLEMENTATIONS = (NativeNonMaxSuppression(),)
