"""Softmax along any axis and its logarithm, forward and backward, row-major or in blocks of 16 channels."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, MemoryDesc, PrimitiveAttr, Softmax
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .backward import NativeBackward, refuse_gradient
from .blocks import EVERY_TYPE, LANES, channel_blocks, channel_tail, is_blocked, refuse_different, refuse_permuted
from .implementation import NativeImplementation
from .nest_builder import NestBuilder
from .past_caches import asks_ahead, streams_rows

#: Elements side by side that are fewer than a vector's, and elements of their rows, from which on transposed rows take less time.
#: An exponential of 16 lanes takes longer without AVX-512.
_FEW: Final = {"x86-64-v4": 4}
_FEW_OF_SMALL_VECTORS: Final = 13
_LONG: Final = 129


class NativeSoftmax(NativeImplementation[Softmax]):
    """Vectors along the axis if it is contiguous (or blocked), else along 16 independent rows."""

    name = "native:softmax"
    stays_inside = True

    def reject(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops:
            return "softmax takes no post-ops"
        op = self.complete(op, attr, target)
        refused = refuse_permuted(op.src, op.dst, dtypes=EVERY_TYPE) or refuse_different(op.src, op.dst)
        if refused is None and is_blocked(op.dst) and op.axis == 0:
            return "axis 0 in blocks of 16 channels"
        return refused

    def program(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        if _is_short(op, target.isa):
            rows, length = op.dst.elements // op.dst.dims[op.axis], op.dst.dims[op.axis]
            kernel = KernelSpec.of("softmax_short", logarithm=op.algorithm == "log")
            places: tuple[LaunchArgument, ...] = (("m", (Arg.SRC, 0)), ("m", (Arg.DST, 0)), ("i", rows), ("i", length))
            return Program((kernel,), (Launch(0, places, -(-rows // LANES)),))
        if _is_turned(op, target.isa):
            return _turned(op)
        part, numbers, work = _row(op) if _is_row(op) else _strided(op)
        alone, length = _is_row(op) and op.dst.is_plain, op.dst.dims[op.axis]
        kernel = KernelSpec.of(
            "softmax", part=part, dtype=op.dst.dtype, logarithm=op.algorithm == "log",
            streams=alone and streams_rows(op.dst, length, target),
            asks=alone and asks_ahead(op.dst, length, target),
        )  # fmt: skip
        args: tuple[LaunchArgument, ...] = (("m", (Arg.SRC, 0)), ("m", (Arg.DST, 0)), *(("i", n) for n in numbers))
        return Program((kernel,), (Launch(0, args, work),))


class NativeSoftmaxBackward(NativeBackward[Softmax]):
    """The same vectors; dst and both gradients in one layout."""

    name = "native:softmax_backward"

    def reject(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        refused = refuse_gradient(op, attr, op.dst, op.diff_dst, op.diff_src) or refuse_permuted(op.dst)
        if refused is None and is_blocked(op.dst) and op.axis == 0:
            return "axis 0 in blocks of 16 channels"
        return refused

    def program(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        part, numbers, work = _row(op) if _is_row(op) else _strided(op)
        kernel = KernelSpec.of("softmax_backward", part=part, logarithm=op.algorithm == "log")
        memories: list[LaunchArgument] = [("m", (arg, 0)) for arg in (Arg.DST, Arg.DIFF_DST, Arg.DIFF_SRC)]
        return Program((kernel,), (Launch(0, (*memories, *(("i", n) for n in numbers)), work),))


def _is_short(op: Softmax, isa: str) -> bool:
    """Return whether rows of f32 are so short, and so many, that 16 of them make vectors, which are turned by 8 x 8 elements."""
    length = op.dst.dims[op.axis]
    short = op.dst.dtype == "f32" and op.dst.is_plain and _is_row(op) and length <= LANES
    return short and isa in ("x86-64-v3", "x86-64-v4") and op.dst.elements >= LANES * length


def _is_turned(op: Softmax, isa: str) -> bool:
    """Return whether so few elements are behind the axis that rows of adjacent elements are made first.

    Vectors of neighbouring rows would have as few lanes.
    """
    inner = math.prod(op.dst.dims[op.axis + 1 :])
    few = _FEW.get(isa, _FEW_OF_SMALL_VECTORS)
    return op.dst.is_plain and 1 < inner <= few and op.dst.dims[op.axis] >= _LONG


def _turned(op: Softmax) -> Program:
    """Return a program that transposes rows whose elements are apart, computes them in the scratchpad, and returns them."""
    dims = op.dst.dims
    outer, count, inner = math.prod(dims[: op.axis]), dims[op.axis], math.prod(dims[op.axis + 1 :])
    build = NestBuilder()
    apart, between = MemoryDesc((outer, count, inner), op.dst.dtype), build.book(op.dst.nbytes)
    adjacent = apart.with_tag("acb")
    build.move(apart, adjacent, ("m", (int(Arg.SRC), 0)), between)
    rows = MemoryDesc((outer * inner, count), op.dst.dtype)
    part, numbers, work = _row(Softmax(rows, rows, 1, op.algorithm))
    kernel = KernelSpec.of("softmax", part=part, dtype=op.dst.dtype, logarithm=op.algorithm == "log")
    build.launch(kernel, (between, between, *(("i", n) for n in numbers)), work)
    build.move(adjacent, apart, between, ("m", (int(Arg.DST), 0)))
    return build.program()


def _is_row(op: Softmax) -> bool:
    """Return whether 16 elements along the axis are adjacent."""
    return op.axis == 1 if is_blocked(op.dst) else math.prod(op.dst.dims[op.axis + 1 :]) == 1


def _row(op: Softmax) -> tuple[str, tuple[int, ...], int]:
    dims = op.dst.dims
    if is_blocked(op.dst):
        positions = math.prod(dims[2:])
        blocks = channel_blocks(op.dst)
        image = blocks * positions * LANES
        numbers = (positions, image, LANES, positions * LANES, blocks, channel_tail(op.dst), 1)
        return "row", numbers, dims[0] * positions
    length = dims[op.axis]
    vectors = -(-length // LANES)
    numbers = (1, length, 0, LANES, vectors, length - LANES * (vectors - 1), 0)
    return "row", numbers, math.prod(dims[: op.axis])


def _strided(op: Softmax) -> tuple[str, tuple[int, ...], int]:
    dims = op.dst.dims
    count, inner, outer = dims[op.axis], math.prod(dims[op.axis + 1 :]), math.prod(dims[: op.axis])
    below, period, tail, full = 1, 1, LANES, 0
    if is_blocked(op.dst):
        blocks = channel_blocks(op.dst)
        below = math.prod(dims[2 : op.axis])
        inner, outer = inner * LANES, dims[0] * blocks * below
        full = 1
        if dims[1] % LANES:
            period, tail = blocks, channel_tail(op.dst)
    return "strided", (count, inner, below, period, tail, full), outer * -(-inner // LANES)


IMPLEMENTATIONS = (NativeSoftmax(), NativeSoftmaxBackward())
