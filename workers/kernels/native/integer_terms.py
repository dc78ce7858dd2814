"""What each output of an integer convolution or product needs: the term its sum begins with, its factor and its offset.

A result is sum * factor + offset, in which scale and zero point of dst are; the sum has src as it is packed. The zero point of
bytes is not in the offset: their kernels add it after rounding, as ONNX does.

As far as a bias is a whole number of the products' units, it is in the sum, which is exact. The factor is rounded to float32
after each step, as in ONNX Runtime: results of quantised models are half-way between two numbers more often than by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from .compiler import types
from .compiler.language import inlined, intrinsic
from .integer_dot import GROUP, ONES, multiply_groups, register_bits
from .integers import clear16, load_s32, store_s32
from .point_limits import LEAST_POINT, MOST_POINT
from .vec import I8, I16, I64, LANES, VI, WIDTH, Builder, Value, fload, fstore, pointer

#: Whole units of a bias that an error of float32 does not change.
_MOST_UNITS: Final = 4194304.0
#: A rest of a bias up to this part of it is an error of float32.
_NO_REST: Final = 2.0**-22


@inlined
def left_point(address: int, shift: int, less: bool) -> int:
    """Return the zero point (s32 at an address; 0: none) of numbers as they are packed: with ``shift``, or ``less`` itself."""
    point = shift
    if address != 0:
        point += load_s32(address)
        if less:
            point -= max(LEAST_POINT, min(MOST_POINT, load_s32(address)))
    return point


def make(isa: str, how: str, exact: bool, bias: str, less: bool, kind: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel; ``bias`` is a data type or nothing, ``exact`` if the sums themselves are the results.

    ``less`` if src was packed less its zero point, as `integer_copy` bounds it. ``kind`` is the data type of weights.

    Arguments: addresses of the packed weights, of the bias, of zero points (s32) of src and dst, of scales (f32) of src,
    weights and dst, each 0 for none; of the terms (s32), factors and offsets (f32) to write; groups of weights a block;
    the distance in bytes from scale to scale of weights; output blocks and channels of a group; what was added to src when
    it was packed; and as a float what is added to each result before scale and zero point of dst.
    One item of work is a block of 16 outputs.
    """
    size = GROUP[how]
    total = make_total(how, register_bits(isa), kind)

    def bias_of(address: int) -> float:
        if bias == "f32":
            return np.float64(fload(address))
        return np.float64(load_s32(address))

    def terms(
        begin: int, end: int, weights: int, biases: int, src_point: int, dst_point: int, src_scale: int,
        weight_scales: int, dst_scale: int, to_terms: int, to_factors: int, to_offsets: int, groups: int,
        scale_step: int, blocks: int, channels: int, shift: int, added: float,
    ) -> None:  # fmt: skip
        minus = left_point(src_point, shift, less)
        common = 1.0
        if src_scale != 0:
            common *= fload(src_scale)
        divisor = 1.0
        if dst_scale != 0:
            divisor = np.float64(fload(dst_scale))
        for item in range(begin, end):
            at = item * 64
            first = item % blocks * 16
            lanes = min(16, channels - first)
            channel = item // blocks * channels + first
            if minus != 0:
                total(groups, weights + item * groups * 16 * size, to_terms + at)
            if exact and minus == 0 and biases == 0 and dst_point == 0:
                # Sums that are the results begin with nothing, and have neither factors nor offsets.
                for at_lane in range(0, 64, 16):
                    clear16(to_terms + at + at_lane)
            else:
                for lane in range(16):
                    term, factor, offset = 0, 0.0, 0.0
                    if minus != 0:
                        term = -minus * load_s32(to_terms + at + lane * 4)
                    if lane < lanes:
                        factor, offset = common, added
                        if weight_scales != 0:
                            factor *= fload(weight_scales + (channel + lane) * scale_step)
                        if exact:
                            if biases != 0:
                                term += load_s32(biases + (channel + lane) * 4)
                            if dst_point != 0:
                                term += load_s32(dst_point)
                        else:
                            factor = np.float64(np.float32(factor))
                            if biases != 0:
                                bias = bias_of(biases + (channel + lane) * 4)
                                units = np.rint(bias / factor)
                                if factor != 0.0 and abs(units) <= _MOST_UNITS:
                                    term += int(units)
                                    bias -= units * factor
                                    if abs(bias) <= _NO_REST * abs(units * factor):
                                        bias = 0.0
                                offset += bias
                            factor, offset = factor / divisor, offset / divisor
                            if dst_point != 0:
                                offset += load_s32(dst_point)
                    store_s32(to_terms + at + lane * 4, term)
                    fstore(to_factors + at + lane * 4, np.float32(factor))
                    fstore(to_offsets + at + lane * 4, np.float32(offset))

    return terms, types.void(*[types.int64] * 17, types.float64)


def make_total(how: str, bits: int, kind: str) -> Any:
    """Return the intrinsic that writes the sums of 16 outputs' weights: groups, address of weights, address of sums."""

    @intrinsic
    def total(_: Any, groups: Any, weights: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            groups, weights, to = a
            before = b.block
            loop, done = b.append_basic_block("group"), b.append_basic_block("done")
            b.cbranch(b.icmp_signed(">", groups, I64(0)), loop, done)
            b.position_at_end(loop)
            left, at, value = b.phi(I64), b.phi(I64), b.phi(VI)
            zero = ir.Constant(VI, [0] * LANES)
            for phi, start in ((left, groups), (at, weights), (value, zero)):
                phi.add_incoming(start, before)
            if GROUP[how] == 4 or kind == "s16":
                row, step = b.load(pointer(b, at, VI), align=4), WIDTH
            else:
                narrow = b.load(pointer(b, at, ir.VectorType(I8, 2 * LANES)), align=4)
                wide = (b.sext if kind == "s8" else b.zext)(narrow, ir.VectorType(I16, 2 * LANES))
                row, step = b.bitcast(wide, VI), WIDTH // 2
            new = multiply_groups(b, how, bits, value, ir.Constant(VI, [ONES[how]] * LANES), row)
            rest = b.sub(left, I64(1))
            for phi, following in ((left, rest), (at, b.add(at, I64(step))), (value, new)):
                phi.add_incoming(following, loop)
            b.cbranch(b.icmp_signed(">", rest, I64(0)), loop, done)
            b.position_at_end(done)
            result = b.phi(VI)
            result.add_incoming(zero, before)
            result.add_incoming(new, loop)
            b.store(result, pointer(b, to, VI), align=4)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    return total
