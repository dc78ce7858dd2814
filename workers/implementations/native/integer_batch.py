"""Matmul of batches of computed matrices of 8-bit integers: each right one is packed in a launch, results are requantized."""

from __future__ import annotations

import math
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Matmul, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.point_limits import LEAST_POINT, MOST_POINT
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .batch_products import batch_products
from .convolution_tiles import strips, tiling
from .integer_amx import EXTENSIONS_OF, copied_how
from .integer_epilogue import NONE, Epilogue, is_exact, points_fit, refuse_attributes, refuse_types
from .integer_reduce import (
    GROUP,
    GROUP_BYTES,
    Outputs,
    add_row_products,
    add_terms,
    is_crossed_product,
    row_copies,
    scaled_place,
)
from .nest_builder import NestBuilder

_BYTES = ("u8", "s8")
#: Rows, at most, by which a matrix that can be packed once is multiplied in less time by other implementations.
_FEW_ROWS: Final = 8
#: Products of a pair of matrices at least that are worth passes over both for half the multiplications.
_HALVED: Final = 1 << 16


class NativeIntegerBatch:
    """src (..., M, K) and weights (..., K, N), u8 or s8 each, batch dimensions broadcast; row-major src and dst.

    Weights have any strides of rows and columns. Attributes: scales of src and dst, of weights one or one a column; one zero
    point each of src, weights and dst; one addition, then relu and clip. Sums are exact modulo 2**32.
    """

    engine_kind = "cpu"
    general = True

    def __init__(self, how: str) -> None:
        self.name = f"native:batch_{how}"
        self._how = how
        self.extensions = EXTENSIONS_OF.get(how, ())

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := target.lack_of(self.extensions):
            return why
        if not op.bias_is_row:
            return "a bias other than one value a column"
        has_point = any(item.arg == Arg.WEIGHTS for item in attr.zero_points)
        packs_once = op.weights.is_any and math.prod(op.weights.dims[:-2]) == 1 and not has_point
        if packs_once and math.prod(op.dst.dims[:-1]) <= _FEW_ROWS:
            return "few rows by one matrix: packing it in each run takes longer than the product"
        op = self.complete(op, attr, target)
        if why := refuse_types(op.src, op.weights, op.bias, op.dst, _BYTES):
            return why
        if not (op.src.is_plain and op.dst.is_plain):
            return f"layouts {op.src} and {op.dst}; only row-major is supported"
        if op.weights.layout.blocks or op.weights.repeats or 0 in op.weights.dims:
            return f"weights {op.weights}; only layouts without blocks are supported"
        if not points_fit(attr, op.src.dtype):
            return f"a zero point of src that is no {op.src.dtype}"
        others = tuple(item for item in attr.zero_points if item.arg != Arg.WEIGHTS or item.mask)
        return refuse_attributes(replace(attr, zero_points=others), op.bias, op.dst, 1 << op.weights.ndims - 1)

    def complete(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Matmul:
        src, weights, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.weights, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        return replace(op, src=src, weights=weights, bias=bias, dst=dst)

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        how, (depth, columns) = self._how, op.weights.dims[-2:]
        if 0 in op.dst.dims:
            return Program((), ())
        rows, products, offsets = batch_products(op)
        lefts = math.prod(op.src.dims[:-1]) // rows
        epilogue, exact = Epilogue.of(attr, op.dst), is_exact(attr, op.bias, op.dst)
        build = NestBuilder(epilogue.tables)
        groups = -(-depth // GROUP[how])
        halves = how == "pairs" and is_crossed_product(target.isa, rows, groups + groups % 2, columns, _HALVED)
        groups += groups % 2 if halves else 0
        row, blocks, block_bytes = groups * GROUP_BYTES, -(-columns // 16), groups * 16 * GROUP_BYTES
        signed = op.src.dtype == "s8"
        source: LaunchArgument = ("m", (int(Arg.SRC), 0))
        if how == "pairs" or signed or depth % GROUP[how]:
            to = build.book(lefts * rows * row)
            padded = groups * GROUP[how]
            numbers, items = row_copies(lefts * rows, 1, depth, depth, padded)
            kernel = KernelSpec.of("integer_copy", how=copied_how(how, signed), signed=signed)
            args = (source, to, epilogue.point(Arg.SRC), *(("i", n) for n in numbers))
            build.launch(kernel, args, items)
            source = to
        result = Outputs(1, 1, columns, op.dst, op.bias)
        base, factors, moved = add_terms(build, how, NONE, 0, groups, result, epilogue, exact, "s8", True)
        packed, terms = build.book(len(offsets) * blocks * block_bytes), build.book(len(offsets) * blocks * 64)
        step, across = op.weights.outer_strides()[-2:]
        shift = 128 if how == "vnni" and signed else 0
        args = (
            ("m", (int(Arg.WEIGHTS), 0)), packed, base, terms, epilogue.point(Arg.SRC), epilogue.point(Arg.WEIGHTS),
            ("t", build.table(offsets)), *(("i", n) for n in (depth, columns, groups, step, across, shift)),
        )  # fmt: skip
        kind = op.weights.dtype
        build.launch(KernelSpec.of("integer_batch_weights", how=how, kind=kind), args, len(offsets) * blocks)
        minus = -128 if how == "vnni" and kind == "u8" else 0
        row_terms = NONE
        if points := _has_point(attr, minus, how == "pairs"):
            row_terms = build.book(lefts * rows * 4)
            args = (source, row_terms, epilogue.point(Arg.WEIGHTS), *(("i", n) for n in (row, groups, minus)))
            build.launch(KernelSpec.of("integer_row_sums", how=how), args, lefts * rows)
        pairs = [number for pair in products for number in pair]
        if halves and not points:
            count = len(strips(rows // 6, rows * row, blocks * block_bytes, blocks, len(products))) - 1
            args = (
                source, add_row_products(build, source, lefts * rows, groups // 2, row), packed, ("m", (int(Arg.DST), 0)),
                epilogue.residual, terms, factors, moved, *scaled_place(epilogue, exact), ("t", build.table(pairs)),
                *(("i", n) for n in (count, blocks, columns, rows, groups // 2, row)),
                ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
            )  # fmt: skip
            kernel = KernelSpec.of(
                "integer_crossed_batch", dtype=op.dst.dtype, residual=epilogue.residual_dtype, exact=exact,
                part=columns % 16 != 0,
            )  # fmt: skip
            build.launch(kernel, args, len(products) * count * blocks)
            return build.program()
        tiles = tiling(target.isa, 1, rows, blocks)
        passes = -(-blocks // tiles.blocks)
        cut = strips(len(tiles.places), rows * row, blocks * block_bytes, passes, len(products))
        places = [value for number, _, first in tiles.places for value in (number, first)]
        tables = (("t", build.table(values)) for values in (pairs, [0, groups], places, list(cut)))
        args = (
            source, packed, ("m", (int(Arg.DST), 0)), epilogue.residual, terms, row_terms, factors, moved,
            *scaled_place(epilogue, exact), *tables,
            *(("i", n) for n in (len(cut) - 1, blocks, columns, rows, row, block_bytes)),
            ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
        )  # fmt: skip
        kernel = KernelSpec.of(
            "integer_batch", how=how, tiles=tuple(count for (count,) in tiles.kinds), blocks=tiles.blocks,
            dtype=op.dst.dtype, residual=epilogue.residual_dtype, exact=exact, part=columns % 16 != 0,
            kind="s16" if how == "pairs" else "s8", points=points,
        )  # fmt: skip
        build.launch(kernel, args, len(products) * (len(cut) - 1) * passes)
        return build.program()


def _has_point(attr: PrimitiveAttr, minus: int, centred: bool) -> bool:
    """Return whether weights have a zero point, ``minus`` added to it, as they are packed, as far as it is known.

    Those that are ``centred`` have one only if no byte holds it.
    """
    (point,) = [item.values for item in attr.zero_points if item.arg == Arg.WEIGHTS] or [(0,)]
    if centred and point:
        return not LEAST_POINT <= point[0] <= MOST_POINT
    return not point or point[0] + minus != 0
