"""Product of packed bf16 matrices into a row-major dst, summed in float32 by the dot-product instruction of AVX-512 BF16.

Each step adds the products of two neighbouring inputs to a sum. Limitation: the instruction takes factors and sums below
2**-126 in magnitude for 0, and always rounds to even, also if the processor is set otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from ...desc.data_type import item_size
from .compiler import types
from .compiler.language import intrinsic
from .elements import STORED, masked_load, narrowed, widened
from .first_lanes import masked_store
from .vec import (
    F32,
    I32,
    I64,
    LANES,
    VF,
    Builder,
    Value,
    call,
    constant,
    lanes_below,
    maximum,
    pointer,
    splat,
)

_PAIRS: ir.Type = ir.VectorType(ir.IntType(16), 2 * LANES)


def make(isa: str, heights: tuple[int, ...], blocks: int, bias: str, dst: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel for tiles of the ``heights`` in rows, and ``blocks`` vectors of 16 columns.

    ``bias`` and ``dst`` are data types; no ``bias`` if nothing is added. Arguments: addresses of the left panels, the packed
    right matrix, bias (one a column) and dst; tiles, the rows of the first ones, and how many these are: the others have a
    row less; columns; pairs along K; bytes of the left panels for each row; tiles of a strip; and the lower bound of results.
    One item of work is a strip of tiles for ``blocks`` vectors of columns.
    """
    wide, single = (_make_tiles(heights, width, bias, dst) for width in (blocks, 1))
    bias_size, size = item_size(bias or "f32"), item_size(dst)

    def product(
        begin: int, end: int, left: int, right: int, biases: int, to: int, tiles: int, height: int, large: int, columns: int,
        pairs: int, left_row: int, strip_tiles: int, bound: float,
    ) -> None:  # fmt: skip
        vectors = (columns + 15) // 16
        parts = (vectors + blocks - 1) // blocks
        block = pairs * 64
        row_bytes = columns * size
        for item in range(begin, end):
            strip = item // parts
            first = (item - strip * parts) * blocks
            rest = min(blocks, vectors - first)
            factors = right + first * block
            for number in range(strip * strip_tiles, min(tiles, (strip + 1) * strip_tiles)):
                row = number * height - max(0, number - large)
                count = height - int(number >= large)
                at = to + row * row_bytes + first * 16 * size
                source = left + row * left_row
                added = biases + first * 16 * bias_size
                behind = columns - first * 16
                if blocks == 1 or rest == blocks:
                    wide(count, pairs, source, factors, block, added, at, row_bytes, behind, bound)
                else:
                    for j in range(rest):
                        single(count, pairs, source, factors + j * block, block, added + j * 16 * bias_size,
                               at + j * 16 * size, row_bytes, behind - j * 16, bound)  # fmt: skip

    return product, types.void(*[types.int64] * 13, types.float64)


def _make_tiles(heights: tuple[int, ...], blocks: int, bias: str, dst: str) -> Any:
    """Return the intrinsic that computes a tile of one of the heights."""
    size = item_size(dst)

    def emit_tile(b: Builder, height: int, a: list[Value]) -> None:
        pairs, left, right, block, biases, to, row, count, bound = a
        sums = _emit_sums(b, height, blocks, pairs, left, right, block)
        masks = [lanes_below(b, b.sub(count, I64(LANES * j))) for j in range(blocks)]
        added = []
        for j in range(blocks if bias else 0):
            at = b.add(biases, I64(LANES * item_size(bias) * j))
            added.append(widened(b, masked_load(b, at, STORED[bias], masks[j]), bias))
        least = splat(b, b.fptrunc(bound, F32))
        for i in range(height):
            for j in range(blocks):
                value = sums[i * blocks + j]
                if bias:
                    value = b.fadd(value, added[j])
                at = b.add(to, b.add(b.mul(row, I64(i)), I64(LANES * size * j)))
                masked_store(b, narrowed(b, maximum(b, least, value), dst), at, masks[j])

    @intrinsic
    def tile(
        _: Any, height: Any, pairs: Any, left: Any, right: Any, block: Any, biases: Any, to: Any, row: Any, count: Any,
        bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            done = b.append_basic_block("computed")
            # A number of no tile takes the last one's place.
            places = {height: b.append_basic_block("tile") for height in heights}
            chosen = b.switch(a[0], places[heights[-1]])
            for height, place in places.items():
                chosen.add_case(I64(height), place)
                b.position_at_end(place)
                emit_tile(b, height, a[1:])
                b.branch(done)
            b.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9, types.float64), emit

    return tile


def _emit_sums(
    b: Builder, positions: int, blocks: int, pairs: Value, left: Value, right: Value, block: Value
) -> list[Value]:
    """Return the sums, position by position, the blocks of one position side by side."""
    zero = constant(0.0)
    before = b.block
    loop, done = b.append_basic_block("pair"), b.append_basic_block("store")
    b.cbranch(b.icmp_signed(">", pairs, I64(0)), loop, done)
    b.position_at_end(loop)
    first = (pairs, left, right, *[zero] * (positions * blocks))
    phis = [b.phi(value.type) for value in first]
    for phi, value in zip(phis, first, strict=True):
        phi.add_incoming(value, before)
    rest, source, row, *sums = phis
    factors = [b.load(pointer(b, b.add(row, b.mul(block, I64(j))), _PAIRS), align=4) for j in range(blocks)]
    new: list[Value] = []
    for i in range(positions):
        word = b.load(pointer(b, b.add(source, I64(4 * i)), I32), align=4)
        pair = b.bitcast(splat(b, word), _PAIRS)
        new += [_multiply_pairs(b, sums[len(new) + j], pair, factors[j]) for j in range(blocks)]
    left_over = b.sub(rest, I64(1))
    following = (left_over, b.add(source, I64(4 * positions)), b.add(row, I64(64)), *new)
    for phi, value in zip(phis, following, strict=True):
        phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed(">", left_over, I64(0)), loop, done)
    b.position_at_end(done)
    results = []
    for value in new:
        result = b.phi(VF)
        result.add_incoming(zero, before)
        result.add_incoming(value, loop)
        results.append(result)
    return results


def _multiply_pairs(b: Builder, total: Value, left: Value, right: Value) -> Value:
    """Return ``total`` plus the dot products of pairs of bf16, lane by lane."""
    kind = ir.VectorType(_BFloat(), 2 * LANES)
    factors = (b.bitcast(left, kind), b.bitcast(right, kind))
    return call(b, "llvm.x86.avx512bf16.dpbf16ps.512", total, *factors, result=VF)


class _BFloat(ir.Type):
    """LLVM's type of bf16, which llvmlite does not define."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)
