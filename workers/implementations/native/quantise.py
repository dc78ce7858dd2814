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

_TYPES = ("u8", "s8", "f32")
#: Elements of one item of work; the kernel's own.
_CHUNK = 4096


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

    The second operand may have one number for each of the first dimensions in memory, or for each of the last.
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
    """An f32 tensor divided and rounded, as u8 or s8, in one layout without padding; zero points are then added.

    There is one divisor, or one for each index of a dimension if the layout has no blocks; zero points likewise.
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
        if why := _refuse(PrimitiveAttr(), op.src0, op.dst):
            return why
        varies = [dim for dim, size in enumerate(op.src1.dims) if size != 1]
        if any(item.mask not in (0, sum(1 << dim for dim in varies)) for item in attr.zero_points):
            return "zero points that differ along other dimensions than the divisors"
        if not varies:
            return None
        if len(varies) > 1 or op.src1.dims[varies[0]] != op.dst.dims[varies[0]]:
            return f"divisors {op.src1}; only one, or one for each index of a dimension, is supported"
        if not (op.src1.is_plain or op.src1.elements == 0) or op.dst.layout.blocks:
            return f"layouts {op.src1} and {op.dst}; only layouts without blocks are supported"
        return None

    def complete(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Binary:
        src0 = follow(op.src0, op.dst)
        src1 = op.src1.with_tag("") if op.src1.is_any else op.src1
        return replace(op, src0=src0, src1=src1, dst=follow(op.dst, src0))

    def program(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Program:
        count = math.prod(op.dst.dims)
        if count == 0:
            return Program((), ())
        epilogue = Epilogue.of(PrimitiveAttr((), (), attr.zero_points), op.dst)
        along, rows = "", _whole(count)
        varies = [dim for dim, size in enumerate(op.src1.dims) if size != 1]
        if varies:
            along, rows = _geometry(op.dst, varies[0])
        kernel = KernelSpec.of(
            "quantise", first="f32", second="", result=op.dst.dtype, rounds=True, along=along,
            points=any(item.mask for item in attr.zero_points),
        )  # fmt: skip
        args: tuple[LaunchArgument, ...] = (
            ("m", (int(Arg.SRC), 0)), NONE, ("m", (int(Arg.DST), 0)), *(NONE,) * 4, ("m", (int(Arg.SRC_1), 0)),
            epilogue.point(Arg.DST), *rows, *_numbers(-math.inf),
        )  # fmt: skip
        (_, _, (_, together), (_, height), _) = rows
        return Program((kernel,), (Launch(0, args, -(-height // together)),), epilogue.tables)


def _geometry(dst: MemoryDesc, dim: int) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return how numbers, one for each index of a dimension, move along rows of ``dst``, and the kernel's geometry."""
    place = dst.layout.order.index(dim)
    inner = math.prod(dst.dims[each] for each in dst.layout.order[place + 1 :])
    along, length = ("lanes", dst.dims[dim]) if inner == 1 else ("row", inner)
    together = max(1, _CHUNK // length)
    count = math.prod(dst.dims)
    return along, (("i", length), ("i", count), ("i", together), ("i", count // length), ("i", dst.dims[dim]))


def _refuse(attr: PrimitiveAttr, *tensors: MemoryDesc) -> str | None:
    """Return why tensors cannot be converted element by element, or None."""
    if {md.dtype for md in tensors} == {"f32"}:
        return "only tensors with 8-bit integers among them are supported"
    for md in tensors:
        if md.is_any:
            return "layouts must be given"
        if md.dtype not in _TYPES:
            return f"data type {md.dtype}; only {', '.join(_TYPES)} are supported"
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
    moves, rows = "same", _whole(count)
    if second is not None and second.dims != dst.dims and (found := _rows(second, dst)) is not None:
        moves, inner = found
        together = max(1, _CHUNK // inner)
        rows = (("i", inner), ("i", count), ("i", together), ("i", count // inner), ("i", 1))
    numbers = [place(arg) for arg in (Arg.SRC, Arg.SRC_1, Arg.DST) for place in (epilogue.scale, epilogue.point)]
    algorithm, alpha, beta = function
    low = 0.0 if attr.post_ops else -math.inf
    args = (*places, ("m", (int(Arg.DST), 0)), *numbers, *rows, *_numbers(low, alpha, beta))
    kernel = KernelSpec.of(
        "quantise", first=first.dtype, second=second.dtype if second is not None else "", result=dst.dtype, rounds=False,
        combined=combined, moves=moves, function=algorithm,
    )  # fmt: skip
    (_, _, (_, together), (_, height), _) = rows
    return Program((kernel,), (Launch(0, args, -(-height // together)),), epilogue.tables)


def _whole(count: int) -> tuple[tuple[str, int], ...]:
    """Return the kernel's geometry of one run of elements."""
    return (("i", _CHUNK), ("i", count), ("i", 1), ("i", -(-count // _CHUNK)), ("i", 1))


def _numbers(low: float, alpha: float = 0.0, beta: float = 0.0) -> tuple[tuple[str, float], ...]:
    """Return the kernel's floats."""
    return (("f", low), ("f", alpha), ("f", beta))


def _rows(second: MemoryDesc, dst: MemoryDesc) -> tuple[str, int] | None:
    """Return how a second operand moves along rows of ``dst``, and their length; None if it does not."""
    if second.ndims != dst.ndims or dst.layout.blocks or second.layout.blocks:
        return None
    sizes = [(second.dims[dim], dst.dims[dim]) for dim in dst.layout.order if dst.dims[dim] != 1]
    kept = [small == large for small, large in sizes]
    if [dim for dim in second.layout.order if second.dims[dim] != 1] != [
        dim for dim in dst.layout.order if second.dims[dim] != 1
    ] or any(small not in (1, large) for small, large in sizes):
        return None
    if kept == sorted(kept, reverse=True):
        return "row", math.prod(large for small, large in sizes if small == 1)
    if kept == sorted(kept):
        return "lanes", math.prod(large for small, large in sizes if small != 1)
    return None
