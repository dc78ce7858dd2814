"""Add up blocks of an image at their places, one element of all blocks after another.

Strips of rows stay in the first-level cache meanwhile. With a stride along the width, columns of a phase are side by side while
they are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .elements import elements
from .vec import F32, F64, I32, I64, Builder, Value, dload, dstore, fload, fstore, pointer, vadd


def make(isa: str, dtype: str, phases: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for f32 or f64, with a stride along the width of 1, 2 or 4 ``phases``, or any (0).

    Arguments: addresses of src (N C, KD, KH, KW, OD, OH, OW), of dst (N C, D, H, W), and of scratch memory, of which an item has
    ``room`` bytes; then N C, the sizes of images, of blocks and of positions; strides, distances between the elements of a
    block, and padding, three each; rows of a strip, strips of H rows, and columns of a phase. One item of work is a strip.
    """
    of = elements(dtype)
    size, fill, load, store, store_part = of.size, of.fill, of.load, of.store, of.store_part
    phased = phases != 1
    zero = of.real(0.0)
    kind = F64 if dtype == "f64" else F32
    add8, add4, join = _make_add(kind, 8), _make_add(kind, 4), _make_join(kind, max(2, phases))
    read, write = (dload, dstore) if dtype == "f64" else (fload, fstore)

    def clear(at: int, count: int) -> None:
        left = count
        while left >= 16:
            store(at, fill(zero))
            at += 16 * size
            left -= 16
        if left > 0:
            store_part(at, fill(zero), left)

    def add_row(to: int, at: int, count: int) -> None:
        left = count
        while left >= 16:
            store(to, vadd(load(to), load(at)))
            to += 16 * size
            at += 16 * size
            left -= 16
        # Stores by a mask take longer on some processors.
        if left >= 8:
            add8(to, at)
            to += 8 * size
            at += 8 * size
            left -= 8
        if left >= 4:
            add4(to, at)
            to += 4 * size
            at += 4 * size
            left -= 4
        while left > 0:
            write(to, read(to) + read(at))
            to += size
            at += size
            left -= 1

    def interleave(at: int, apart: int, to: int, width: int, stride: int) -> None:
        """Write a row of which the columns of a phase are side by side, and the phases ``apart`` bytes from each other."""
        first = 0
        if phases > 1:
            while first + phases * 8 <= width:
                join(at, apart, to + first * size)
                at += 8 * size
                first += phases * 8
        while first < width:
            for phase in range(min(stride, width - first)):
                write(to + (first + phase) * size, read(at + phase * apart))
            at += size
            first += stride

    def fold_strips(
        begin: int, end: int, src: int, dst: int, scratch: int, room: int, planes: int, D: int, H: int, W: int, KD: int, KH: int,
        KW: int, OD: int, OH: int, OW: int, SD: int, SH: int, SW: int, DD: int, DH: int, DW: int, PD: int, PH: int, PW: int,
        strip: int, strips: int, columns: int,
    ) -> None:  # fmt: skip
        line, plane = OW * size, OD * OH * OW * size
        for item in range(begin, end):
            first = item % strips * strip
            last = min(H, first + strip)
            d = item // strips % D
            image = item // (strips * D)
            rows = dst + ((image * D + d) * H + first) * W * size
            # Bytes from row to row of what is added up, and from phase to phase.
            to, width, apart = rows, W * size, 0
            if phased:
                to, width, apart = scratch + item * room, SW * columns * size, columns * size
                clear(to, (last - first) * SW * columns)
            else:
                clear(to, (last - first) * W)
            for kd in range(KD):
                from_d = d + PD - kd * DD
                if from_d >= 0 and from_d % SD == 0 and from_d < OD * SD:
                    for kh in range(KH):
                        # The positions whose rows are in the strip.
                        shift = kh * DH - PH
                        low, high = first - shift, last - shift
                        begin_h = (low + SH - 1) // SH if low > 0 else 0
                        end_h = min(OH, (high + SH - 1) // SH) if high > 0 else 0
                        for kw in range(KW):
                            move = kw * DW - PW
                            begin_w = (SW - 1 - move) // SW if move < 0 else 0
                            end_w = min(OW, (W - move + SW - 1) // SW) if move < W else 0
                            count = end_w - begin_w
                            if count > 0:
                                start = begin_w * SW + move
                                block = (image * KD + kd) * KH + kh
                                at = src + (block * KW + kw) * plane + (from_d // SD * OH * OW + begin_w) * size
                                place = to + start * size
                                if phased:
                                    place = to + start % SW * apart + start // SW * size
                                for oh in range(begin_h, end_h):
                                    add_row(place + (oh * SH + shift - first) * width, at + oh * line, count)
            if phased:
                for row in range(last - first):
                    interleave(to + row * width, apart, rows + row * W * size, W, SW)

    return fold_strips, types.void(*[types.int64] * 28)


def _make_add(kind: ir.Type, lanes: int) -> Any:
    """Return the intrinsic that adds some numbers at an address to those at another: to, from."""
    several, size = ir.VectorType(kind, lanes), 8 if kind == F64 else 4

    @intrinsic
    def add(_: Any, to: Any, at: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            place, other = (pointer(b, address, several) for address in a)
            b.store(b.fadd(b.load(place, align=size), b.load(other, align=size)), place, align=size)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return add


def _make_join(kind: ir.Type, phases: int) -> Any:
    """Return the intrinsic that interleaves 8 numbers of each of 2 or 4 phases: address, bytes between phases, to."""
    several, size = ir.VectorType(kind, 8), 8 if kind == F64 else 4

    @intrinsic
    def join(_: Any, at: Any, apart: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, apart, to = a
            rows = [
                b.load(pointer(b, b.add(at, b.mul(apart, I64(phase))), several), align=size) for phase in range(phases)
            ]
            # Phases 0 and 2 before 1 and 3: pairs of pairs are in order then.
            order = [0, 2, 1, 3] if phases == 4 else [0, 1]
            rows = [rows[phase] for phase in order]
            while len(rows) > 1:
                count = rows[0].type.count
                mask = [source * count + lane for lane in range(count) for source in (0, 1)]
                lanes = ir.Constant(ir.VectorType(I32, 2 * count), mask)
                rows = [b.shuffle_vector(x, y, lanes) for x, y in zip(rows[::2], rows[1::2], strict=True)]
            b.store(rows[0], pointer(b, to, rows[0].type), align=size)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return join
