"""Binary: two tensors with broadcasting, each dimension of the destination a dense axis with a stride an operand.

Axes that continue one another are merged, so that tensors of one shape become a single run, and a channel vector over
blocks of 16 channels becomes rows of 16.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple, TypeAlias

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Binary, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..layouts import follow
from ..program import Launch, LaunchArgument, Program
from .blocks import CHUNK, EVERY_TYPE, LANES, channel_blocks, channel_tail, is_blocked, refuse
from .chain import chain, chain_source, refuse_chain
from .logic import NativeLogic
from .past_caches import streams
from .quantise import NativeQuantisedBinary, NativeQuantisedDivision

Operands: TypeAlias = "tuple[MemoryDesc, MemoryDesc]"


class Axis(NamedTuple):
    """A dimension of the destination in memory order, and each operand's stride along it (0 if it is broadcast)."""

    extent: int
    strides: tuple[int, ...]


class NativeBinary:
    """Rows of elements, 16 at a time; an operand may stay, advance by one element, or step from row to row."""

    name = "native:binary"
    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject(self, op: Binary, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        return refuse_operands((op.src0, op.src1), op.dst, attr)

    def complete(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Binary:
        src0 = follow(op.src0, op.src1)
        src1 = follow(op.src1, src0)
        wide = src0 if src0.dims == op.dst.dims else src1 if src1.dims == op.dst.dims else None
        if wide is None:
            wide = src0 if src0.tag == src1.tag else src0.with_tag("")
        return replace(op, src0=src0, src1=src1, dst=follow(op.dst, wide))

    def program(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Program:
        return combine(op.algorithm, (Arg.SRC, Arg.SRC_1), (op.src0, op.src1), op.dst, attr, streams(op.dst, target))


def refuse_operands(operands: Operands, dst: MemoryDesc, attr: PrimitiveAttr) -> str | None:
    """Return why two tensors in their layouts cannot be combined, or None."""
    refused = refuse(*operands, dst, dtypes=EVERY_TYPE) or refuse_chain(attr, dst)
    if refused:
        return refused
    for operand in operands:
        if is_blocked(operand) and not is_blocked(dst):
            return f"layouts differ: {operand.tag} to {dst.tag}"
    if any(stride not in (0, 1) for stride in _rows(operands, dst).inner.strides):
        return f"layouts differ: {operands[0].tag} and {operands[1].tag} to {dst.tag}"
    return None


def combine(
    algorithm: str,
    args: tuple[int, int],
    operands: Operands,
    dst: MemoryDesc,
    attr: PrimitiveAttr,
    streams: bool = False,
) -> Program:
    """Return the program that combines two tensors, the execution arguments ``args``, by a function of the kernel's.

    If it ``streams``, the result is written past the caches.
    """
    if dst.elements == 0:
        return Program((), ())
    rows = _rows(operands, dst)
    mid, inner = rows.mid, rows.inner
    mid_chunk = max(1, CHUNK // inner.extent)
    pieces = -(-mid.extent // mid_chunk) * -(-inner.extent // CHUNK)
    work = math.prod(axis.extent for axis in rows.outer) * pieces
    table = b"".join(struct.pack("<3q", axis.extent, *axis.strides) for axis in reversed(rows.outer))
    period, tail = (channel_blocks(dst), channel_tail(dst)) if _has_tail(dst) else (1, LANES)
    moves = (inner.strides[0] == 1, inner.strides[1] == 1)
    kernel = KernelSpec.of(
        "binary", algorithm=algorithm, dtype=dst.dtype, moves=moves, chain=chain(attr), streams=streams
    )
    numbers = (len(rows.outer), mid.extent, *mid.strides, mid_chunk, inner.extent, CHUNK, rows.below, period, tail)
    places: tuple[LaunchArgument, ...] = (
        ("m", (int(args[0]), 0)), ("m", (int(args[1]), 0)), ("m", (int(Arg.DST), 0)), chain_source(attr), ("t", 0),
        *(("i", n) for n in numbers),
    )  # fmt: skip
    return Program((kernel,), (Launch(0, places, work),), tables=table)


class Rows(NamedTuple):
    """The destination as outer x mid x inner; ``below`` outer items are within one channel block."""

    outer: tuple[Axis, ...]
    mid: Axis
    inner: Axis
    below: int


def _rows(operands: Operands, dst: MemoryDesc) -> Rows:
    """Return the axes of the destination, merged; channel blocks stay outside if the last one is partly filled."""
    axes = _axes(operands, dst)
    split = 2 if _has_tail(dst) else 0
    still = Axis(1, (0, 0))
    rows = _merged(axes[split:])
    *within, mid, inner = [still] * (2 - len(rows)) + rows
    outer = (*_merged(axes[:split]), *within)
    return Rows(outer, mid, inner, math.prod(axis.extent for axis in within))


def _has_tail(md: MemoryDesc) -> bool:
    return is_blocked(md) and md.dims[1] % LANES != 0


def _merged(axes: list[Axis]) -> list[Axis]:
    """Return axes without those of extent 1, neighbours merged if both operands continue."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if merged and _continues(merged[-1], axis):
            merged[-1] = Axis(merged[-1].extent * axis.extent, axis.strides)
        else:
            merged.append(axis)
    return merged


def _continues(before: Axis, after: Axis) -> bool:
    return all(b == a * after.extent for b, a in zip(before.strides, after.strides, strict=True))


def _axes(operands: Operands, dst: MemoryDesc) -> list[Axis]:
    """Return one axis for each dimension of the destination in memory order, the lanes of a block last."""
    layout = dst.layout
    axes = []
    for dim in layout.order:
        blocks = layout.block_of(dim)
        strides = []
        for md in operands:
            step = md.outer_strides()[dim]
            if blocks > 1 and not is_blocked(md):
                step *= blocks
            strides.append(0 if md.dims[dim] == 1 and dst.dims[dim] != 1 else step)
        axes.append(Axis(dst.padded_dims[dim] // blocks, tuple(strides)))
    if layout.blocks:
        steps = [1 if is_blocked(md) else md.outer_strides()[1] for md in operands]
        stays = [md.dims[1] == 1 and dst.dims[1] != 1 for md in operands]
        axes.append(Axis(LANES, tuple(0 if stay else step for stay, step in zip(stays, steps, strict=True))))
    return axes


IMPLEMENTATIONS = (NativeBinary(), NativeLogic(), NativeQuantisedBinary(), NativeQuantisedDivision())
