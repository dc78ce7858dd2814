"""Quantise in one step what a graph spells out: a division, rounding, a zero point, and a type of 8 or 16 bits.

There is one divisor, or they differ along some dimensions. Zero points are one number, or constants along those dimensions.

A reorder with a scale and a zero point would round after the zero point is added, which differs for halves.
"""

from __future__ import annotations

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.workers.desc import LIMITS, Arg, MemoryDesc, item_size

from ..constant import Constant
from ..ir import GraphIR, Node, PostOpUse, QuantisationUse
from .rewriter import Rewriter, only_reader

_QUANTISED = ("u8", "s8", "u16", "s16")


@dataclass(frozen=True, slots=True)
class _Match:
    """The division, the conversion, the zero points with their mask or the value that has one, and all results but the last."""

    division: Node
    last: Node
    points: tuple[int, ...]
    mask: int
    computed: int | None
    replaced: tuple[int, ...]


def quantise_at_once(ir: GraphIR) -> GraphIR:
    """Replace round(x / scale) + zero point, converted to 8 or 16 bits, by one division that rounds, on the CPU."""
    readers, leaving = ir.readers(), ir.output_values()
    found: dict[int, _Match] = {}
    for node in ir.nodes:
        match = _match(node, ir, readers, leaving)
        if match is not None:
            found[match.last.output] = match
    if not found:
        return ir
    replaced = {value for match in found.values() for value in match.replaced}
    new = Rewriter(ir)
    for node in ir.nodes:
        match = found.get(node.output)
        if match is None:
            if node.output not in replaced:
                new.nodes.append(node)
            continue
        uses: tuple[QuantisationUse, ...] = ()
        if match.computed is not None:
            uses = (QuantisationUse("zero_points", int(Arg.DST), 0, _as_row(new, match.last.name, match.computed)),)
        elif any(match.points):
            point = new.constant(Constant(np.array(match.points, np.int32), None, "s32"))
            uses = (QuantisationUse("zero_points", int(Arg.DST), match.mask, point),)
        steps = (PostOpUse("eltwise", "round"),)
        new.nodes.append(replace(match.division, outputs=node.outputs, post_ops=steps, quantisation=uses))
    return new.finish()


def _match(node: Node, ir: GraphIR, readers: dict[int, list[Node]], leaving: frozenset[int]) -> _Match | None:
    """Return the quantisation that begins with a division, None if there is none."""
    if node.kind != "binary" or node.attrs["algorithm"] != "div" or not _is_plain(node, ir):
        return None
    (source, scale), values = node.inputs, ir.values
    dims = values[source].dims
    if values[source] != values[node.output] or values[source].dtype != "f32" or values[scale].dtype != "f32":
        return None
    varies = [dim for dim, size in enumerate(values[scale].dims) if size != 1]
    if varies and (len(values[scale].dims) != len(dims) or any(values[scale].dims[dim] != dims[dim] for dim in varies)):
        return None
    if not are_in_rows(dims, varies):
        return None
    replaced = [node.output]
    reader = only_reader(node.output, readers, leaving)
    if reader is None or reader.kind != "eltwise" or reader.attrs["algorithm"] != "round" or not _is_plain(reader, ir):
        return None
    replaced.append(reader.output)
    reader = only_reader(reader.output, readers, leaving)
    points: tuple[int, ...] = (0,)
    mask, computed = 0, None
    if reader is not None and reader.kind == "binary" and reader.attrs["algorithm"] == "add" and _is_plain(reader, ir):
        added = reader.inputs[1]
        if values[reader.inputs[0]] != values[reader.output]:
            return None
        constant = ir.constants.get(added)
        if constant is None:
            if values[added].elements != 1 or not _is_whole(added, ir):
                return None
            computed = added
        else:
            numbers = constant.float64().reshape(-1)
            if not (np.all(numbers == np.trunc(numbers)) and np.all(np.abs(numbers) <= LIMITS["u16"][1])):
                return None
            if np.all(numbers == numbers[:1]):
                numbers = numbers[:1]
            elif values[added].dims != values[scale].dims:
                return None
            else:
                mask = sum(1 << dim for dim in varies)
            points = tuple(int(number) for number in numbers)
        replaced.append(reader.output)
        reader = only_reader(reader.output, readers, leaving)
    if reader is None or reader.kind != "reorder" or reader.attrs["tag"] or not _is_plain(reader, ir):
        return None
    dtype = values[reader.output].dtype
    if dtype not in _QUANTISED or max(map(abs, points), default=0) > LIMITS[f"u{8 * item_size(dtype)}"][1]:
        return None
    return _Match(node, reader, points, mask, computed, tuple(replaced))


def are_in_rows(dims: tuple[int, ...], varies: list[int]) -> bool:
    """Return whether numbers differ along neighbouring dimensions, or such that have one run of others between them."""
    order = [dim in varies for dim, size in enumerate(dims) if size != 1]
    runs = [does for dim, does in enumerate(order) if not dim or order[dim - 1] != does]
    return len(runs) <= (3 if runs and runs[0] else 4)


def _is_whole(value: int, ir: GraphIR) -> bool:
    """Return whether a value, or the one that it is a view of, is of f32 and rounded."""
    producers = {node.output: node for node in ir.nodes}
    producer = producers.get(value)
    while producer is not None and producer.kind == "reshape":
        producer = producers.get(producer.inputs[0])
    is_rounded = producer is not None and producer.kind == "eltwise" and producer.attrs["algorithm"] == "round"
    return is_rounded and ir.values[value].dtype == "f32"


def _as_row(new: Rewriter, name: str, point: int) -> int:
    """Return a computed zero point as s32 in a row, which a primitive takes; add the nodes that make it."""
    dims = new.dims(point)
    whole, row = new.value(MemoryDesc(dims, "s32")), new.value(MemoryDesc((1,), "s32"))
    new.nodes.append(Node("reorder", f"{name}/point", (point,), (whole,), {"tag": ""}))
    new.nodes.append(Node("reshape", f"{name}/row", (whole,), (row,), {"shape": (1,), "axes": ()}))
    return row


def _is_plain(node: Node, ir: GraphIR) -> bool:
    """Return whether a node has no post-ops, scales and zero points, and is on the CPU."""
    return not (node.post_ops or node.quantisation or node.implementation) and (node.engine or ir.engine) == "cpu"
