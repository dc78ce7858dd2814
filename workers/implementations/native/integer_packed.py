"""Matmul and inner product of 8-bit integers, requantized in registers; constant weights are packed once."""

from __future__ import annotations

import math
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, InnerProduct, Matmul, MemoryDesc, PrimitiveAttr, Quantisation
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .integer_amx import EXTENSIONS_OF, copied_how, is_few_with_point, reduce_by_tiles
from .integer_bytes import multiply_bytes, refuse_bytes
from .integer_epilogue import Epilogue, is_exact, points_fit, refuse_attributes, refuse_types
from .integer_reduce import GROUP, GROUP_BYTES, Outputs, Positions, reduce_integers, row_copies
from .integer_rows import fits_rows, multiply_rows
from .nest_builder import NestBuilder

#: Ways to multiply src without a sign only.
_UNSIGNED: Final = ("vnni", "bytes")


class _PackedProduct:
    """What both operations share: how numbers are multiplied, and the extensions that this needs."""

    engine_kind = "cpu"
    general = True

    def __init__(self, how: str) -> None:
        self.name = f"native:packed_{how}"
        self._how = how
        self.extensions = EXTENSIONS_OF.get(how, ())

    def _refuse(
        self, op: Matmul | InnerProduct, attr: PrimitiveAttr, target: Target, packed: str, output: int
    ) -> str | None:
        """Return why a product with all layouts chosen is not supported, or None."""
        if why := target.lack_of(self.extensions):
            return why
        rows = math.prod(op.dst.dims[:-1])
        if self._how == "bytes" and (why := refuse_bytes(target.isa, rows, op.src.dims[-1], op.dst.dims[-1])):
            return why
        # Numbers of 16 bits hold both; the other instructions have signed ones on the right.
        in_place = self._reads_in_place(op, attr, packed)
        right = ("s8", "u8") if self._how == "pairs" or in_place else ("s8",)
        if why := refuse_types(op.src, op.weights, op.bias, op.dst, right):
            return why
        if op.src.layout.blocks or op.src.repeats or (op.src.ndims > 2 and not op.src.is_plain) or not op.dst.is_plain:
            return f"layouts {op.src} and {op.dst}; only row-major and, of src of rank 2, strides are supported"
        if 0 in op.weights.dims:
            return "weights without elements"
        if op.weights.tag != packed and (op.weights.layout.blocks or op.weights.repeats):
            return f"weights {op.weights}; only {packed} and layouts without blocks are supported"
        if not points_fit(attr, op.src.dtype):
            return f"a zero point of src that is no {op.src.dtype}"
        if self._how == "amx" and self._reads_in_place(op, attr, packed, "vnni"):
            return "few rows by weights that are not packed: packing takes longer than the product"
        if self._how == "amx" and is_few_with_point(attr, rows):
            return "few rows and a zero point of src: the sums of weights cost another pass over these"
        if in_place:
            # Its kernel has zero points of weights, which others do not have.
            attr = replace(attr, zero_points=tuple(q for q in attr.zero_points if not _is_of_columns(q, output)))
        return refuse_attributes(attr, op.bias, op.dst, output)

    def _describe(
        self, op: Matmul | InnerProduct, attr: PrimitiveAttr, target: Target, packed: str, sizes: tuple[int, int]
    ) -> Program:
        """Return the program; ``sizes`` are the dimensions of weights that count inputs and outputs."""
        depth, outputs = (op.weights.dims[dim] for dim in sizes)
        rows = math.prod(op.dst.dims[:-1])
        if rows * outputs == 0:
            return Program((), ())
        epilogue = Epilogue.of(attr, op.dst)
        build = NestBuilder(epilogue.tables)
        group = GROUP[self._how]
        padded = -(-depth // group) * group
        line = padded * GROUP_BYTES // group
        in_place = self._reads_in_place(op, attr, packed)
        row, step = (depth, 1) if op.src.ndims > 2 else op.src.outer_strides()
        source: LaunchArgument = ("m", (int(Arg.SRC), 0))
        signed = op.src.dtype == "s8"
        if self._how == "pairs" or (
            not in_place and ((signed and self._how in _UNSIGNED) or padded != depth or step != 1)
        ):
            to = build.book(rows * line)
            numbers, items = row_copies(rows, step, row, depth, padded)
            kernel = KernelSpec.of("integer_copy", how=copied_how(self._how, signed), signed=signed)
            build.launch(kernel, (source, to, epilogue.point(Arg.SRC), *(("i", n) for n in numbers)), items)
            source, row = to, line
        result = Outputs(1, 1, outputs, op.dst, op.bias)
        if in_place:
            multiply_rows(build, target.isa, self._how, (source, op.src, row), op.weights, result, epilogue, attr, rows)
            return build.program()
        weights: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
        if op.weights.tag != packed:
            to = build.book(-(-outputs // 16) * 16 * padded)
            along = (op.weights.outer_strides()[dim] for dim in sizes)
            arguments = (weights, to, *(("i", n) for n in (depth, outputs, *along)))
            how = "vnni" if group == 4 else self._how
            build.launch(KernelSpec.of("integer_weights", how=how), arguments, -(-outputs // 16))
            weights = to
        positions = Positions(1, rows, 0, row, rows * row, 0, [(0, padded // group)])
        exact = is_exact(attr, op.bias, op.dst)
        if self._how == "amx":
            reduce_by_tiles(build, source, op.src.dtype, weights, positions, result, epilogue, exact)
            return build.program()
        shift = 128 if signed and self._how in _UNSIGNED else 0
        if self._how == "bytes":
            multiply_bytes(build, (source, row), weights, shift, (rows, padded), result, epilogue, exact)
            return build.program()
        kind = op.weights.dtype
        reduce_integers(build, target.isa, self._how, source, weights, shift, positions, result, epilogue, exact, kind)
        return build.program()

    def _reads_in_place(self, op: Matmul | InnerProduct, attr: PrimitiveAttr, packed: str, how: str = "") -> bool:
        """Return whether weights are read where they are: few rows, and a matrix that is not packed."""
        if isinstance(op, InnerProduct) or op.weights.is_any or op.weights.tag == packed:
            return False
        points = any(item.arg == Arg.WEIGHTS for item in attr.zero_points)
        return fits_rows(op.src, op.weights, math.prod(op.dst.dims[:-1]), how or self._how, points)


class NativePackedMatmul(_PackedProduct):
    """src u8 or s8 of any rank by one matrix of weights s8, or u8 in pairs, packed or without blocks; row-major dst.

    Few rows by rows of weights that are not packed: weights may be u8, and have zero points, one or one a column.

    Attributes: scales of src and dst, of weights one or one a column; zero points of src and dst; one addition, then relu
    and clip.
    """

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        if math.prod(op.weights.dims[:-2]) != 1 or not op.bias_is_row:
            return "several matrices of weights, or a bias other than one value a column"
        op = self.complete(op, attr, target)
        return self._refuse(op, attr, target, self._packed(op.weights.ndims), 1 << op.weights.ndims - 1)

    def complete(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Matmul:
        src, dst = _row_major(op.src), _row_major(op.dst)
        weights = op.weights.with_tag(self._packed(op.weights.ndims)) if op.weights.is_any else op.weights
        return replace(op, src=src, weights=weights, bias=op.bias and _row_major(op.bias), dst=dst)

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        rank = op.weights.ndims
        return self._describe(op, attr, target, self._packed(rank), (rank - 2, rank - 1))

    def _packed(self, ndims: int) -> str:
        """Return the tag with groups of 16 columns side by side: ``BA16b4a`` for 2."""
        letters = "abcdefghijkl"[:ndims]
        depth, outputs = letters[-2:-1], letters[-1:]
        return f"{letters[:-2]}{outputs.upper()}{depth.upper()}16{outputs}{GROUP[self._how]}{depth}"


class NativePackedInnerProduct(_PackedProduct):
    """src u8 or s8 of rank 2 by weights s8, packed or without blocks, forward; attributes as `NativePackedMatmul`."""

    def reject(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> str | None:
        if not op.is_forward or op.src.ndims != 2:
            return "only forward of rank 2 is supported"
        return self._refuse(self.complete(op, attr, target), attr, target, self._packed(), 1)

    def complete(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> InnerProduct:
        weights = op.weights.with_tag(self._packed()) if op.weights.is_any else op.weights
        src, dst, bias = _row_major(op.src), _row_major(op.dst), op.bias and _row_major(op.bias)
        return replace(op, src=src, weights=weights, bias=bias, dst=dst)

    def program(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> Program:
        return self._describe(op, attr, target, self._packed(), (1, 0))

    def _packed(self) -> str:
        return f"AB16a{GROUP[self._how]}b"


def _is_of_columns(points: Quantisation, output: int) -> bool:
    return points.arg == Arg.WEIGHTS and points.mask in (0, output)


def _row_major(md: MemoryDesc) -> MemoryDesc:
    return md.with_tag("") if md.is_any else md
