"""Convolution to few outputs a group, of row-major planes: no lanes of blocks of 16 channels are left empty."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.limits import ROOM
from ...kernels.native.phases import phases_of
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .chain import chain_source
from .convolution_blocked import chosen, ints
from .convolution_chain import bounds
from .convolution_row_major import RowMajorConvolution
from .convolution_tiles import even
from .convolution_window import Window
from .nest_builder import NestBuilder

#: Outputs of a group, at most: blocks of 16 leave half of their lanes empty then.
MOST_OUTPUTS: Final = 8
#: ISA level -> sums of 16 outputs that registers hold beside weights and a vector of the source, and outputs of a tile at most.
_SUMS: Final = {"x86-64-v4": (12, 4), "x86-64-v3": (4, 4)}
_FEW_SUMS: Final = (2, 2)
#: Rows of a tile, and of a window whose rows are written out.
_ROWS: Final = 4
_HEIGHT: Final = 32
#: Columns of an item at most, by rows of the result: one, or several.
_COLUMNS: Final = (512, 128)
#: Bytes of the copy of one input, and of the sums, that leave room for several inputs in the first-level cache.
_NEAR: Final = 8 << 10


class NativeFewOutputsConvolution(RowMajorConvolution):
    """1 to 3 spatial dimensions, groups of at most 8 outputs; row-major memories, weights also with outputs innermost.

    Vectors of 16 columns have more lanes without a result than blocks of 16 outputs if rows have fewer columns than outputs.
    """

    name = "native:few_outputs"

    def reject_window(self, op: Convolution) -> str | None:
        columns, outputs = op.dst.dims[-1], op.dst.dims[1] // op.groups
        if op.src.ndims not in (3, 4, 5) or outputs > MOST_OUTPUTS:
            return f"more than {MOST_OUTPUTS} outputs a group, or not 1 to 3 spatial dimensions"
        if 0 in op.weights.dims or Window.of(op).kernel[0] > _HEIGHT:
            return f"a window without elements or of more than {_HEIGHT} rows"
        if columns <= outputs and outputs > 1:
            return f"rows of {columns} columns for {outputs} outputs a group"
        return None

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        tag = _weights_tag(op.weights.ndims)
        if not op.weights.is_plain and self.complete(op, attr, target).weights.tag != tag:
            return f"weights layout {op.weights.tag}; only row-major and {tag} are supported"
        if refused := super().reject(replace(op, weights=op.weights.with_tag("")), attr, target):
            return refused
        is_small = op.dst.elements == 0 or _Cut.of(op, target.isa) is not None
        return None if is_small else f"the copy of a tile's source takes more than {ROOM} bytes"

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        weights = chosen(op.weights, _weights_tag(op.weights.ndims))
        return super().complete(replace(op, weights=weights), attr, target)

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        cut = _Cut.of(op, target.isa) if op.dst.elements else None
        if cut is None:
            return Program((), ())
        build = NestBuilder()
        weights: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
        inner = op.weights.with_tag(_weights_tag(op.weights.ndims))
        if op.weights.tag != inner.tag:
            given, weights = weights, build.book(inner.nbytes)
            build.move(op.weights, inner, given, weights)
        window, depth, outputs = Window.of(op), Window.of(op).depth, op.dst.dims[1] // op.groups
        low, bound = bounds(attr)
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias else ("i", 0)
        sizes = (
            op.groups, op.weights.dims[1], outputs, cut.chunk, cut.outputs.count(cut.outputs[0]), window.height, window.width,
            *window.out, cut.bands, cut.band, cut.pieces, cut.piece, window.kernel[1], window.dilation[1], *window.pad,
            cut.phase, cut.slab, cut.plane, cut.chunk * cut.plane, *depth.sizes,
        )  # fmt: skip
        args = (
            ("m", (int(Arg.SRC), 0)), weights, bias, ("m", (int(Arg.DST), 0)), chain_source(attr),
            *ints(sizes), ("f", low), ("f", bound),
        )  # fmt: skip
        phases = phases_of(window.kernel[1], window.dilation[1], window.stride[1])
        kernel = KernelSpec.of(
            "conv_few_outputs", outputs=tuple(sorted(set(cut.outputs), reverse=True)), rows=cut.rows, vectors=cut.vectors,
            height=window.kernel[0], stride=window.stride, dilation=window.dilation[0],
            **({"phases": phases} if len(phases) < window.stride[1] else {}),
        )  # fmt: skip
        build.launch(kernel, args, op.dst.dims[0] * op.groups * depth.out * cut.bands * cut.pieces)
        return build.program()


def _weights_tag(ndims: int) -> str:
    """Return the tag with outputs side by side, then rows of the window: ``bdca`` for 4."""
    return {3: "bca", 4: "bdca", 5: "bceda"}.get(ndims, "any")


@dataclass(frozen=True, slots=True)
class _Cut:
    """Sizes of tiles (outputs of each, rows, vectors) and of items: bands of rows, pieces of columns, inputs at once.

    ``phase``, ``slab`` and ``plane`` are the bytes of a phase of a row, of a slab and of an input of the copy.
    """

    outputs: tuple[int, ...]
    rows: int
    vectors: int
    bands: int
    band: int
    pieces: int
    piece: int
    chunk: int
    phase: int
    slab: int
    plane: int

    @classmethod
    def of(cls, op: Convolution, isa: str) -> _Cut | None:
        """Return the sizes, or None if the stack has no room for one row of tiles."""
        window = Window.of(op)
        (height, width), (down, right) = window.out, window.stride
        sums, most = _SUMS.get(isa, _FEW_SUMS)
        count, inputs = op.dst.dims[1] // op.groups, op.weights.dims[1]
        outputs = tuple(even(count, most))
        # Rows that are left over are tiles of their own.
        rows = min(range(min(_ROWS, sums // outputs[0], height), 0, -1), key=lambda n: height // n + height % n)
        vectors = next(n for n in (8, 4, 2, 1) if n == 1 or n <= min(sums // (outputs[0] * rows), -(-width // 16)))
        wide = 16 * vectors

        def row_bytes(piece: int) -> int:
            return right * 4 * -(-(piece + window.reach[1] // right) // 16) * 16

        def plane_bytes(band: int, piece: int) -> int:
            return window.depth.kernel * ((band - 1) * down + window.reach[0] + 1) * row_bytes(piece)

        def sum_bytes(band: int, piece: int) -> int:
            return 4 * count * band * piece

        for limit in (_COLUMNS[height > 1], 128, 64, 32, 16):
            pieces = -(-width // max(limit, wide))
            piece = -(-width // (wide * pieces)) * wide
            pieces = -(-width // piece)
            if plane_bytes(rows, piece) + sum_bytes(rows, piece) <= ROOM:
                break
        else:
            return None
        bands = [n for n in range(rows, height + rows, rows)
                 if n == rows or (plane_bytes(n, piece) <= _NEAR and sum_bytes(n, piece) <= _NEAR)]  # fmt: skip
        parts = -(-height // bands[-1])
        band = -(-height // (rows * parts)) * rows
        plane = plane_bytes(band, piece)
        chunk = max(1, min(inputs, (ROOM - sum_bytes(band, piece)) // plane))
        chunk = even(inputs, chunk)[0]
        phase = row_bytes(piece) // right
        slab = plane // window.depth.kernel
        return cls(outputs, rows, vectors, -(-height // band), band, pieces, piece, chunk, phase, slab, plane)
