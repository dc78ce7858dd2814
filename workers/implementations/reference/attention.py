"""Attention of any data types, layouts and attributes."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Attention, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ..layouts import follow
from ..program import LaunchArgument, Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceAttention(ReferenceImplementation[Attention]):
    """One query a work item; its weighted sum of values stays float64."""

    name = "ref:attention"

    def complete(self, op: Attention, attr: PrimitiveAttr, target: Target) -> Attention:
        return complete(op)

    def program(self, op: Attention, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        *outer, keys, depth = op.key.dims
        batch, heads, rows, width = op.dst.dims
        mask: LaunchArgument = ("i", 0)
        if op.mask is not None:
            mask = tables.tensor(Arg.SHIFT, op.mask, (batch, heads, rows, keys))
        tensors = [tables.tensor(arg, op.memories()[arg]) for arg in (Arg.SRC, Arg.SRC_1, Arg.SRC_2)]
        masked = 0 if op.mask is None else 1 + int(op.mask.dtype == "bool")
        numbers = (masked, heads // outer[1], keys, depth, width, int(op.causal))
        args: tuple[LaunchArgument, ...] = (
            *tensors, mask, tables.tensor(Arg.DST, op.dst), tables.chain(op.dst), *(("i", n) for n in numbers), ("s", 0),
            ("f", op.factor),
        )  # fmt: skip
        items = batch * heads * rows
        return tables.program("attention", args, items, [(Arg.DST, op.dst)], scratchpad=8 * items * width)


def complete(op: Attention) -> Attention:
    """Return an operation with every layout ``any`` chosen: dst has the query's, the others are row-major."""
    query, key, value = (_plain(md) for md in (op.query, op.key, op.value))
    mask = None if op.mask is None else _plain(op.mask)
    return replace(op, query=query, key=key, value=value, mask=mask, dst=follow(op.dst, query))


def _plain(md: MemoryDesc) -> MemoryDesc:
    return md.with_tag("") if md.is_any else md
