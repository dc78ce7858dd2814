"""Attention over blocks of keys: scores, running maximum and sum, and weighted values of some queries at a time.

The softmax is online (Milakov and Gimelshein, arXiv:1805.02867): a block of keys with a larger maximum scales the sums of
the blocks before. An item of ``tiles`` is up to 16 ``blocks`` queries of a head, which have scores, weights and sums on the
stack, 16 queries a vector. An item of ``rows`` is one query, with the keys a vector.

The record that both take, in int64: distances in bytes from batch to batch, head to head and row to row of query, key, value
and dst, and of the mask (0 where it is broadcast); then heads, heads that share keys, queries, keys, depth, columns of
values, keys of a block, items of a head, those of them that are large, and the distance of the last key that a causal query
sees from its own number (at least all keys where it sees all).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numpy as np

from .attention_tile import make_dots, make_means, make_scores
from .compiler import types
from .compiler.language import inlined, intrinsic
from .exponentials import vexp_below
from .first_lanes import vstore_part
from .transpose import gather_rows, transpose, transpose_pad, transpose_part
from .vec import (
    F32,
    I8,
    I64,
    Builder,
    Value,
    constant,
    fload,
    fstore,
    iload,
    pointer,
    vadd,
    vbroadcast,
    vdiv,
    vector,
    vfma,
    vkeep_or,
    vload,
    vload_part,
    vmax,
    vmax_lane,
    vmul,
    vselect_gt,
    vset,
    vstore,
    vsub,
    vsum,
)

#: Keys of a block times vectors of queries, at most.
_SCORES = 384
#: Keys of a block in ``rows``, at most.
_ROW = 512
#: Rows of 64 bytes that a tile may write or read behind the last one.
_SLACK = 16


def make(isa: str, part: str, blocks: tuple[int, ...], room: int, mask: str) -> tuple[Callable[..., None], Any]:
    """Return a kernel and its signature.

    ``blocks`` are vectors of queries of large and small items, ``room`` is at least the depth and the columns of values.
    ``mask`` is empty, ``row`` or ``full``, with ``_bool`` behind for one of truth values.
    """
    return _rows(isa, mask) if part == "rows" else _tiles(isa, blocks, room, mask)


def _tiles(isa: str, blocks: tuple[int, ...], room: int, mask: str) -> tuple[Callable[..., None], Any]:
    large = _make_item(isa, blocks[0], room, mask)
    small = _make_item(isa, blocks[1], room, mask) if len(blocks) > 1 else large
    most, least, uneven = 16 * blocks[0], 16 * blocks[-1], len(blocks) > 1

    def kernel(
        begin: int, end: int, query: int, key: int, value: int, mask: int, dst: int, record: int, scale: float
    ) -> None:
        heads, parts, whole = iload(record + 120), iload(record + 176), iload(record + 184)
        for item in range(begin, end):
            part = item % parts
            head = item // parts % heads
            batch = item // (parts * heads)
            group = head // iload(record + 128)
            q = query + batch * iload(record) + head * iload(record + 8)
            k = key + batch * iload(record + 24) + group * iload(record + 32)
            v = value + batch * iload(record + 48) + group * iload(record + 56)
            d = dst + batch * iload(record + 72) + head * iload(record + 80)
            m = mask + batch * iload(record + 96) + head * iload(record + 104)
            if not uneven or part < whole:
                large(q, k, v, m, d, record, part * most, np.float32(scale))
            else:
                small(q, k, v, m, d, record, whole * most + (part - whole) * least, np.float32(scale))

    return kernel, types.void(*[types.int64] * 8, types.float64)


def _make_item(isa: str, blocks: int, room: int, mask: str) -> Any:
    """Return a function that computes one item: vectors of queries from number ``first`` on."""
    size = {"x86-64-v4": 6 if blocks > 3 else 8, "x86-64-v3": 6}.get(isa, 2)
    line = 64 * blocks
    scores_tile, means_tile = make_scores(size, blocks, mask != ""), make_means(size, blocks)
    panel_at, sums_at = _stack(line * room), _stack(line * (room + _SLACK))
    scores_at, state_at = _stack(line * (_SCORES // blocks + _SLACK)), _stack(3 * line)
    square_at = _stack(1024)
    fill = _make_fill(mask, blocks)

    @inlined
    def run(query: int, key: int, value: int, mask: int, dst: int, record: int, first: int, scale: float) -> None:
        query_row, key_row, value_row, dst_row = (
            iload(record + 16), iload(record + 40), iload(record + 64), iload(record + 88)
        )  # fmt: skip
        mask_row, rows, keys, depth, width = (
            iload(record + 112), iload(record + 136), iload(record + 144), iload(record + 152), iload(record + 160)
        )  # fmt: skip
        most, reach = iload(record + 168), iload(record + 192)
        panel, sums, scores, state, square = panel_at(), sums_at(), scores_at(), state_at(), square_at()
        highest, total, factor = state, state + line, state + 2 * line
        lowest, zero = vset(np.float32(-np.inf)), vset(np.float32(0.0))
        _pack(query + first * query_row, query_row, rows - first, depth, panel, blocks, scale)
        for at in range(0, line, 64):
            vstore(highest + at, lowest)
            vstore(total + at, zero)
        for at in range(0, line * (width + size), 64):
            vstore(sums + at, zero)
        limit = min(keys, min(rows, first + 16 * blocks) + reach)
        begin = 0
        while begin < limit:
            count = min(most, limit - begin)
            fill(mask + first * mask_row, mask_row, begin, rows - first, count, scores, square)
            for j in range(0, count, size):
                scores_tile(key + (begin + j) * key_row, key_row, count - j - 1, panel, depth, scores + j * line)
            # Query number r sees the keys below r + 1 + reach.
            for j in range(max(0, first + 1 + reach - begin), count):
                for c in range(blocks):
                    at = scores + j * line + 64 * c
                    vstore(at, vkeep_or(lowest, begin + j - reach - first - 16 * c, vload(at)))
            for at in range(0, line, 64):
                _weigh(scores + at, line, count, highest + at, total + at, factor + at)
            for e in range(0, width, size):
                means_tile(value + begin * value_row + 4 * e, value_row, scores, count, sums + e * line, factor)
            begin += count
        for c in range(blocks):
            found = vload(total + 64 * c)
            # A query without keys has a sum of 0.
            inverse = vselect_gt(found, zero, vdiv(vset(np.float32(1.0)), found), vmul(found, zero))
            for e in range(width):
                at = sums + e * line + 64 * c
                vstore(at, vmul(vload(at), inverse))
            _unpack(
                sums + 64 * c, line, dst + (first + 16 * c) * dst_row, dst_row, rows - first - 16 * c, width, square
            )

    return run


@inlined
def _pack(query: int, row: int, rows: int, depth: int, panel: int, blocks: int, scale: float) -> None:
    """Write queries times the scale as (depth, blocks, 16); those behind the last one repeat it."""
    line = 64 * blocks
    for c in range(blocks):
        source, last, to = query + 16 * c * row, min(16, rows - 16 * c) - 1, panel + 64 * c
        whole = depth & -16
        for d in range(0, whole, 16):
            gather_rows(source + 4 * d, row, last, to + d * line, line)
        for d in range(whole, depth):
            for i in range(16):
                fstore(to + d * line + 4 * i, fload(source + min(i, last) * row + 4 * d))
    factor = vset(scale)
    for at in range(panel, panel + depth * line, 64):
        vstore(at, vmul(vload(at), factor))


@inlined
def _weigh(scores: int, line: int, count: int, highest: int, total: int, factor: int) -> None:
    """Turn scores of a vector of queries into weights, and bring the running maximum, sum and factor up to date."""
    lowest, zero = vset(np.float32(-np.inf)), vset(np.float32(0.0))
    before = vload(highest)
    most, also = before, lowest
    end = scores + count * line
    at = scores
    while at + line < end:
        most = vmax(vload(at), most)
        also = vmax(vload(at + line), also)
        at += 2 * line
    if at < end:
        most = vmax(vload(at), most)
    most = vmax(also, most)
    vstore(highest, most)
    # Without a key yet, all weights are exp(-inf - 0).
    shift = vselect_gt(most, lowest, most, zero)
    part = zero
    for at in range(scores, end, line):
        weight = vexp_below(vsub(vload(at), shift))
        vstore(at, weight)
        part = vadd(part, weight)
    past = vexp_below(vsub(before, shift))
    vstore(factor, past)
    vstore(total, vfma(vload(total), past, part))


@inlined
def _unpack(sums: int, line: int, dst: int, row: int, rows: int, width: int, square: int) -> None:
    """Write sums, 16 queries a vector, as rows."""
    count, whole = min(16, rows), width & -16
    for e in range(0, whole, 16):
        transpose_part(sums + e * line, line, dst + 4 * e, row, count)
    if whole < width:
        transpose(sums + whole * line, line, square, 64)
        for i in range(count):
            vstore_part(dst + i * row + 4 * whole, vload(square + 64 * i), width - whole)


def _make_fill(mask: str, blocks: int) -> Any:
    """Return a function that writes the mask of a block of keys where the scores will be added to it."""
    line = 64 * blocks
    truth = mask.endswith("_bool")
    item = 1 if truth else 4

    @inlined
    def none(mask: int, row: int, begin: int, rows: int, count: int, scores: int, square: int) -> None:
        pass

    @inlined
    def one(mask: int, row: int, begin: int, rows: int, count: int, scores: int, square: int) -> None:
        for j in range(count):
            place = mask + item * (begin + j)
            added = vset(_truth(place)) if truth else vbroadcast(place)
            for at in range(0, line, 64):
                vstore(scores + j * line + at, added)

    @inlined
    def each(mask: int, row: int, begin: int, rows: int, count: int, scores: int, square: int) -> None:
        for c in range(blocks):
            source, lanes = mask + 16 * c * row + item * begin, min(16, rows - 16 * c)
            for j in range(0, count, 16):
                to, columns = scores + j * line + 64 * c, min(16, count - j)
                if truth:
                    for i in range(lanes):
                        _read_mask(source + i * row + j, columns, square + 64 * i)
                    transpose_part(square, 64, to, line, columns)
                else:
                    transpose_pad(source + 4 * j, row, to, line, lanes, columns)

    return each if mask.startswith("full") else one if mask else none


def _rows(isa: str, mask: str) -> tuple[Callable[..., None], Any]:
    size = 8 if isa.startswith("x86-64-v4") else 4
    dots = make_dots(size)
    truth, each = mask.endswith("_bool"), mask != ""
    read = _read_truths if truth else _read_floats
    scores_at, square_at = _stack(4 * (_ROW + 16)), _stack(64)

    def kernel(
        begin: int, end: int, query: int, key: int, value: int, mask: int, dst: int, record: int, scale: float
    ) -> None:
        heads, rows, keys = iload(record + 120), iload(record + 136), iload(record + 144)
        key_row, value_row = iload(record + 40), iload(record + 64)
        depth, width, reach = iload(record + 152), iload(record + 160), iload(record + 192)
        scores, square = scores_at(), square_at()
        lowest, zero, by = vset(np.float32(-np.inf)), vset(np.float32(0.0)), vset(np.float32(scale))
        for item in range(begin, end):
            row = item % rows
            head = item // rows % heads
            batch = item // (rows * heads)
            group = head // iload(record + 128)
            q = query + batch * iload(record) + head * iload(record + 8) + row * iload(record + 16)
            k = key + batch * iload(record + 24) + group * iload(record + 32)
            v = value + batch * iload(record + 48) + group * iload(record + 56)
            d = dst + batch * iload(record + 72) + head * iload(record + 80) + row * iload(record + 88)
            m = mask + batch * iload(record + 96) + head * iload(record + 104) + row * iload(record + 112)
            limit = min(keys, row + 1 + reach)
            highest, total = np.float32(-np.inf), np.float32(0.0)
            for e in range(0, width, 16):
                vstore_part(d + 4 * e, zero, min(16, width - e))
            first = 0
            while first < limit:
                count = min(_ROW, limit - first)
                for j in range(0, count, size):
                    dots(q, k + (first + j) * key_row, key_row, count - j - 1, depth, scores + 4 * j)
                most = vset(highest)
                for j in range(0, count, 16):
                    lanes = min(16, count - j)
                    score = vmul(vload(scores + 4 * j), by)
                    if each:
                        score = vadd(score, read(m, first + j, lanes, square))
                    score = vkeep_or(score, lanes, lowest)
                    vstore(scores + 4 * j, score)
                    most = vmax(score, most)
                before = vset(highest)
                highest = vmax_lane(most)
                shift = vselect_gt(vset(highest), lowest, vset(highest), zero)
                part = zero
                for j in range(0, count, 16):
                    weight = vexp_below(vsub(vload(scores + 4 * j), shift))
                    vstore(scores + 4 * j, weight)
                    part = vadd(part, weight)
                past = vexp_below(vsub(before, shift))
                total = total * vget(past) + vsum(part)
                _add_values(v + first * value_row, value_row, scores, count, width, d, past)
                first += count
            # A query without keys has a sum of 0.
            found = vset(total)
            inverse = vselect_gt(found, zero, vdiv(vset(np.float32(1.0)), found), vmul(found, zero))
            for e in range(0, width, 16):
                lanes = min(16, width - e)
                vstore_part(d + 4 * e, vmul(vload_part(d + 4 * e, lanes), inverse), lanes)

    return kernel, types.void(*[types.int64] * 8, types.float64)


@inlined
def _add_values(value: int, row: int, weights: int, count: int, width: int, dst: int, past: Any) -> None:
    """Multiply a row by a factor and add weighted values to it."""
    e = 0
    while e + 64 <= width:
        to = dst + 4 * e
        first, second = vmul(vload(to), past), vmul(vload(to + 64), past)
        third, fourth = vmul(vload(to + 128), past), vmul(vload(to + 192), past)
        source = value + 4 * e
        for j in range(count):
            weight = vbroadcast(weights + 4 * j)
            first, second = vfma(weight, vload(source), first), vfma(weight, vload(source + 64), second)
            third, fourth = vfma(weight, vload(source + 128), third), vfma(weight, vload(source + 192), fourth)
            source += row
        vstore(to, first)
        vstore(to + 64, second)
        vstore(to + 128, third)
        vstore(to + 192, fourth)
        e += 64
    while e < width:
        lanes = min(16, width - e)
        first = vmul(vload_part(dst + 4 * e, lanes), past)
        source = value + 4 * e
        for j in range(count):
            first = vfma(vbroadcast(weights + 4 * j), vload_part(source, lanes), first)
            source += row
        vstore_part(dst + 4 * e, first, lanes)
        e += 16


@inlined
def _read_mask(mask: int, count: int, to: int) -> None:
    """Write up to 16 truth values as 0 and minus infinity."""
    if count >= 16:
        vstore(to, _truths(mask))
    else:
        for i in range(count):
            fstore(to + 4 * i, _truth(mask + i))


@inlined
def _read_truths(mask: int, index: int, count: int, square: int) -> Any:
    """Return up to 16 truth values as 0 and minus infinity; the lanes behind them are arbitrary."""
    _read_mask(mask + index, count, square)
    return vload(square)


@inlined
def _read_floats(mask: int, index: int, count: int, square: int) -> Any:
    """Return up to 16 floats."""
    return vload_part(mask + 4 * index, count)


def _stack(size: int) -> Any:
    """Return an intrinsic that returns the address of memory on the stack, the same at each call in one place."""

    @intrinsic
    def stack(_: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            with b.goto_entry_block():
                place = b.alloca(ir.ArrayType(I8, size))
                place.align = 64
            return b.ptrtoint(place, I64)

        return types.int64(), emit

    return stack


@intrinsic
def vget(_: Any, value: Any) -> Any:
    """Return lane 0."""
    return types.float32(vector), lambda context, b, sig, a: b.extract_element(a[0], I64(0))


@intrinsic
def _truth(_: Any, address: Any) -> Any:
    """Return 0 for a truth value, minus infinity if it is false."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        given = b.load(pointer(b, a[0], I8), align=1)
        return b.select(b.icmp_unsigned("==", given, I8(0)), F32(float("-inf")), F32(0.0))

    return types.float32(types.int64), emit


@intrinsic
def _truths(_: Any, address: Any) -> Any:
    """Return 16 truth values as `_truth` does."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        kind = ir.VectorType(I8, 16)
        given = b.load(pointer(b, a[0], kind), align=1)
        return b.select(
            b.icmp_unsigned("==", given, ir.Constant(kind, [0] * 16)), constant(float("-inf")), constant(0.0)
        )

    return vector(types.int64), emit
