"""Scatter: a copy, then the updates in the order of their indices, the same for any number of threads."""

from __future__ import annotations

import math
import struct
from typing import Final

from ...desc import LIMITS, Arg, Pad, PrimitiveAttr, Scatter, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .nest_builder import NestBuilder
from .pad import NativePad
from .strided_loops import StridedLoop, as_table, byte_strides, nested, refuse_blocks, steps

#: Data type -> the kernel's kind of elements, for reductions.
_KINDS: Final = {"f64": "f64", "f32": "f32", **{name: name for name in LIMITS}}
#: Shares of the parts of dst, each of which reads all indices, if the updates have at least as many elements.
_SHARES: Final = 8
_LARGE: Final = 1 << 16
#: Indices of single elements that kernels are made for, at most.
_MOST_AXES: Final = 4
_COPY: Final = NativePad()


class NativeScatter(NativeImplementation[Scatter]):
    """Any strides; parts of adjacent elements are updated as vectors. Reductions are of all types but 16-bit floats and bool."""

    name = "native:scatter"
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Scatter, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        for md in (op.src, op.updates):
            if md.dtype != op.dst.dtype:
                return f"conversion from {md.dtype} to {op.dst.dtype}"
        if op.reduction != "none" and op.dst.dtype not in _KINDS:
            return f"reduction {op.reduction} of {op.dst.dtype}"
        return refuse_blocks(op.src, op.indices, op.updates, op.dst)

    def program(self, op: Scatter, attr: PrimitiveAttr, target: Target) -> Program:
        copy = _copy(op, target)
        if op.dst.elements == 0 or op.updates.elements == 0:
            return copy
        kind = f"u{8 * item_size(op.dst.dtype)}" if op.reduction == "none" else _KINDS[op.dst.dtype]
        wide = op.indices.dtype == "s64"
        memories: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.SRC_1, Arg.SRC_2, Arg.DST)]
        if op.algorithm == "elements":
            table, numbers, work = _elements(op)
            size = item_size(op.dst.dtype)
            dense = (numbers[2], numbers[3], numbers[5]) == (item_size(op.indices.dtype), size, size)
            kernel = KernelSpec.of("scatter_elements", kind=kind, reduction=op.reduction, wide=wide, dense=dense)
        else:
            axes = op.indices.dims[-1]
            single = math.prod(op.dst.dims[axes:]) == 1 and axes <= _MOST_AXES
            kernel = KernelSpec.of("scatter", kind=kind, reduction=op.reduction, wide=wide, axes=axes if single else 0)
            table, numbers, work = _parts(op)
        place: LaunchArgument = ("t", len(copy.tables))
        update = Launch(1, (*memories, place, *(("i", number) for number in numbers)), work)
        tables = copy.tables + struct.pack(f"<{len(table)}q", *table)
        return Program((*copy.kernels, kernel), (*copy.launches, update), tables)


def _copy(op: Scatter, target: Target) -> Program:
    """Return the program that copies src to dst; one number that is repeated is stored by vectors."""
    if op.dst.elements and not any(byte_strides(op.src)):
        build = NestBuilder()
        build.move(op.src, op.dst, ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)))
        return build.program()
    none = (0,) * op.src.ndims
    return _COPY.program(Pad(op.src, op.dst, none, none), PrimitiveAttr(), target)


def _elements(op: Scatter) -> tuple[list[int], tuple[int, ...], int]:
    """Return the table, the numbers and the work of the kernel of elements."""
    strides = list(zip(*(byte_strides(md) for md in (op.indices, op.updates, op.dst)), strict=True))
    index, update, written = strides[op.axis]
    loops = nested(
        [StridedLoop(n, s) for d, (n, s) in enumerate(zip(op.indices.dims, strides, strict=True)) if d != op.axis]
    )
    numbers = (len(loops), op.indices.dims[op.axis], index, update, op.dst.dims[op.axis], written)
    return as_table(loops), numbers, steps(loops)


def _parts(op: Scatter) -> tuple[list[int], tuple[int, ...], int]:
    """Return the table, the numbers and the work of the kernel of parts."""
    index, update, written = (byte_strides(md) for md in (op.indices, op.updates, op.dst))
    *counts, axes = op.indices.dims
    outer = len(counts)
    loops = nested(
        [StridedLoop(size, (update[outer + n], written[axes + n])) for n, size in enumerate(op.dst.dims[axes:])]
    )
    inner = loops.pop() if loops else StridedLoop(1, (item_size(op.dst.dtype),) * 2)
    table = as_table(loops)
    for size, step in zip(op.dst.dims[:axes], written, strict=False):
        table += [size, step]
    # Updates are in row-major order of the indices.
    for size, *each in reversed(list(zip(counts, index, update, strict=False))):
        table += [size, *each]
    shares = _SHARES if op.updates.elements >= _LARGE else 1
    numbers = (
        shares, math.prod(op.dst.dims[:axes]), len(loops), steps(loops), inner.extent, *inner.steps, axes, index[-1],
        math.prod(counts), outer,
    )  # fmt: skip
    return table, numbers, shares


IMPLEMENTATIONS = (NativeScatter(),)
