"""Depthwise convolution of 8-bit integers with channels side by side: 16 of them are 16 independent lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .integer_bounds import make_bounds
from .integer_dot import multiply_groups, register_bits
from .integer_tile import SIZES, narrowed, store_lanes
from .integers import load_s32
from .vec import (
    I8,
    I32,
    I64,
    LANES,
    VF,
    VI,
    Builder,
    Value,
    call,
    fma,
    lanes_below,
    maximum,
    minimum,
    pointer,
    splat,
)  # fmt: skip

_V8: Final = ir.VectorType(I8, LANES)
_NUMBERS: Final = ir.Constant(_V8, list(range(LANES)))
#: Widths of registers in bits where vectors of bytes have no masks: parts of them are shuffled.
_SHUFFLED: Final = (256,)


class _Arguments(NamedTuple):
    """Arguments of a tile: addresses, distances in bytes, counts, numbers."""

    src: Value  #: the first tap that is no padding
    step: Value  #: from position to position
    rows: Value  #: taps that are no padding, at least one each
    columns: Value
    down: Value  #: from tap to tap in src
    across: Value
    weights: Value
    weight_row: Value
    point: Value  #: zero point of src
    dst: Value
    dst_step: Value
    terms: Value
    factor: Value
    offset: Value
    before: Value  #: channels before the first one
    count: Value  #: channels from the first on
    lower: Value
    upper: Value
    plus: Value  #: added to results of bytes after they are rounded


def make(isa: str, signed: bool, shifted: bool, dtype: str, exact: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel for src ``signed`` or not, with a zero point if it is ``shifted``, and results of ``dtype``.

    Results are the ``exact`` sums or scaled.

    Arguments: addresses of src, weights (blocks, kernel, 16), dst, zero point of src (s32; 0: none), terms (s32), factors
    and offsets (f32), scale (f32) and zero point (s32) of dst (0: none); channels; height and width of src and dst;
    kernel, stride, dilation (1: dense) and padding in rows and columns; and as floats the bounds of the result before
    scale and zero point of dst. One item of work is a row of dst.
    """
    bits = register_bits(isa)
    four, one = (_make_tile(positions, bits, signed, shifted, dtype, exact) for positions in (4, 1))
    joined = bits in _SHUFFLED
    size = SIZES[dtype]
    bounds = make_bounds(dtype)

    def depthwise(
        begin: int, end: int, src: int, weights: int, dst: int, src_point: int, terms: int, factors: int, offsets: int,
        scale: int, zero_point: int, channels: int, height: int, width: int, out_height: int, out_width: int,
        kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int, top: int,
        left: int, low: float, high: float,
    ) -> None:  # fmt: skip
        point = 0
        if src_point != 0:
            point = load_s32(src_point)
        _, low32, high32, plus = bounds(scale, zero_point, 1.0, low, high)
        reach = (kernel_w - 1) * dilation_w
        # Columns in [inner, outer) read no padding.
        inner = min(out_width, (left + stride_w - 1) // stride_w)
        outer = max(inner, min(out_width, (width - 1 - reach + left) // stride_w + 1))
        down, across = dilation_h * width * channels, dilation_w * channels
        for item in range(begin, end):
            h = item % out_height * stride_h - top
            first = max(0, (dilation_h - 1 - h) // dilation_h)
            rows = max(0, min(kernel_h, (height - 1 - h) // dilation_h + 1) - first)
            image = src + (item // out_height * height + h + first * dilation_h) * width * channels
            for block in range((channels + 15) // 16):
                at = block * 16
                taps = weights + (block * kernel_h + first) * kernel_w * 16
                own = block * 64
                ow = 0
                while ow < out_width:
                    w = ow * stride_w - left
                    to = dst + ((item * out_width + ow) * channels + at) * size
                    if inner <= ow and (ow + 4 <= outer or (joined and ow < outer and inner + 4 <= outer)):
                        # The last ones are computed with those before them, which are written again.
                        again = max(0, ow + 4 - outer)
                        w -= again * stride_w
                        to -= again * channels * size
                        four(image + w * channels + at, stride_w * channels, rows, kernel_w, down, across, taps,
                             kernel_w * 16, point, to, channels * size, terms + own, factors + own, offsets + own,
                             at, channels - at, low32, high32, plus)  # fmt: skip
                        ow += 4 - again
                    else:
                        begins = max(0, (dilation_w - 1 - w) // dilation_w)
                        columns = max(0, min(kernel_w, (width - 1 - w) // dilation_w + 1) - begins)
                        one(image + (w + begins * dilation_w) * channels + at, 0, rows * (columns > 0), columns, down,
                            across, taps + begins * 16, kernel_w * 16, point, to, 0, terms + own, factors + own,
                            offsets + own, at, channels - at, low32, high32, plus)  # fmt: skip
                        ow += 1

    return depthwise, types.void(*[types.int64] * 24, types.float64, types.float64)


def _make_tile(positions: int, bits: int, signed: bool, shifted: bool, dtype: str, exact: bool) -> Any:
    """Return the intrinsic that computes 16 channels of neighbouring positions; its arguments are those of `_Arguments`."""

    @intrinsic
    def tile(
        _: Any, src: Any, step: Any, rows: Any, columns: Any, down: Any, across: Any, weights: Any, weight_row: Any,
        point: Any, dst: Any, dst_step: Any, terms: Any, factor: Any, offset: Any, before: Any, count: Any, lower: Any,
        upper: Any, plus: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = _Arguments(*a)
            with b.if_else(b.icmp_signed("<", arguments.count, I64(LANES))) as (part, whole):
                with part:
                    mask = lanes_below(b, arguments.count)
                    if bits in _SHUFFLED:
                        with b.if_else(b.icmp_signed(">", arguments.before, I64(0))) as (last, only):
                            with last:
                                compute(b, arguments, _Lanes(mask, _lacking(b, arguments.count)))
                            with only:
                                compute(b, arguments, _Lanes(mask))
                    else:
                        compute(b, arguments, _Lanes(mask))
                with whole:
                    compute(b, arguments, _Lanes())
            return context.get_dummy_value()

        return types.void(*[types.int64] * 16, types.float32, types.float32, types.int64), emit

    def compute(b: Builder, a: _Arguments, lanes: _Lanes) -> None:
        start = b.load(pointer(b, a.terms, VI), align=4)
        minus = splat(b, b.trunc(a.point, I32))
        before = b.block
        row, tap, latch, done = (b.append_basic_block(name) for name in ("row", "tap", "next", "store"))
        b.cbranch(b.icmp_signed(">", a.rows, I64(0)), row, done)

        b.position_at_end(row)
        left, line, factors = (phi(b, value, before) for value in (a.rows, a.src, a.weights))
        carried = [phi(b, start, before) for _ in range(positions)]
        b.branch(tap)

        b.position_at_end(tap)
        rest, source, taps = (phi(b, value, row) for value in (a.columns, line, factors))
        sums = [phi(b, value, row) for value in carried]
        factor = b.sext(b.load(pointer(b, taps, _V8), align=1), VI)
        low = b.and_(factor, ir.Constant(VI, [0xFFFF] * LANES))
        new = []
        for position, total in enumerate(sums):
            value = lanes.load(b, b.add(source, b.mul(a.step, I64(position))))
            value = b.sext(value, VI) if signed else b.zext(value, VI)
            if shifted:
                new.append(b.add(total, b.mul(b.sub(value, minus), factor)))
            else:
                # The product of the low 16 bits; the high ones of a factor are 0.
                new.append(multiply_groups(b, "pairs", bits, total, value, low))
        following = (b.sub(rest, I64(1)), b.add(source, a.across), b.add(taps, I64(LANES)), *new)
        for each, value in zip((rest, source, taps, *sums), following, strict=True):
            each.add_incoming(value, tap)
        b.cbranch(b.icmp_signed(">", following[0], I64(0)), tap, latch)

        b.position_at_end(latch)
        after = (b.sub(left, I64(1)), b.add(line, a.down), b.add(factors, a.weight_row), *new)
        for each, value in zip((left, line, factors, *carried), after, strict=True):
            each.add_incoming(value, latch)
        b.cbranch(b.icmp_signed(">", after[0], I64(0)), row, done)

        b.position_at_end(done)
        for position, value in enumerate(new):
            result = b.phi(VI)
            result.add_incoming(start, before)
            result.add_incoming(value, latch)
            sums[position] = result
        scale, shift = (b.load(pointer(b, at, VF), align=4) for at in (a.factor, a.offset))
        lower, upper, plus = splat(b, a.lower), splat(b, a.upper), splat(b, b.trunc(a.plus, I32))
        for position, total in enumerate(sums):
            value = total
            if not exact:
                value = fma(b, b.sitofp(total, VF), scale, shift)
                value = narrowed(b, minimum(b, maximum(b, value, lower), upper), dtype, plus)
            lanes.store(b, b.add(a.dst, b.mul(a.dst_step, I64(position))), value)

    def phi(b: Builder, value: Value, block: Value) -> Value:
        made = b.phi(value.type)
        made.add_incoming(value, block)
        return made

    return tile


class _Lanes(NamedTuple):
    """The channels of a block that there are: all without a ``mask``.

    ``lacking`` is how many lanes have none, given if there are whole blocks before: bytes are moved as the last 16 of their
    position then, since on AVX2 a mask of bytes is a jump each.
    """

    mask: Value | None = None
    lacking: Value | None = None

    def load(self, b: Builder, address: Value) -> Value:
        """Return the bytes at an address; those of other lanes are any."""
        if self.lacking is not None:
            last = b.load(pointer(b, b.sub(address, b.zext(self.lacking, I64)), _V8), align=1)
            return _moved(b, last, b.add(_same(b, self.lacking), _NUMBERS))
        if self.mask is None:
            return b.load(pointer(b, address, _V8), align=1)
        zeros = ir.Constant(_V8, [0] * LANES)
        return call(b, "llvm.masked.load.v16i8.p0", pointer(b, address, _V8), I32(1), self.mask, zeros, result=_V8)

    def store(self, b: Builder, address: Value, value: Value) -> None:
        """Store the lanes of a vector."""
        if self.lacking is None or value.type != _V8:
            store_lanes(b, address, value, self.mask)
            return
        at = pointer(b, b.sub(address, b.zext(self.lacking, I64)), _V8)
        lacking = _same(b, self.lacking)
        is_other = b.icmp_unsigned("<", _NUMBERS, lacking)
        value = b.select(is_other, b.load(at, align=1), _moved(b, value, b.sub(_NUMBERS, lacking)))
        b.store(value, at, align=1)


def _lacking(b: Builder, count: Value) -> Value:
    return b.trunc(b.sub(I64(LANES), count), I8)


def _same(b: Builder, number: Value) -> Value:
    """Return a vector whose bytes are one number."""
    none = ir.Constant(_V8, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
    return b.shuffle_vector(b.insert_element(none, number, I32(0)), none, zeros)


def _moved(b: Builder, value: Value, places: Value) -> Value:
    """Return the bytes of a vector that ``places`` names, modulo 16."""
    return call(b, "llvm.x86.ssse3.pshuf.b.128", value, b.and_(places, ir.Constant(_V8, [15] * LANES)), result=_V8)
