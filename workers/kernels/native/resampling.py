"""Resample up to three spatial dimensions by the nearest element or linearly, wherever places in src are.

Weights are separable: each index of dst has a place below and one above it in src, and weights of both, each rounded once;
the upper one's is 0 if there is only one place. Tables hold them: for each index a record of both places (int64) and both
weights, or for rows along the width an array of each. Weights are of the type of lanes: float32, or float64 for data types that
float32 does not hold.

``rows`` has 16 positions of a row a vector. It widens the rows of src that it needs into memory on the stack, one for
each parity of height and depth, and combines them: a row that the next row of dst needs too is there. ``blocked`` has 16
channels a vector. Elements of weight 0 count nothing, even if they are infinite. If positions see ``pairs`` that follow one
another (1 plus the number of the first element), these are loaded as vectors. Rows whose elements ``repeat`` equally often are
written at once; those of the ``same`` elements are not looked up. The nearest element without a post-op is moved as it is,
whatever its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from . import functions
from .bits import copy_bytes, make_load_index
from .compiler import types
from .compiler.language import inlined, intrinsic
from .elements import elements
from .samples import Samples, make_repeated, samples
from .stack_room import stack_room
from .vec import I8, I64, Builder, Value, iload, pointer, veven, vfma, vkeep, vmul, vodd, vselect_gt

#: Positions of a row that are widened at once: four rows of them are in the first-level cache.
STRIP: Final = 512
#: Columns of a row that is mixed from two before its columns are; and those behind them that vectors read, too.
MIXED: Final = 4096
_SLACK: Final = 48


def make(
    isa: str, part: str, linear: bool, close: bool, chain: tuple[Any, ...], repeat: int = 1, dtype: str = "f32",
    shrinks: bool = False, same: bool = False, near: bool = False, far: bool = False,
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return a kernel and its signature.

    Positions are ``close`` if each vector of them sees elements of which the last is at most 15 behind the first, ``near`` if
    each half of one sees elements at most 7 behind its first, ``far`` if the first and the last of each see its first and last
    element, at most 31 apart. If position p of a row sees element p // ``repeat``, that is 2, 4, 8 or 16; else it is 1.
    Positions may also see the ``same`` elements, p. Elements that are only moved are whole numbers without sign, of the size of
    any other type. If planes of f32 ``shrinks`` says so, two rows of src, of `MIXED` columns at most, are mixed before their
    columns are: no row is seen from two rows of dst.
    """
    of = samples(dtype, not linear and not chain)
    if part == "blocked":
        return _blocked(linear, of, chain, dtype)
    take = of.near if near else of.pick if close else of.far if far else of.gather
    if not (linear or chain):
        # Lines of the same elements are copied where these take longer to look up.
        return _moved(take, of, dtype, repeat, same, again=not same and (repeat > 1 or isa == "x86-64-v4"))
    return _rows(linear, take, of, chain, dtype, shrinks, same)


def stack(rows: int, lane: int) -> Any:
    """Return an intrinsic that returns the address of memory on the stack: rows, and a number of eight bytes for each."""

    def typed(_: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            with b.goto_entry_block():
                place = b.alloca(ir.ArrayType(I8, rows * (lane * STRIP + 8)))
                place.align = 64
            return b.ptrtoint(place, I64)

        return types.int64(), emit

    return intrinsic(typed)


number_of = make_load_index(False)


@inlined
def number_at(numbers: int, index: int) -> int:
    """Return a number of an array of numbers of 4 bytes."""
    return number_of(numbers + 4 * index)


@intrinsic
def istore(_: Any, address: types.Integer, value: types.Integer) -> Any:
    """Store an int64."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        b.store(a[1], pointer(b, a[0], I64), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@inlined
def _mixed(low: Any, high: Any, lower: Any, upper: Any) -> Any:
    """Return low * lower + high * upper, for the weights of two neighbours."""
    return vfma(high, upper, vmul(low, lower))


def _widener(linear: bool, take: Any, of: Samples, load_tail: Any) -> Any:
    """Return a function that writes a row of src, seen from ``count`` positions of dst, to an address.

    ``take`` loads elements. If there is ``load_tail``, positions see the elements of their own number, which it loads.
    """
    size, lane, load, weights, keep, fill, real = of.size, of.lane, of.load, of.load_kept, of.keep, of.fill, of.real

    @inlined
    def widen(line: int, to: int, width: int, padded: int, first: int, count: int, pairs: int) -> None:
        lower, upper = width + 8 * padded, width + (8 + lane) * padded
        if load_tail is not None:
            for index in range(0, count & -16, 16):
                keep(to + lane * index, load(line + size * (first + index)))
            if count & 15:
                index = count & -16
                keep(to + lane * index, load_tail(line + size * (first + index), count & 15))
            return
        start = first
        if linear and pairs:
            start += count & -16
            for index in range(first, start, 16):
                place = line + size * (pairs - 1 + 2 * index)
                one, two = load(place), load(place + 16 * size)
                mixed = _mixed(
                    veven(one, two), vodd(one, two), weights(lower + lane * index), weights(upper + lane * index)
                )
                keep(to + lane * (index - first), mixed)
        for index in range(start, first + count, 16):
            value = take(line, width + 4 * index)
            if linear:
                zero, above = fill(real(0.0)), weights(upper + lane * index)
                # An infinite neighbour of weight 0 would give NaN
                high = vselect_gt(above, zero, take(line, width + 4 * padded + 4 * index), zero)
                value = _mixed(value, high, weights(lower + lane * index), above)
            keep(to + lane * (index - first), value)

    return widen


def _rows(
    linear: bool, take: Any, of: Samples, chain: tuple[Any, ...], dtype: str, shrinks: bool, same: bool
) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops_part(chain, dtype)
    widen = _widener(linear, take, of, elements(dtype).load_tail if same else None)
    memory, room = stack(4, of.lane), stack_room(4 * (MIXED + _SLACK))
    size, lane, store, store_part, load_kept = of.size, of.lane, of.store, of.store_part, of.load_kept
    weight, fill, load, keep = of.weight, of.fill, of.load, of.keep
    load_tail: Any = elements(dtype).load_tail if shrinks else None
    row_bytes, record, upper = lane * STRIP, 16 + 2 * of.share, 16 + of.share

    @inlined
    def put(to: int, value: Any, count: int, limit: int) -> None:
        """Write the first lanes of a vector, all up to an address: what is behind them is written later. Masks take longer."""
        if to <= limit:
            store(to, value)
        else:
            store_part(to, value, count)

    @inlined
    def mixed_rows(row: int, below: int, above: float, high: float, low: int, end: int) -> int:
        """Return the place of a row that two rows are mixed into, from one column to another."""
        to = room()
        for column in range(low, low + (end - low & -16), 16):
            at = size * column
            keep(to + at, _mixed(load(row + at), load(below + at), fill(above), fill(high)))
        if end - low & 15:
            column, count = low + (end - low & -16), end - low & 15
            at = size * column
            keep(to + at, _mixed(load_tail(row + at, count), load_tail(below + at, count), fill(above), fill(high)))
        return to

    @inlined
    def brought(
        rows: int, image: int, d: int, h: int, in_height: int, in_width: int, width: int, padded: int, first: int,
        count: int, pairs: int,
    ) -> int:  # fmt: skip
        number = d * in_height + h
        slot = 2 * (d & 1) + (h & 1)
        if iload(rows + 4 * row_bytes + 8 * slot) != number:
            istore(rows + 4 * row_bytes + 8 * slot, number)
            widen(image + size * number * in_width, rows + slot * row_bytes, width, padded, first, count, pairs)
        return rows + slot * row_bytes

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        padded: int, chunk: int, pairs: int,
    ) -> None:  # fmt: skip
        rows = memory()
        strips = (out_width + STRIP - 1) // STRIP
        lines = out_depth * out_height
        pieces = (lines + chunk - 1) // chunk
        # What another operand in the memory of dst still has is not overwritten.
        limit = _last_place(begin, end, dst, lines, pieces, chunk, out_width, size) if other == 0 else 0
        for item in range(begin, end):
            rest = item // pieces
            start = (item - rest * pieces) * chunk
            plane = rest // strips
            first = (rest - plane * strips) * STRIP
            count = min(STRIP, out_width - first)
            image = src + size * plane * in_depth * in_height * in_width
            for slot in range(4):
                istore(rows + 4 * row_bytes + 8 * slot, -1)
            d = depth + record * (start // out_height)
            h = height + record * (start % out_height) - record
            for line in range(start, min(lines, start + chunk)):
                h += record
                if h == height + record * out_height:
                    h = height
                    d += record
                to = size * ((plane * lines + line) * out_width + first)
                if shrinks:
                    # The columns that the positions see, which are in order.
                    low, end = number_at(width, first), number_at(width + 4 * padded, first + count - 1) + 1
                    row = image + size * iload(h) * in_width
                    if weight(h + upper) > 0.0:
                        below = image + size * iload(h + 8) * in_width
                        row = mixed_rows(row, below, weight(h + 16), weight(h + upper), low, end)
                    widen(row, rows, width, padded, first, count, pairs)
                    for at in range(0, count, 16):
                        value = finish(load_kept(rows + lane * at), other + to + size * at, min(16, count - at))
                        if at + 16 <= count:
                            store(dst + to + size * at, value)
                        else:
                            put(dst + to + size * at, value, count & 15, limit)
                    continue
                near = brought(
                    rows, image, iload(d), iload(h), in_height, in_width, width, padded, first, count, pairs
                )  # fmt: skip
                below, behind, last = near, near, near
                deep, high, front, above = weight(d + upper), weight(h + upper), weight(d + 16), weight(h + 16)
                if linear:
                    if high > 0.0:
                        below = brought(
                            rows, image, iload(d), iload(h + 8), in_height, in_width, width, padded, first, count, pairs
                        )  # fmt: skip
                    if deep > 0.0:
                        behind = brought(
                            rows, image, iload(d + 8), iload(h), in_height, in_width, width, padded, first, count, pairs
                        )  # fmt: skip
                        last = behind
                        if high > 0.0:
                            last = brought(
                                rows, image, iload(d + 8), iload(h + 8), in_height, in_width, width, padded, first, count, pairs
                            )  # fmt: skip
                for at in range(0, count, 16):
                    place = lane * at
                    value = load_kept(near + place)
                    if linear:
                        if high > 0.0:
                            value = _mixed(value, load_kept(below + place), fill(above), fill(high))
                        if deep > 0.0:
                            second = load_kept(behind + place)
                            if high > 0.0:
                                second = _mixed(second, load_kept(last + place), fill(above), fill(high))
                            value = _mixed(value, second, fill(front), fill(deep))
                    value = finish(value, other + to + size * at, min(16, count - at))
                    if at + 16 <= count:
                        store(dst + to + size * at, value)
                    else:
                        put(dst + to + size * at, value, count & 15, limit)

    return kernel, types.void(*[types.int64] * 17)


@inlined
def _last_place(begin: int, end: int, dst: int, lines: int, pieces: int, chunk: int, columns: int, size: int) -> int:
    """Return up to where a whole vector may be stored: what is behind a line is stored later, unless it is another range's.

    Strips of wide lines are not stored in the order of memory.
    """
    place = 0
    if columns <= STRIP and end > begin:
        plane = (end - 1) // pieces
        stop = min(lines, (end - plane * pieces) * chunk)
        place = dst + size * ((plane * lines + stop) * columns - 16)
    return place


def _moved(take: Any, of: Samples, dtype: str, repeat: int, same: bool, again: bool) -> tuple[Callable[..., None], Any]:
    size, store, store_part = of.size, of.store, of.store_part
    repeated: Any = make_repeated(dtype, repeat) if repeat > 1 else None
    record = 16 + 2 * of.share

    @inlined
    def seen(row: int, width: int, first: int) -> Any:
        """Return what 16 positions of a row see."""
        if repeat > 1:
            return repeated(row + size * (first // repeat))
        return take(row, width + 4 * first)

    @inlined
    def put(to: int, value: Any, count: int, limit: int) -> None:
        """Write the first ``count`` lanes of a vector, all up to an address: what is behind them is written later."""
        if to <= limit:
            store(to, value)
        else:
            store_part(to, value, count)

    @inlined
    def look_up(row: int, to: int, width: int, first: int, count: int, limit: int) -> None:
        """Write ``count`` positions of a row of src to a line."""
        whole = count & -16
        for at in range(0, whole, 16):
            store(to + size * at, seen(row, width, first + at))
        if count & 15:
            if repeat > 1 and whole and count % repeat == 0:
                # The last vector begins in the one before it.
                store(to + size * (count - 16), seen(row, width, first + count - 16))
            else:
                put(to + size * whole, seen(row, width, first + whole), count & 15, limit)

    @inlined
    def move_row(row: int, to: int, step: int, lines: int, width: int, first: int, count: int, limit: int) -> None:
        """Write ``count`` positions of a row of src to some lines, which are ``step`` bytes apart.

        One line after the other: processors do not read the lines of their caches that are written whole and in order.
        """
        if again:
            look_up(row, to, width, first, count, limit)
        else:
            source = row + size * first
            if not same:
                look_up(row, to, width, first, count, limit)
                source = to
                to += step
                lines -= 1
            for _ in range(lines):
                copy_bytes(to, source, size * count)
                to += step

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        padded: int, chunk: int, pairs: int,
    ) -> None:  # fmt: skip
        strips = (out_width + STRIP - 1) // STRIP
        lines = out_depth * out_height
        pieces = (lines + chunk - 1) // chunk
        limit = _last_place(begin, end, dst, lines, pieces, chunk, out_width, size)
        for item in range(begin, end):
            rest = item // pieces
            line = (item - rest * pieces) * chunk
            plane = rest // strips
            first = (rest - plane * strips) * STRIP
            count = min(STRIP, out_width - first)
            image = src + size * plane * in_depth * in_height * in_width
            final = min(lines, line + chunk)
            d, h = line // out_height, line % out_height
            while line < final:
                # Lines that follow one another and are the same are written together.
                place, together = iload(height + record * h), 1
                most = 1 if again else min(out_height - h, final - line)
                while together < most and iload(height + record * (h + together)) == place:
                    together += 1
                row = image + size * (iload(depth + record * d) * in_height + place) * in_width
                to = dst + size * ((plane * lines + line) * out_width + first)
                move_row(row, to, size * out_width, together, width, first, count, limit)
                line += together
                h += together
                if h == out_height:
                    h = 0
                    d += 1

    return kernel, types.void(*[types.int64] * 17)


def _blocked(linear: bool, of: Samples, chain: tuple[Any, ...], dtype: str) -> tuple[Callable[..., None], Any]:
    finish = functions.post_ops(chain, dtype)
    size, load, store, weight, fill = of.size, of.load, of.store, of.weight, of.fill
    record, upper = 16 + 2 * of.share, 16 + of.share
    step = 16 * size

    @inlined
    def column(near: int, below: int, behind: int, last: int, h: int, d: int, at: int) -> Any:
        value = load(near + at)
        if linear:
            deep, high = weight(d + upper), weight(h + upper)
            if high > 0.0:
                value = _mixed(value, load(below + at), fill(weight(h + 16)), fill(high))
            if deep > 0.0:
                second = load(behind + at)
                if high > 0.0:
                    second = _mixed(second, load(last + at), fill(weight(h + 16)), fill(high))
                value = _mixed(value, second, fill(weight(d + 16)), fill(deep))
        return value

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int, depth: int, height: int, width: int,
        in_depth: int, in_height: int, in_width: int, out_depth: int, out_height: int, out_width: int,
        period: int, tail: int,
    ) -> None:  # fmt: skip
        lines = out_depth * out_height
        for item in range(begin, end):
            block = item // lines
            line = item - block * lines
            d = depth + record * (line // out_height)
            h = height + record * (line % out_height)
            image = src + step * block * in_depth * in_height * in_width
            row = step * in_width
            near = image + (iload(d) * in_height + iload(h)) * row
            below = image + (iload(d) * in_height + iload(h + 8)) * row
            behind = image + (iload(d + 8) * in_height + iload(h)) * row
            last = image + (iload(d + 8) * in_height + iload(h + 8)) * row
            lanes = tail if block % period == period - 1 else 16
            to = step * item * out_width
            for w in range(width, width + record * out_width, record):
                value = column(near, below, behind, last, h, d, step * iload(w))
                if linear:
                    share = weight(w + upper)
                    if share > 0.0:
                        beside = column(near, below, behind, last, h, d, step * iload(w + 8))
                        value = _mixed(value, beside, fill(weight(w + 16)), fill(share))
                store(dst + to, vkeep(finish(value, other + to), lanes))
                to += step

    return kernel, types.void(*[types.int64] * 16)
