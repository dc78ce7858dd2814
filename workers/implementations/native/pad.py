"""Pad of any data type, with any strides: runs of bytes copied or filled."""

from __future__ import annotations

import math
import struct
from typing import Final

from ...desc import LIMITS, Arg, Pad, PrimitiveAttr, item_size
from ...desc.operations.pad import PAD_MODES, Margin
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .past_caches import streams
from .strided_loops import ITEM_BYTES, byte_strides, refuse_blocks

#: Bytes of runs that are copied past the caches.
_LONG: Final = 1 << 12
_FORMATS: Final = {"f64": "<d", "f32": "<f", "f16": "<e"}


class NativePad(NativeImplementation[Pad]):
    """Any strides; the innermost dimensions without padding make one run of bytes."""

    name = "native:pad"
    stays_inside = True
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Pad, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != op.dst.dtype:
            return f"conversion from {op.src.dtype} to {op.dst.dtype}"
        if op.mode == "constant" and _pattern(op.dst.dtype, op.value) is None:
            return f"a value of {op.value}, which {op.dst.dtype} does not hold"
        return refuse_blocks(op.src, op.dst)

    def program(self, op: Pad, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        unit = item_size(op.dst.dtype)
        dims = [
            (size, to, step, *margin)
            for size, to, step, margin in zip(
                op.dst.dims, byte_strides(op.dst), byte_strides(op.src), op.margins(), strict=True
            )
        ]
        span = item_size(op.dst.dtype) + sum((dim[5] - 1) * dim[2] for dim in dims)
        start = sum(step * margin.cut for step, margin in zip(byte_strides(op.src), op.margins(), strict=True))
        dims = [dim for dim in sorted(dims, key=lambda dim: -dim[1]) if dim[0] != 1 or dim[3] or dim[5] != 1]
        # Not beyond an item's bytes: a tensor that is one run has parts for threads, too.
        while dims and dims[-1][1:4] == (unit, unit, 0) and dims[-1][0] == dims[-1][5] <= ITEM_BYTES // unit:
            unit *= dims.pop()[0]
        size, to, step, before, _, kept = dims.pop() if dims else (1, unit, unit, *Margin(0, 0, 1))
        lines, *line, _, own = dims.pop() if dims else (1, 0, 0, *Margin(0, 0, 1))
        chunk = max(1, min(size, ITEM_BYTES // unit))
        group = max(1, min(lines, ITEM_BYTES // (unit * size)))
        table = [
            word
            for extent, written, read, left, _, each in reversed(dims)
            for word in (extent, written, read, left, each)
        ]
        pattern = _pattern(op.dst.dtype, op.value) or 0
        numbers = (
            len(dims), lines, group, *line, own, size, chunk, to, step, before, kept, unit, PAD_MODES.index(op.mode), pattern,
            span,
        )  # fmt: skip
        memories: list[LaunchArgument] = [("m", (int(Arg.SRC), start)), ("m", (int(Arg.DST), 0)), ("t", 0)]
        args = (*memories, *(("i", number) for number in numbers))
        work = math.prod(dim[0] for dim in dims) * -(-lines // group) * -(-size // chunk)
        long = to == step == unit and min(chunk, kept) * unit >= _LONG
        return Program(
            (KernelSpec.of("pad", streams=long and streams(op.dst, target)),),
            (Launch(0, args, work),),
            struct.pack(f"<{len(table)}q", *table),
        )


def _pattern(dtype: str, value: float) -> int | None:
    """Return 8 bytes of equal elements as an int64, None if the data type does not hold the value."""
    size = item_size(dtype)
    if dtype in _FORMATS:
        try:
            bits = struct.pack(_FORMATS[dtype], value)
        except OverflowError:
            return None
    elif dtype == "bf16":
        bits = struct.pack("<f", value)
        if struct.unpack("<f", bits)[0] != value or bits[:2] != b"\0\0":
            return None
        bits = bits[2:]
    elif dtype == "bool":
        bits = bytes([value != 0.0])
    else:
        low, high = LIMITS[dtype]
        if math.isinf(value) or value != int(value) or not low <= int(value) <= high:
            return None
        bits = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    (pattern,) = struct.unpack("<q", bits * (8 // size))
    return int(pattern)


IMPLEMENTATIONS = (NativePad(),)
