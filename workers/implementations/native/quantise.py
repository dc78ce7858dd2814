"""Reorder, functions, sums and products with scales and zero points: f32 and 8-bit integers, one number for each tensor."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Binary, Eltwise, MemoryDesc, PrimitiveAttr, Reorder
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..layouts import follow
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .integer_epilogue import NONE, Epilogue
from .quantised_rows import CHUNK, Rows, rows_of

_TYPES = ("u8", "s8", "f32")
#: Those of a quotient that is rounded, and of what is divided.
_RESULTS = ("u8", "s8", "u16", "s16", "f32")


class NativeQuantise:
    """A reorder between f32, u8 and s8, one of them of 8 bits, in one layout without padding; scales and zero points."""

    name = "native:quantise"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.is_cross_engine or attr.post_ops or op.wraps:
            return "only reorders within one engine, without post-ops, that saturate are supported"
        return _refuse(attr, op.src, op.dst)

    def complete(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Reorder:
        return op

    def program(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Program:
        return _describe(attr, {Arg.SRC: op.src}, op.dst)


class NativeQuantisedBinary:
    """The sum or product of two tensors, f32, u8 or s8, not all f32, in one layout; scales, zero points, then relu.

    The second operand may be smaller, with numbers that differ along dimensions as those of a division may.
    """

    name = "native:quantised_binary"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Binary, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm not in ("add", "mul"):
            return f"algorithm {op.algorithm}; only add and mul are supported"
        if any((step.algorithm, step.alpha) != ("relu", 0.0) for step in attr.post_ops):
            return "the only post-op supported is relu"
        op = self.complete(op, attr, target)
        if op.src0.dims == op.src1.dims:
            return _refuse(attr, op.src0, op.src1, op.dst)
        refused = _refuse(attr, op.src0, op.dst) or _refuse(attr, op.src1, op.src1)
        if refused:
            return refused
        return None if _rows(op.src1, op.dst) else f"{op.src1} does not broadcast to rows or lanes of {op.dst}"

    def complete(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Binary:
        src0 = follow(op.src0, op.dst)
        return replace(op, src0=src0, src1=follow(op.src1, src0), dst=follow(op.dst, src0))

    def program(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Program:
        return _describe(attr, {Arg.SRC: op.src0, Arg.SRC_1: op.src1}, op.dst, combined=op.algorithm)


class NativeQuantisedEltwise:
    """A function of a tensor, u8 or s8 to u8 or s8, in one layout without padding; scales and zero points."""

    name = "native:quantised_eltwise"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> str | None:
        if not op.is_forward or attr.post_ops:
            return "only forward propagation without post-ops is supported"
        if op.algorithm == "softplus" and op.alpha == 0.0:
            return "softplus divides by alpha, which is 0"
        op = self.complete(op, attr, target)
        if "f32" in (op.src.dtype, op.dst.dtype):
            return "only 8-bit integers are supported"
        return _refuse(attr, op.src, op.dst)

    def complete(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Eltwise:
        src = follow(op.src, op.dst)
        return replace(op, src=src, dst=follow(op.dst, src))

    def program(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Program:
        function = (op.algorithm, float(op.alpha), float(op.beta))
        return _describe(attr, {Arg.SRC: op.src}, op.dst, function=function)


class NativeQuantisedDivision(NativeImplementation[Binary]):
    """An f32 tensor divided and rounded, as integers of 8 or 16 bits, in one layout without padding; zero points are then added.

    There is one divisor, or they differ along dimensions that are neighbours in memory, or such that have one run of others
    between them, as blocks have; zero points likewise.
    """

    name = "native:quantised_division"
    # Zero points are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Binary, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm != "div" or [step.algorithm for step in attr.post_ops] != ["round"]:
            return "only a division that is rounded is supported"
        if attr.scales or any(item.arg != Arg.DST for item in attr.zero_points):
            return "the only attribute supported is a zero point of dst"
        op = self.complete(op, attr, target)
        if (op.src0.dtype, op.src1.dtype) != ("f32", "f32"):
            return f"{op.src0} by {op.src1}; only f32 by f32 is supported"
        if why := _refuse(PrimitiveAttr(), op.src0, op.dst, types=_RESULTS):
            return why
        varies = _varying(op)
        if any(item.mask not in (0, sum(1 << dim for dim in varies)) for item in attr.zero_points):
            return "zero points that differ along other dimensions than the divisors"
        if not varies:
            return None
        if any(op.src1.dims[dim] != op.dst.dims[dim] for dim in varies):
            return f"divisors {op.src1}; only those that a dimension of {op.dst} has are supported"
        if not (op.src1.is_plain or op.src1.elements == 0):
            return f"divisors {op.src1}; only row-major ones are supported"
        return None if rows_of(op.dst, varies) else f"divisors {op.src1} of {op.dst}"

    def complete(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Binary:
        src0 = follow(op.src0, op.dst)
        src1 = op.src1.with_tag("") if op.src1.is_any else op.src1
        return replace(op, src0=src0, src1=src1, dst=follow(op.dst, src0))

    def program(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Program:
        rows = rows_of(op.dst, _varying(op))
        if math.prod(op.dst.dims) == 0 or rows is None:
            return Program((), ())
        epilogue = Epilogue.of(PrimitiveAttr((), (), attr.zero_points), op.dst)
        kernel = KernelSpec.of(
            "quantise", first="f32", second="", result=op.dst.dtype, rounds=True, along=rows.along,
            points=any(item.mask for item in attr.zero_points),
        )  # fmt: skip
        args: tuple[LaunchArgument, ...] = (
            ("m", (int(Arg.SRC), 0)), NONE, ("m", (int(Arg.DST), 0)), *(NONE,) * 4, ("m", (int(Arg.SRC_1), 0)),
            epilogue.point(Arg.DST), *rows.numbers(), *_numbers(-math.inf),
        )  # fmt: skip
        return Program((kernel,), (Launch(0, args, rows.work),), epilogue.tables)


def _varying(op: Binary) -> list[int]:
    """Return the dimensions along which divisors differ."""
    return [dim for dim, size in enumerate(op.src1.dims) if size != 1]


def _refuse(attr: PrimitiveAttr, *tensors: MemoryDesc, types: tuple[str, ...] = _TYPES) -> str | None:
    """Return why tensors of some data types cannot be converted element by element, or None."""
    if {md.dtype for md in tensors} == {"f32"}:
        return "only tensors with integers among them are supported"
    for md in tensors:
        if md.is_any:
            return "layouts must be given"
        if md.dtype not in types:
            return f"data type {md.dtype}; only {', '.join(types)} are supported"
        if md.strides or md.padded_dims != md.dims or (md.dims, md.tag) != (tensors[0].dims, tensors[0].tag):
            return f"{md}; only one shape and layout without padding is supported"
    for item in (*attr.scales, *attr.zero_points):
        if item.mask:
            return f"scales or zero points with mask {item.mask:#x} of argument {item.arg} are not supported"
    return None


def _describe(
    attr: PrimitiveAttr,
    sources: dict[Arg, MemoryDesc],
    dst: MemoryDesc,
    combined: str = "add",
    function: tuple[str, float, float] = ("", 0.0, 0.0),
) -> Program:
    """Return the program that converts ``sources``, one or two, to ``dst``."""
    count = math.prod(dst.dims)
    if count == 0:
        return Program((), ())
    epilogue = Epilogue.of(PrimitiveAttr((), attr.scales, attr.zero_points), dst)
    first, second = sources[Arg.SRC], sources.get(Arg.SRC_1)
    places: list[LaunchArgument] = [("m", (int(arg), 0)) if arg in sources else NONE for arg in (Arg.SRC, Arg.SRC_1)]
    moves, rows = "same", Rows("", CHUNK, count)
    if second is not None and second.dims != dst.dims and (found := _rows(second, dst)) is not None:
        moves, rows = found.along, found
    numbers = [place(arg) for arg in (Arg.SRC, Arg.SRC_1, Arg.DST) for place in (epilogue.scale, epilogue.point)]
    algorithm, alpha, beta = function
    low = 0.0 if attr.post_ops else -math.inf
    args = (*places, ("m", (int(Arg.DST), 0)), *numbers, *rows.numbers(), *_numbers(low, alpha, beta))
    kernel = KernelSpec.of(
        "quantise", first=first.dtype, second=second.dtype if second is not None else "", result=dst.dtype, rounds=False,
        combined=combined, moves=moves, function=algorithm,
    )  # fmt: skip
    return Program((kernel,), (Launch(0, args, rows.work),), epilogue.tables)


def _numbers(low: float, alpha: float = 0.0, beta: float = 0.0) -> tuple[tuple[str, float], ...]:
    """Return the kernel's floats."""
    return (("f", low), ("f", alpha), ("f", beta))


def _rows(second: MemoryDesc, dst: MemoryDesc) -> Rows | None:
    """Return the rows of ``dst`` and how a second operand, which is smaller, moves along them; None if it does not."""
    if second.ndims != dst.ndims or dst.layout.blocks or second.layout.blocks:
        return None
    varies = [dim for dim in second.layout.order if second.dims[dim] != 1]
    if any(second.dims[dim] != dst.dims[dim] for dim in varies):
        return None
    rows = rows_of(dst, varies)
    # One number is that of every row.
    return rows if rows is None or varies else rows._replace(along="row")
