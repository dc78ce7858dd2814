"""Product of packed 8-bit matrices into a row-major s32 destination, summed exactly (modulo 2**32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_dot import multiply_groups, register_bits
from .vec import I32, I64, LANES, VI, Builder, Value, call, lanes_below, pointer, splat


def make(isa: str, how: str, positions: int, blocks: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for panels of ``positions`` rows and ``blocks`` vectors of 16 columns.

    Arguments: addresses of the packed left and right matrices, of their terms (s32, a row and a column each; both are
    added) and of dst; 1 to add to the former dst; rows and columns; groups along K; panels of a strip, strips; bytes
    from row to row of dst. One item of work is a strip of panels for ``blocks`` vectors of columns.
    """
    bits = register_bits(isa)
    wide = _make_tile(how, bits, positions, blocks)
    single = _make_tile(how, bits, positions, 1)

    def product(
        begin: int, end: int, left: int, right: int, row_terms: int, column_terms: int, dst: int, adds: int,
        rows: int, columns: int, groups: int, strip_panels: int, strips: int, dst_row: int,
    ) -> None:  # fmt: skip
        vectors = (columns + 15) // 16
        panels = (rows + positions - 1) // positions
        panel = groups * positions * 4
        block = groups * 64
        for item in range(begin, end):
            first = item // strips * blocks
            strip = item % strips
            count = columns - first * 16
            rest = min(blocks, vectors - first)
            factors = right + first * block
            terms = column_terms + first * 64
            for number in range(strip * strip_panels, min(panels, (strip + 1) * strip_panels)):
                row = number * positions
                to = dst + row * dst_row + first * 64
                source = left + number * panel
                if blocks == 1 or rest == blocks:
                    wide(
                        groups, source, factors, block, row_terms + row * 4, terms, to, dst_row, rows - row, count, adds
                    )
                else:
                    for j in range(rest):
                        single(groups, source, factors + j * block, block, row_terms + row * 4, terms + j * 64,
                               to + j * 64, dst_row, rows - row, count - j * 16, adds)  # fmt: skip

    return product, types.void(*[types.int64] * 14)


def _make_tile(how: str, bits: int, positions: int, blocks: int) -> Any:
    """Return the intrinsic that computes one tile."""

    @intrinsic
    def tile(
        _: Any, groups: Any, left: Any, right: Any, block: Any, row_terms: Any, column_terms: Any, dst: Any,
        dst_row: Any, rows: Any, count: Any, adds: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            groups, left, right, block, row_terms, column_terms, dst, dst_row, rows, count, adds = a
            sums = _emit_sums(b, groups, left, right, block)
            masks = [lanes_below(b, b.sub(count, I64(16 * j))) for j in range(blocks)]
            columns = [b.load(_at(b, column_terms, I64(64 * j), VI), align=4) for j in range(blocks)]
            wants = b.icmp_signed("!=", adds, I64(0))
            for i in range(positions):
                with b.if_then(b.icmp_signed(">", rows, I64(i))):
                    term = splat(b, b.load(_at(b, row_terms, I64(4 * i), I32), align=4))
                    for j in range(blocks):
                        to = b.add(dst, b.add(b.mul(dst_row, I64(i)), I64(64 * j)))
                        value = b.add(sums[i * blocks + j], b.add(term, columns[j]))
                        _store(b, to, value, masks[j], wants)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), emit

    def _emit_sums(b: Builder, groups: Value, left: Value, right: Value, block: Value) -> list[Value]:
        before = b.block
        loop, done = b.append_basic_block("group"), b.append_basic_block("store")
        zero = ir.Constant(VI, [0] * LANES)
        b.cbranch(b.icmp_signed(">", groups, I64(0)), loop, done)
        b.position_at_end(loop)
        phis = {}
        for name, start, kind in (("rest", groups, I64), ("left", left, I64), ("right", right, I64)):
            phis[name] = b.phi(kind)
            phis[name].add_incoming(start, before)
        sums = [b.phi(VI) for _ in range(positions * blocks)]
        for phi in sums:
            phi.add_incoming(zero, before)
        factors = [b.load(_at(b, phis["right"], b.mul(block, I64(j)), VI), align=4) for j in range(blocks)]
        new: list[Value] = []
        for i in range(positions):
            word = splat(b, b.load(_at(b, phis["left"], I64(4 * i), I32), align=4))
            new += [multiply_groups(b, how, bits, sums[len(new) + j], word, factors[j]) for j in range(blocks)]
        steps = {"rest": I64(-1), "left": I64(4 * positions), "right": I64(64)}
        following = {name: b.add(phi, steps[name]) for name, phi in phis.items()}
        for name, phi in phis.items():
            phi.add_incoming(following[name], loop)
        for phi, value in zip(sums, new, strict=True):
            phi.add_incoming(value, loop)
        b.cbranch(b.icmp_signed(">", following["rest"], I64(0)), loop, done)
        b.position_at_end(done)
        results = []
        for value in new:
            result = b.phi(VI)
            result.add_incoming(zero, before)
            result.add_incoming(value, loop)
            results.append(result)
        return results

    return tile


def _store(b: Builder, address: Value, value: Value, mask: Value, adds: Value) -> None:
    where = pointer(b, address, VI)
    zero = ir.Constant(VI, [0] * LANES)
    wanted = b.select(adds, mask, ir.Constant(mask.type, [0] * LANES))
    old = call(b, "llvm.masked.load.v16i32.p0", where, I32(4), wanted, zero, result=VI)
    call(b, "llvm.masked.store.v16i32.p0", b.add(value, old), where, I32(4), mask, result=ir.VoidType())


def _at(b: Builder, address: Value, distance: Value, kind: ir.Type) -> Value:
    return pointer(b, b.add(address, distance), kind)
