"""3 x 3 convolution of 8-bit integers by Winograd's products in 16 bits: 16 multiplications for 2 x 2 outputs instead of 36.

Everything is a whole number: weights are multiplied by twice Winograd's matrix on both sides, so sums are four times those of the
convolution, exactly. Factors of weights are computed here, for 16 outputs at once, and read by all windows of a strip.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_bounds import make_bounds
from .integer_dot import multiply_groups, register_bits
from .integer_tile import SIZES, IntegerTile, TileArguments, emit_stores
from .limits import WINOGRAD_PAIRS, WINOGRAD_WINDOWS
from .stack_room import stack_room
from .vec import I8, I16, I32, I64, LANES, VI, WIDTH, Builder, Value, call, pointer, splat

#: Windows of a tile at most: their sums, a vector of factors and a broadcast pair fill 16 registers of 256 bits.
_MOST: Final = 6
#: Bytes of the next windows that are asked for with each pair of inputs: tiles have up to 24.
_ASKED: Final = 32


def make(isa: str, dtype: str, residual: str, exact: bool, part: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel; the parameters are those of `integer_conv`.

    Arguments, sizes in bytes unless said otherwise: addresses of the factors that `winograd_input` makes, of weights (blocks, 9,
    pairs of inputs, 16 outputs, 2), dst, residual, terms (s32), factors and offsets (f32, one an output, filled up to whole
    blocks), and of scale (f32) and zero point (s32) of dst (0: none); strips and windows of an image, columns of windows; height
    and width of dst; outputs, pairs of inputs; the size of a window's factors; and as floats the residual's factor and the bounds
    of the result before scale and zero point of dst.
    One item of work is a strip of windows of one image for 16 outputs.
    """
    bits = register_bits(isa)
    six, five, four, three, two, one = (_make_products(bits, count) for count in range(_MOST, 0, -1))
    spreads = [_make_spread(row) for row in range(4)]
    spread0, spread1, spread2, spread3 = spreads
    store = _make_outputs(IntegerTile("pairs", bits, (2,), 1, dtype, residual, exact, part, "s8"))
    weight_room, sum_room = stack_room(4 * WINOGRAD_PAIRS * WIDTH), stack_room(16 * WINOGRAD_WINDOWS * WIDTH)
    size, other_size = SIZES[dtype], SIZES.get(residual, 0)
    bounds = make_bounds(dtype)

    def spread(row: int, at: int, to: int, pairs: int) -> None:
        """Compute the factors of weights of a row: four planes of pairs."""
        for pair in range(pairs):
            source, target = at + pair * 32, to + pair * 64
            if row == 0:
                spread0(source, pairs * 32, target, pairs * 64)
            elif row == 1:
                spread1(source, pairs * 32, target, pairs * 64)
            elif row == 2:
                spread2(source, pairs * 32, target, pairs * 64)
            else:
                spread3(source, pairs * 32, target, pairs * 64)

    def multiply(count: int, source: int, step: int, weights: int, to: int, pairs: int) -> None:
        """Sum the products of ``count`` windows."""
        tiles = (count + 5) // 6
        base, extra = count // tiles, count % tiles
        for number in range(tiles):
            windows = base + (number < extra)
            if windows == 6:
                six(pairs, source, step, weights, to)
            elif windows == 5:
                five(pairs, source, step, weights, to)
            elif windows == 4:
                four(pairs, source, step, weights, to)
            elif windows == 3:
                three(pairs, source, step, weights, to)
            elif windows == 2:
                two(pairs, source, step, weights, to)
            else:
                one(pairs, source, step, weights, to)
            source += windows * step
            to += windows * 64

    def winograd(
        begin: int, end: int, values: int, weights: int, dst: int, other: int, terms: int, factors: int, offsets: int,
        scale: int, zero_point: int, strips: int, windows: int, columns: int, height: int, width: int, channels: int,
        pairs: int, step: int, weight: float, low: float, high: float,
    ) -> None:  # fmt: skip
        factor32, low32, high32, plus = bounds(scale, zero_point, weight, low, high)
        blocks = (channels + 15) // 16
        spread_weights, sums = weight_room(), sum_room()
        for item in range(begin, end):
            block = item % blocks
            strip = item // blocks % strips
            image = item // (blocks * strips)
            first, last = windows * strip // strips, windows * (strip + 1) // strips
            count = last - first
            source = values + (image * 16 * windows + first) * step
            for row in range(4):
                spread(row, weights + block * pairs * 288, spread_weights, pairs)
                for column in range(4):
                    number = 4 * row + column
                    multiply(count, source + number * windows * step, step, spread_weights + column * pairs * 64,
                             sums + number * count * 64, pairs)  # fmt: skip
            own = block * 64
            for number in range(count):
                h, w = (first + number) // columns * 2, (first + number) % columns * 2
                place = ((image * height + h) * width + w) * channels + block * 16
                store(sums + number * 64, count * 64, height - h, width - w, dst + place * size, channels * size,
                      width * channels * size, terms + own, factors + own, offsets + own, channels - block * 16,
                      other + place * other_size, channels * other_size, width * channels * other_size, factor32,
                      low32, high32, plus)  # fmt: skip

    return winograd, types.void(*[types.int64] * 19, *[types.float64] * 3)


def _make_spread(row: int) -> Any:
    """Return the intrinsic that computes a row of factors of weights, for two inputs of 16 outputs.

    Arguments: address of the first of nine taps, their distance; address of the first of four factors, their distance.
    """
    narrow, wide = ir.VectorType(I8, 2 * LANES), ir.VectorType(I16, 2 * LANES)

    @intrinsic
    def spread(_: Any, at: Any, tap: Any, to: Any, plane: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, tap, to, plane = a

            def read(h: int, w: int) -> Value:
                where = b.add(at, b.mul(tap, I64(3 * h + w)))
                return b.sext(b.load(pointer(b, where, narrow), align=4), wide)

            down = [_combined(b, row, partial(read, w=w)) for w in range(3)]
            for number in range(4):
                value = _combined(b, number, down.__getitem__)
                b.store(value, pointer(b, b.add(to, b.mul(plane, I64(number))), wide), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return spread


def _combined(b: Builder, number: int, value: Callable[[int], Value]) -> Value:
    """Return one of the four combinations of three values: twice Winograd's."""
    if number in (0, 3):
        end = value(0 if number == 0 else 2)
        return b.add(end, end)
    ends = b.add(value(0), value(2))
    return b.add(ends, value(1)) if number == 1 else b.sub(ends, value(1))


def _make_products(bits: int, windows: int) -> Any:
    """Return the intrinsic that sums products of windows by 16 outputs.

    Arguments: pairs of inputs; address of the windows' factors, their distance; addresses of weights and of the sums.
    """

    @intrinsic
    def products(_: Any, pairs: Any, src: Any, step: Any, weights: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            pairs, src, step, weights, to = a
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
            call(b, "llvm.prefetch.p0", pointer(b, ahead, I8), I32(0), I32(3), I32(1), result=ir.VoidType())
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

        return types.void(*[types.int64] * 5), emit

    return products


def _make_outputs(shape: IntegerTile) -> Any:
    """Return the intrinsic that stores the outputs of a window.

    Arguments: address of its first of 16 sums, their distance; rows and columns of dst from the window's first one; then
    addresses, distances and numbers as in `TileArguments`, those of the row below beside those of the next position.
    """

    @intrinsic
    def outputs(
        _: Any, at: Any, plane: Any, height: Any, width: Any, dst: Any, dst_step: Any, dst_row: Any, terms: Any, factor: Any,
        offset: Any, count: Any, residual: Any, residual_step: Any, residual_row: Any, weight: Any, lower: Any, upper: Any,
        point: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            (at, plane, height, width, dst, dst_step, dst_row, terms, factor, offset, count, residual, residual_step,
             residual_row, weight, lower, upper, point) = a  # fmt: skip
            rows = []
            for h in range(4):
                m = [b.load(pointer(b, b.add(at, b.mul(plane, I64(4 * h + w))), VI), align=64) for w in range(4)]
                rows.append((b.add(b.add(m[0], m[1]), m[2]), b.sub(b.sub(m[1], m[2]), m[3])))
            start = b.load(pointer(b, terms, VI), align=4)
            two = ir.Constant(VI, [2] * LANES)
            lines = [
                [b.add(b.add(x, y), z) for x, y, z in zip(*rows[:3], strict=True)],
                [b.sub(b.sub(x, y), z) for x, y, z in zip(*rows[1:], strict=True)],
            ]
            lines = [[b.add(b.ashr(value, two), start) for value in line] for line in lines]
            none = I64(0)

            def put(line: int, to: Value, other: Value) -> None:
                arguments = TileArguments(
                    none, none, none, none, none, none, none, none, to, dst_step, none, factor, offset, count, other,
                    residual_step, weight, lower, upper, point, none,
                )  # fmt: skip
                with b.if_else(b.icmp_signed(">", width, I64(1))) as (both, single):
                    with both:
                        emit_stores(b, shape, arguments, lines[line])
                    with single:
                        emit_stores(b, shape, arguments, lines[line][:1])

            put(0, dst, residual)
            with b.if_then(b.icmp_signed(">", height, I64(1))):
                put(1, b.add(dst, dst_row), b.add(residual, residual_row))
            return context.get_dummy_value()

        kinds = [*[types.int64] * 14, types.float32, types.float32, types.float32, types.int64]
        return types.void(*kinds), emit

    return outputs
