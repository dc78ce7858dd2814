"""Sums of bytes along the last dimensions, as s32."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, PrimitiveAttr, Reduction
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation

#: Bytes of a register of AVX2, whose parts are not loaded.
_REGISTER: Final = 32


class NativeByteSums(NativeImplementation[Reduction]):
    """Rows of neighbouring u8 or s8, row-major; sums are saturated."""

    name = "native:byte_sums"

    def reject(self, op: Reduction, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.algorithm != "sum":
            return f"algorithm {op.algorithm}; only sum is supported"
        if op.src.dtype not in ("u8", "s8") or op.dst.dtype != "s32":
            return f"data types {op.src.dtype} and {op.dst.dtype}; only u8 or s8 into s32 is supported"
        if not (op.src.is_plain and op.dst.is_plain):
            return f"layouts {op.src} and {op.dst}; only row-major is supported"
        if _row(op) == 0:
            return f"{op.src.dims} to {op.dst.dims}; only the last dimensions can be reduced"
        return None

    def program(self, op: Reduction, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        memories: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.DST)]
        length = _row(op)
        short = target.isa == "x86-64-v3" and length < _REGISTER
        kernel = KernelSpec.of("byte_sums", signed=op.src.dtype == "s8", short=short)
        return Program((kernel,), (Launch(0, (*memories, ("i", length)), op.dst.elements),))


def _row(op: Reduction) -> int:
    """Return the length of the runs that are reduced, 0 if other dimensions than the last ones are."""
    first = next((dim for dim, size in enumerate(op.dst.dims) if math.prod(op.dst.dims[dim:]) == 1), op.dst.ndims)
    kept = op.src.dims[:first] == op.dst.dims[:first]
    return math.prod(op.src.dims[first:]) if kept else 0
