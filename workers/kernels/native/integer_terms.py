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
from .integers import clear16, load_s32
from .point_limits import LEAST_POINT, MOST_POINT
from .vec import (
    I8,
    I16,
    I32,
    I64,
    LANES,
    VD,
    VF,
    VI,
    WIDTH,
    Builder,
    Value,
    apply,
    call,
    constant,
    fload,
    lanes_below,
    pointer,
    splat,
    vbroadcast,
    vector,
    vload_part,
    vset,
)  # fmt: skip

#: Whole units of a bias that an error of float32 does not change.
_MOST_UNITS: Final = 4194304.0
#: A rest of a bias up to this part of it is an error of float32.
_NO_REST: Final = 2.0**-22
#: Added to a float64 below 2**51 in magnitude and subtracted again, it leaves the nearest integer, ties to even.
_ROUNDED: Final = 1.5 * 2.0**52


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
    total, write = make_total(how, register_bits(isa), kind), _make_write(exact, bias)

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
        plus = 0
        if dst_point != 0:
            plus = load_s32(dst_point)
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
                continue
            scales = vset(np.float32(1.0))
            if weight_scales != 0:
                if scale_step == 0:
                    scales = vbroadcast(weight_scales)
                else:
                    scales = vload_part(weight_scales + channel * scale_step, lanes)
            write(lanes, to_terms + at, to_factors + at, to_offsets + at, -minus, biases + channel * 4, dst_point != 0, plus,
                  common, divisor, added, scales)  # fmt: skip

    return terms, types.void(*[types.int64] * 17, types.float64)


def _make_write(exact: bool, bias: str) -> Any:
    """Return the intrinsic that writes terms, factors and offsets of a block, whose parameters are those of the kernel.

    Arguments: outputs of the block; addresses of terms, of factors and of offsets; by what the sums of weights, which are where
    terms will be, are multiplied; the address of the block's biases; whether results have a zero point, and that; the factor of
    all outputs, the scale of dst and what is added; the scales of weights.
    """

    @intrinsic
    def write(
        _: Any, count: Any, to_terms: Any, to_factors: Any, to_offsets: Any, times: Any, biases: Any, has_point: Any,
        plus: Any, common: Any, divisor: Any, added: Any, scales: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            count, to_terms, to_factors, to_offsets, times, biases, has_point, plus, common, divisor, added, scales = a
            mask, none, whole_none = lanes_below(b, count), constant(0.0, VD), ir.Constant(VI, [0] * LANES)
            common, divisor, offset = (splat(b, value) for value in (common, divisor, added))
            plus = splat(b, b.select(has_point, b.trunc(plus, I32), I32(0)))
            term = b.mul(splat(b, b.trunc(times, I32)), b.load(pointer(b, to_terms, VI), align=4))
            factor = b.fmul(common, b.fpext(scales, VD))
            number = _load_bias(b, biases, bias, mask) if bias else None
            if exact:
                own = plus if number is None else b.add(number, plus)
                term = b.add(term, b.select(mask, own, whole_none))
            else:
                factor = b.fpext(b.fptrunc(factor, VF), VD)
                if number is not None:
                    rest = b.fpext(number, VD) if bias == "f32" else b.sitofp(number, VD)
                    units, rest = _split(b, rest, factor)
                    term = b.add(term, b.select(mask, b.fptosi(units, VI), whole_none))
                    offset = b.fadd(offset, rest)
                factor, offset = b.fdiv(factor, divisor), b.fdiv(offset, divisor)
                offset = b.select(has_point, b.fadd(offset, b.sitofp(plus, VD)), offset)
            b.store(term, pointer(b, to_terms, VI), align=4)
            for value, to in ((factor, to_factors), (offset, to_offsets)):
                b.store(b.fptrunc(b.select(mask, value, none), VF), pointer(b, to, VF), align=4)
            return context.get_dummy_value()

        kinds = [*[types.int64] * 6, types.boolean, types.int64, *[types.float64] * 3, vector]
        return types.void(*kinds), emit

    return write


def _load_bias(b: Builder, address: Value, dtype: str, mask: Value) -> Value:
    """Return the numbers of a bias; other lanes are 0."""
    kind, name = (VF, "v16f32") if dtype == "f32" else (VI, "v16i32")
    zeros = ir.Constant(kind, [ir.Constant(kind.element, 0)] * LANES)
    return call(b, f"llvm.masked.load.{name}.p0", pointer(b, address, kind), I32(4), mask, zeros, result=kind)


def _split(b: Builder, bias: Value, factor: Value) -> tuple[Value, Value]:
    """Return the whole number of units of a bias that its sum begins with, and the rest: an error of float32 is none."""
    none, rounded = constant(0.0, VD), constant(_ROUNDED, VD)
    units = b.fsub(b.fadd(b.fdiv(bias, factor), rounded), rounded)
    is_whole = b.and_(
        b.fcmp_unordered("!=", factor, none),
        b.fcmp_ordered("<=", apply(b, "fabs", units), constant(_MOST_UNITS, VD)),
    )
    product = b.fmul(units, factor)
    rest = b.fsub(bias, product)
    error = b.fmul(constant(_NO_REST, VD), apply(b, "fabs", product))
    rest = b.select(b.fcmp_ordered("<=", apply(b, "fabs", rest), error), none, rest)
    return b.select(is_whole, units, none), b.select(is_whole, rest, bias)


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
