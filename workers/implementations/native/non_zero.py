"""Non-zero of every data type, with any strides."""

from __future__ import annotations

import struct
from typing import Final

from ...desc import Arg, NonZero, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .strided_loops import byte_strides, refuse_blocks

_FLOATS: Final = ("f64", "f32", "f16", "bf16")


class NativeNonZero(NativeImplementation[NonZero]):
    """One item; 64 elements at once if those of src are dense and row-major. Indices and count are s32 or s64."""

    name = "native:non_zero"
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: NonZero, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        for name, md in (("indices", op.indices), ("count", op.count)):
            if md.dtype not in ("s32", "s64"):
                return f"{name} of {md.dtype}; only s32 and s64 are supported"
        if op.indices.elements and byte_strides(op.indices)[1] != item_size(op.indices.dtype):
            return "indices along a dimension are not adjacent"
        return refuse_blocks(op.src, op.indices, op.count)

    def program(self, op: NonZero, attr: PrimitiveAttr, target: Target) -> Program:
        kernel = KernelSpec.of(
            "non_zero", size=item_size(op.src.dtype), signed_zero=op.src.dtype in _FLOATS,
            index_size=item_size(op.indices.dtype), count_size=item_size(op.count.dtype), dense=op.src.is_plain,
        )  # fmt: skip
        table = [word for each in zip(op.src.dims, byte_strides(op.src), strict=True) for word in each]
        memories: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.DST, Arg.DST_1)]
        numbers = (op.src.ndims, op.src.elements, byte_strides(op.indices)[0])
        args = (*memories, ("t", 0), ("s", 0), *(("i", number) for number in numbers))
        return Program((kernel,), (Launch(0, args, 1),), struct.pack(f"<{len(table)}q", *table), 8 * op.src.ndims)


IMPLEMENTATIONS = (NativeNonZero(),)
