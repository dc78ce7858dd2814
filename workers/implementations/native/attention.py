"""Attention in f32, rows at any distance from one another: tiles of queries, or single ones with vectors of keys."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ...desc import Arg, Attention, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from ..reference.attention import complete
from .blocks import LANES

#: Most queries of a head, all or behind whole vectors of them, that are computed one by one.
_FEW: Final = 6
#: ISA level -> largest depths, and as many vectors of queries as a tile has at most: sums and weights fit in the registers,
#: queries and sums in a core's second-level cache.
_BLOCKS: Final = {"x86-64-v4": ((128, 4), (256, 2))}
#: Keys of a block times vectors of queries of a tile at most; the kernel has as many scores on the stack.
_SCORES: Final = 384
#: Largest depth: the stack holds 16 queries and sums of as many floats.
_DEEPEST: Final = 2048


class NativeAttention:
    """Elements of a row side by side, rows and heads at any distance; masks of f32 and bool."""

    name = "native:online"
    engine_kind = "cpu"
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Attention, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.scales or attr.zero_points or attr.post_ops:
            return "attention takes no scales, zero points or post-ops"
        op = self.complete(op, attr, target)
        depth, width = op.key.dims[3], op.value.dims[3]
        if not 1 <= depth <= _DEEPEST or width > _DEEPEST:
            return f"depth {depth} and {width} columns of values; only 1 to {_DEEPEST} are supported"
        for md in (op.query, op.key, op.value, op.dst):
            if md.dtype != "f32":
                return f"data type {md.dtype}; only f32 is supported"
            if not _has_rows(md):
                return f"layout {md}; only rows of adjacent elements are supported"
        if op.mask is None:
            return None
        if op.mask.dtype not in ("f32", "bool"):
            return f"mask of data type {op.mask.dtype}; only f32 and bool are supported"
        if op.mask.dims[3] != op.key.dims[2] or not _has_rows(op.mask):
            return f"mask {op.mask}; only rows of adjacent elements, one for each key, are supported"
        return None

    def complete(self, op: Attention, attr: PrimitiveAttr, target: Target) -> Attention:
        return complete(op)

    def program(self, op: Attention, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        shape = _describe(op)
        rest = shape.rows % LANES
        whole = 0 if shape.rows <= _FEW else shape.rows
        if shape.rows > LANES and rest <= _FEW:
            # A vector of a few queries takes as long as one of 16.
            whole -= rest
        parts = [_tiles(shape, whole, target.isa)] if whole else []
        if whole < shape.rows:
            parts.append(_rows(shape, whole))
        launches, records = [], b""
        for number, part in enumerate(parts):
            launches.append(Launch(number, _arguments(shape, part.first, len(records), op.factor), part.work))
            records += part.record
        return Program(tuple(part.kernel for part in parts), tuple(launches), records)


class _Part(NamedTuple):
    """The queries of each head from number ``first`` on that one launch computes, with the kernel's record."""

    kernel: KernelSpec
    first: int
    work: int
    record: bytes


class _Shape(NamedTuple):
    """Sizes, and the distances of the kernels' record. ``causal`` is whether a query's number limits its keys."""

    batch: int
    heads: int
    shared: int
    rows: int
    keys: int
    depth: int
    width: int
    strides: tuple[int, ...]
    mask: str
    causal: bool

    def record(self, first: int, rows: int, most: int, parts: int, whole: int) -> bytes:
        """Return the kernels' record for ``rows`` queries of each head from number ``first`` on.

        ``most`` are keys of a block, ``parts`` items of a head, and ``whole`` those of them that are large.
        """
        reach = self.keys - self.rows + first if self.causal else self.keys
        return struct.pack(
            "<25q", *self.strides, self.heads, self.shared, rows, self.keys, self.depth, self.width, most, parts, whole, reach
        )  # fmt: skip


def _tiles(shape: _Shape, rows: int, isa: str) -> _Part:
    """Return the part of the first ``rows`` queries of each head, 16 in a vector."""
    room = max(64, 1 << (max(shape.depth, shape.width) - 1).bit_length())
    vectors = -(-rows // LANES)
    parts = -(-vectors // _most_blocks(isa, room))
    small, whole = divmod(vectors, parts)
    blocks = (small + 1, small) if whole else (small,)
    pieces = max(1, -(-shape.keys // (_SCORES // blocks[0])))
    most = max(1, -(-shape.keys // pieces))
    kernel = KernelSpec.of("attention", part="tiles", blocks=blocks, room=room, mask=shape.mask)
    record = shape.record(0, rows, most, parts, whole or parts)
    return _Part(kernel, 0, shape.batch * shape.heads * parts, record)


def _rows(shape: _Shape, first: int) -> _Part:
    """Return the part of the queries from number ``first`` on, one by one."""
    rows = shape.rows - first
    kernel = KernelSpec.of("attention", part="rows", blocks=(1,), room=1, mask=shape.mask)
    return _Part(kernel, first, shape.batch * shape.heads * rows, shape.record(first, rows, 1, rows, rows))


def _arguments(shape: _Shape, first: int, record: int, factor: float) -> tuple[LaunchArgument, ...]:
    """Return the arguments of a launch whose queries begin with number ``first``, and whose record is in that place."""
    query, dst, mask = (first * shape.strides[row] for row in (2, 11, 14))
    return (
        ("m", (int(Arg.SRC), query)), ("m", (int(Arg.SRC_1), 0)), ("m", (int(Arg.SRC_2), 0)),
        ("m", (int(Arg.SHIFT), mask)) if shape.mask else ("i", 0),
        ("m", (int(Arg.DST), dst)), ("t", record), ("f", factor),
    )  # fmt: skip


def _describe(op: Attention) -> _Shape:
    batch, heads, rows, depth = op.query.dims
    groups, keys = op.key.dims[1:3]
    query, key, value, dst = (_strides(md) for md in (op.query, op.key, op.value, op.dst))
    mask = (0, 0, 0) if op.mask is None else _strides(op.mask)
    shared, causal = heads // groups, op.causal
    if rows == 1:
        # One query sees all keys, so the heads that share keys are computed as its rows.
        heads, rows, shared, causal = groups, shared, 1, False
        query, dst, mask = ((outer, rows * head, head) for outer, head, _ in (query, dst, mask))
    name = ""
    if op.mask is not None:
        name = ("full" if mask[2] else "row") + "_bool" * (op.mask.dtype == "bool")
    strides = (*query, *key, *value, *dst, *mask)
    return _Shape(batch, heads, shared, rows, keys, depth, op.value.dims[3], strides, name, causal)


def _has_rows(md: MemoryDesc) -> bool:
    """Return whether elements along the last dimension are adjacent."""
    return not md.layout.blocks and (md.dims[3] <= 1 or md.outer_strides()[3] == 1)


def _strides(md: MemoryDesc) -> tuple[int, int, int]:
    """Return the bytes from index to index of the first three dimensions, 0 of those of one index."""
    size = 1 if md.dtype == "bool" else 4
    first, second, third = (
        0 if extent == 1 else size * stride for extent, stride in zip(md.dims[:3], md.outer_strides()[:3], strict=True)
    )
    return first, second, third


def _most_blocks(isa: str, room: int) -> int:
    """Return how many vectors of queries a tile may have."""
    return next((most for deepest, most in _BLOCKS.get(isa, ()) if room <= deepest), 1)


IMPLEMENTATIONS = (NativeAttention(),)
