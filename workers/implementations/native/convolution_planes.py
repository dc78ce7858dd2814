"""Depthwise convolution of row-major planes, which need no reorder into blocks of channels and back."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .chain import chain_source
from .convolution_blocked import ints
from .convolution_chain import bounds
from .convolution_row_major import RowMajorConvolution
from .convolution_window import Window

#: Bytes of the source's copy that stay in the first-level cache beside what is read and written.
_COPY = 16 << 10
#: Bytes of a copy that kernels have on their stack.
_ON_STACK = 32 << 10
#: Columns of an item: so many rows of the copy stay in the first-level cache.
_PIECE = 256
#: Rows of a tile, of which a band has whole ones; and those of a tall one, which takes less time for each.
_ROWS = 4
_TALL = {"x86-64-v4": 8}
#: Weights of windows whose taps are written out, and rows of others of which those of a column are.
_WRITTEN_OUT = 49
_COLUMN = 32


class NativePlanesConvolution(RowMajorConvolution):
    """1 to 3 spatial dimensions, one input channel a group; src, weights and dst are row-major."""

    name = "native:planes"

    def reject_window(self, op: Convolution) -> str | None:
        if op.src.ndims not in (3, 4, 5) or op.groups != op.src.dims[1]:
            return "not one input channel a group in 1 to 3 spatial dimensions"
        return None

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        op = _as_rows(op)
        window = Window.of(op)
        (height, width), (down, right) = window.out, window.stride
        pieces = -(-width // _PIECE)
        piece = -(-width // (16 * pieces)) * 16
        pieces = -(-width // piece)
        phase = 4 * (piece + -(-(window.reach[1] // right) // 16) * 16)
        row = right * phase
        # The copy has the rows of as many slabs as the window.
        depth = window.depth
        most = (_COPY // (row * depth.kernel) - window.reach[0] - 1) // down + 1
        taps = (depth.kernel, *window.kernel)
        written = taps if math.prod(taps) <= _WRITTEN_OUT else (0, taps[1] * (taps[1] <= _COLUMN), 0)
        rows = _rows(target.isa, height) if written[1] else _ROWS
        most = max(rows, most // rows * rows)
        bands = -(-height // most)
        band = -(-height // (rows * bands)) * rows
        bands = -(-height // band)
        slab = ((min(band, height) - 1) * down + window.reach[0] + 1) * row
        room = depth.kernel * slab
        low, bound = bounds(attr)
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias else ("i", 0)
        sizes = (
            room, op.dst.dims[1], op.dst.dims[1] // op.groups, window.height, window.width, height, width, bands, band,
            pieces, piece, *window.kernel, *window.pad, phase, slab, *depth.sizes,
        )  # fmt: skip
        args = (
            ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.WEIGHTS), 0)), bias, ("m", (int(Arg.DST), 0)), chain_source(attr),
            ("s", 0), *ints(sizes), ("f", low), ("f", bound),
        )  # fmt: skip
        items = op.dst.dims[0] * op.dst.dims[1] * depth.out * bands * pieces
        on_stack = room <= _ON_STACK
        more = {"rows": rows} if rows != _ROWS else {}
        kernel = KernelSpec.of(
            "conv_planes", kernel=written, stride=window.stride, dilation=window.dilation, on_stack=on_stack, **more
        )  # fmt: skip
        return Program((kernel,), (Launch(0, args, items),), scratchpad=0 if on_stack else items * room)


def _rows(isa: str, height: int) -> int:
    """Return the rows of a tile: many if a plane has whole ones, so that no row is computed alone."""
    tall = _TALL.get(isa, _ROWS)
    return tall if height % tall == 0 else _ROWS


def _as_rows(op: Convolution) -> Convolution:
    """Return a convolution along the first of three dimensions alone as one of rows, each of them a plane."""
    alone = (op.weights.dims[3:], op.strides[1:], op.dilations[1:], op.padding_l[1:], op.padding_r[1:])
    if op.src.ndims != 5 or alone != ((1, 1), (1, 1), (0, 0), (0, 0), (0, 0)):
        return op
    src, weights, dst = (
        MemoryDesc((*md.dims[:3], md.dims[3] * md.dims[4]), md.dtype) for md in (op.src, op.weights, op.dst)
    )
    return replace(
        op, src=src, weights=weights, dst=dst, strides=(op.strides[0], 1), dilations=(op.dilations[0], 0),
        padding_l=(op.padding_l[0], 0), padding_r=(op.padding_r[0], 0),
    )  # fmt: skip
