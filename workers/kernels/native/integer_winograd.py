"""3 x 3 convolution of 8-bit integers by Winograd's products in 16 bits: 25 multiplications for 3 x 3 outputs instead of 81.

`integer_crossed` halves their number again. All are whole numbers, see `winograd_scheme`: sums are a multiple of those of the
convolution, exactly. Factors of weights are computed here, for 16 outputs at once, and read by all windows of a strip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_bounds import make_bounds
from .integer_crossed import HEIGHT, emit_crossed
from .integer_crossed_weights import make_subtract
from .integer_dot import multiply_groups, register_bits
from .integer_tile import SIZES, IntegerTile, TileArguments, emit_stores
from .integers import clear16
from .limits import WINOGRAD_PAIRS, WINOGRAD_WINDOWS
from .stack_room import stack_room
from .vec import I8, I16, I32, I64, LANES, VI, WIDTH, Builder, Value, emit_prefetch, iload, pointer, splat
from .winograd_input import combined
from .winograd_scheme import FACTORS, SCHEMES, Scheme, Windows

#: Windows of a tile at most that multiplies each pair: their sums, a vector of factors and a broadcast pair fill 16 registers.
_MOST: Final = 6
#: Bytes of the next windows that are asked for with each pair of inputs, or each group of four: what tiles have at most, or more.
_ASKED: Final = 32


def make(
    isa: str, stride: int, halves: bool, dtype: str, residual: str, exact: bool, part: bool
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel for the scheme of a stride; with ``halves``, it multiplies half as often.

    The other parameters are those of `integer_conv`.

    Arguments, sizes in bytes unless said otherwise: addresses of the factors that `winograd_input` makes, of what
    `integer_crossed_rows` writes of them if it ``halves``, of the table of strips, of weights (blocks, 9, pairs of inputs, 16
    outputs, 2), dst, residual, terms (s32), factors and offsets (f32, one an output, filled up to whole blocks), and of scale
    (f32) and zero point (s32) of dst (0: none); strips and windows of an image; large windows in a column and in a row of the
    image; height and width of dst; outputs, pairs of inputs; the size of a window's factors; and as floats the residual's factor
    and the bounds of the result before scale and zero point of dst.
    One item of work is a strip of windows of one image for 16 outputs.
    """
    bits, scheme = register_bits(isa), SCHEMES[stride]
    make_products = _make_halves if halves else _make_products
    most = HEIGHT if halves else _MOST
    six, five, four, three, two, one = (make_products(bits, min(count, most)) for count in range(_MOST, 0, -1))
    begin_sums = make_subtract(bits, terms=False)
    different, lacking = len(scheme.taps), scheme.lacking
    spread0, spread1, spread2, spread3, spread4 = (
        _make_spread(scheme.taps, min(row, different - 1)) for row in range(FACTORS)
    )
    shape = IntegerTile("pairs", bits, (3,), 1, dtype, residual, exact, part, "s8")
    both, tall, wide, neither = (
        _make_outputs(shape, scheme, rows, columns)
        for rows in (scheme.large, scheme.small)
        for columns in (scheme.large, scheme.small)
    )
    large, small = len(scheme.large.results), len(scheme.small.results)
    weight_room, start_room, sum_room = (
        stack_room(count * WIDTH) for count in (FACTORS * WINOGRAD_PAIRS, 1, FACTORS**2 * WINOGRAD_WINDOWS)
    )
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def spread(row: int, at: int, to: int, pairs: int, groups: int) -> None:
        """Compute the factors of weights of a row: a plane of whole groups for each different one."""
        for pair in range(pairs):
            source, target = at + pair * 32, to + pair * 64
            if row == 0:
                spread0(source, pairs * 32, target, groups * 128)
            elif row == 1:
                spread1(source, pairs * 32, target, groups * 128)
            elif row == 2:
                spread2(source, pairs * 32, target, groups * 128)
            elif row == 3:
                spread3(source, pairs * 32, target, groups * 128)
            else:
                spread4(source, pairs * 32, target, groups * 128)
        if pairs % 2 != 0:
            for factor in range(different):
                for at_lane in range(0, 64, 16):
                    clear16(to + factor * groups * 128 + pairs * 64 + at_lane)

    def multiply(
        count: int, source: int, step: int, squares: int, weights: int, starts: int, to: int, groups: int
    ) -> None:  # fmt: skip
        """Sum the products of ``count`` windows."""
        if count == 0:
            return
        tiles = (count + most - 1) // most
        base, extra = count // tiles, count % tiles
        for number in range(tiles):
            windows = base + (number < extra)
            if most > 4 and windows == 6:
                six(groups, source, step, squares, weights, starts, to)
            elif most > 4 and windows == 5:
                five(groups, source, step, squares, weights, starts, to)
            elif windows == 4:
                four(groups, source, step, squares, weights, starts, to)
            elif windows == 3:
                three(groups, source, step, squares, weights, starts, to)
            elif windows == 2:
                two(groups, source, step, squares, weights, starts, to)
            else:
                one(groups, source, step, squares, weights, starts, to)
            source += windows * step
            squares += windows * 4
            to += windows * 64

    def winograd(
        begin: int, end: int, values: int, squares: int, table: int, weights: int, dst: int, other: int, terms: int,
        factors: int, offsets: int, scale: int, zero_point: int, strips: int, windows: int, large_rows: int, large_columns: int,
        height: int, width: int, channels: int, pairs: int, step: int, weight: float, low: float, high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        blocks = (channels + 15) // 16
        groups = (pairs + 1) // 2
        spread_weights, starts, sums = weight_room(), start_room(), sum_room()
        for item in range(begin, end):
            block = item % blocks
            strip = item // blocks % strips
            image = item // (blocks * strips)
            entry = table + strip * 56
            first_row, rows, tall_rows = iload(entry), iload(entry + 8), iload(entry + 16)
            first_column, columns, wide_columns = iload(entry + 24), iload(entry + 32), iload(entry + 40)
            count = rows * columns
            first = (image * windows + iload(entry + 48)) * 25
            for i in range(5):
                if i < different:
                    spread(i, weights + block * pairs * 288, spread_weights, pairs, groups)
                seen_rows = tall_rows if lacking >> i & 1 else rows
                for j in range(5):
                    seen = seen_rows * (wide_columns if lacking >> j & 1 else columns)
                    place, factors_at = (5 * i + j) * count, spread_weights + min(j, different - 1) * groups * 128
                    if halves and j < different:
                        begin_sums(groups, factors_at, 0, starts)
                    multiply(seen, values + (first + place) * step, step, squares + (first + place) * 4,
                             factors_at, starts, sums + place * 64, groups)  # fmt: skip
            own = block * 64
            for row in range(rows):
                place = first_row + row
                h = min(place, large_rows) * large + max(0, place - large_rows) * small
                for column in range(columns):
                    place = first_column + column
                    w = min(place, large_columns) * large + max(0, place - large_columns) * small
                    place = ((image * height + h) * width + w) * channels + block * 16
                    at, wide_at = sums + (row * columns + column) * 64, sums + (row * wide_columns + column) * 64
                    if row < tall_rows:
                        if column < wide_columns:
                            both(at, wide_at, count * 64, dst + place * size, channels * size, width * channels * size,
                                 terms + own, factors + own, offsets + own, channels - block * 16,
                                 other + place * other_size, channels * other_size, width * channels * other_size,
                                 factor32, low32, high32, plus)  # fmt: skip
                        else:
                            tall(at, wide_at, count * 64, dst + place * size, channels * size, width * channels * size,
                                 terms + own, factors + own, offsets + own, channels - block * 16,
                                 other + place * other_size, channels * other_size, width * channels * other_size,
                                 factor32, low32, high32, plus)  # fmt: skip
                    elif column < wide_columns:
                        wide(at, wide_at, count * 64, dst + place * size, channels * size, width * channels * size,
                             terms + own, factors + own, offsets + own, channels - block * 16,
                             other + place * other_size, channels * other_size, width * channels * other_size,
                             factor32, low32, high32, plus)  # fmt: skip
                    else:
                        neither(at, wide_at, count * 64, dst + place * size, channels * size, width * channels * size,
                                terms + own, factors + own, offsets + own, channels - block * 16,
                                other + place * other_size, channels * other_size, width * channels * other_size,
                                factor32, low32, high32, plus)  # fmt: skip

    return winograd, types.void(*[types.int64] * 22, *[types.float64] * 3)


def _make_spread(taps: tuple[tuple[int, int, int], ...], row: int) -> Any:
    """Return the intrinsic that computes a row of factors of weights, for two inputs of 16 outputs.

    Arguments: address of the first of nine taps, their distance; address of the first factor, their distance.
    """
    narrow, wide = ir.VectorType(I8, 2 * LANES), ir.VectorType(I16, 2 * LANES)

    @intrinsic
    def spread(_: Any, at: Any, tap: Any, to: Any, plane: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, tap, to, plane = a

            def read(h: int, w: int) -> Value:
                where = b.add(at, b.mul(tap, I64(3 * h + w)))
                return b.sext(b.load(pointer(b, where, narrow), align=4), wide)

            down = [
                combined(b, taps[row], [read(h, w) if of else None for h, of in enumerate(taps[row])]) for w in range(3)
            ]
            for number, across in enumerate(taps):
                value = combined(b, across, down)
                b.store(value, pointer(b, b.add(to, b.mul(plane, I64(number))), wide), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return spread


def _make_products(bits: int, windows: int) -> Any:
    """Return the intrinsic that sums products of windows by 16 outputs; its arguments are those of `_make_halves`."""

    @intrinsic
    def products(_: Any, groups: Any, src: Any, step: Any, squares: Any, weights: Any, start: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            groups, src, step, _, weights, _, to = a
            pairs = b.shl(groups, I64(1))
            before = b.block
            loop, done = b.append_basic_block("pair"), b.append_basic_block("done")
            b.branch(loop)
            b.position_at_end(loop)
            number = b.phi(I64)
            number.add_incoming(I64(0), before)
            sums = [b.phi(VI) for _ in range(windows)]
            for value in sums:
                value.add_incoming(ir.Constant(VI, [0] * LANES), before)
            factors = b.load(pointer(b, b.add(weights, b.shl(number, I64(6))), VI), align=64)
            base = pointer(b, b.add(src, b.shl(number, I64(2))), I8)
            # Each window is a stream of its own, too short for the processor to guess the next ones.
            ahead = b.add(b.add(src, b.mul(step, I64(windows))), b.mul(number, I64(_ASKED)))
            emit_prefetch(b, ahead, 3)
            new = []
            for window, value in enumerate(sums):
                at = b.gep(base, [b.mul(step, I64(window))])
                word = splat(b, b.load(b.bitcast(at, I32.as_pointer()), align=4))
                new.append(multiply_groups(b, "pairs", bits, value, word, factors))
            for phi, value in zip(sums, new, strict=True):
                phi.add_incoming(value, loop)
            following = b.add(number, I64(1))
            number.add_incoming(following, loop)
            b.cbranch(b.icmp_signed("<", following, pairs), loop, done)
            b.position_at_end(done)
            for window, value in enumerate(new):
                b.store(value, pointer(b, b.add(to, I64(WIDTH * window)), VI), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return products


def _make_halves(bits: int, windows: int) -> Any:
    """Return the intrinsic that sums products of windows by 16 outputs with half the multiplications.

    Arguments: groups of four inputs; addresses of the windows' factors, their distance; of the products of these, of weights, of
    what sums begin with, and of the sums.
    """

    @intrinsic
    def products(_: Any, groups: Any, src: Any, step: Any, squares: Any, weights: Any, start: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            groups, src, step, squares, weights, start, to = a
            begin = b.load(pointer(b, start, VI), align=64)
            starts = [
                b.add(begin, splat(b, b.load(pointer(b, b.add(squares, I64(4 * window)), I32), align=4)))
                for window in range(windows)
            ]
            ahead = b.add(src, b.mul(step, I64(windows)))
            sums = emit_crossed(b, bits, starts, groups, src, step, weights, (ahead, _ASKED))
            for window, value in enumerate(sums):
                b.store(value, pointer(b, b.add(to, I64(WIDTH * window)), VI), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return products


def _make_outputs(shape: IntegerTile, scheme: Scheme, rows: Windows, columns: Windows) -> Any:
    """Return the intrinsic that stores the outputs of a window.

    Arguments: addresses of its first sum, among those of all windows of a strip and among those of the large ones in a row, and
    the distance of sums; then addresses, distances and numbers as in `TileArguments`, those of the row below beside those of the
    next position.
    """
    lacking = scheme.lacking

    @intrinsic
    def outputs(
        _: Any, at: Any, wide: Any, plane: Any, dst: Any, dst_step: Any, dst_row: Any, terms: Any, factor: Any, offset: Any,
        count: Any, residual: Any, residual_step: Any, residual_row: Any, weight: Any, lower: Any, upper: Any, point: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            (at, wide, plane, dst, dst_step, dst_row, terms, factor, offset, count, residual, residual_step, residual_row,
             weight, lower, upper, point) = a  # fmt: skip

            def read(i: int, j: int) -> Value:
                base = wide if lacking >> j & 1 else at
                return b.load(pointer(b, b.add(base, b.mul(plane, I64(FACTORS * i + j))), VI), align=64)

            across: list[list[Value]] = []
            for i, is_there in enumerate(rows.factors):
                line = [read(i, j) if is_there and of else None for j, of in enumerate(columns.factors)]
                across.append([combined(b, of, line) if is_there else None for of in columns.results])
            start, none = b.load(pointer(b, terms, VI), align=4), I64(0)
            inverse, shift = (ir.Constant(VI, [number] * LANES) for number in (scheme.inverse, scheme.shift))
            for number, down in enumerate(rows.results):
                sums = [combined(b, down, list(column)) for column in zip(*across, strict=True)]
                if scheme.inverse != 1:
                    sums = [b.ashr(b.mul(value, inverse), shift) for value in sums]
                arguments = TileArguments(
                    none, none, none, none, none, none, none, none, b.add(dst, b.mul(dst_row, I64(number))), dst_step, none,
                    factor, offset, count, b.add(residual, b.mul(residual_row, I64(number))), residual_step, weight, lower,
                    upper, point, none,
                )  # fmt: skip
                emit_stores(b, shape, arguments, [b.add(value, start) for value in sums])
            return context.get_dummy_value()

        kinds = [*[types.int64] * 13, types.float32, types.float32, types.float32, types.int64]
        return types.void(*kinds), emit

    return outputs
