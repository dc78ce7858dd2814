"""Operators that choose elements: how many they choose may depend on the elements, and is then counted in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ...values import Value
from ..bounds import Bound, used
from ..call import NodeCall, Operator
from ..element_types import FLOATS
from ..folding import Array
from ..rearranging import accumulate, arg_reduce
from ..tensors import MOST_SORTED, Operand, dtype_of, extreme, shape_of

#: Elements that are compared with each other to find equal slices, at most.
_MOST_COMPARED: Final = 1 << 22
#: Elements of slices that are sorted by one column after the other, and slices from which on that takes less time.
_FEW_COLUMNS: Final = 16
_MANY_SLICES: Final = 24
_LOWEST: Final = float(np.finfo(np.float32).min)


def non_max_suppression(call: NodeCall) -> Operand:
    """Choose the best boxes of each class; the limits that the model computes are read in a run."""
    m = call.math
    if 0 in (*call.shape(0), *call.shape(1)):
        return np.zeros((0, 3), np.int64)
    boxes, scores = (m.cast(call.real(index), "float32") for index in (0, 1))
    size = boxes.shape[1] if len(boxes.shape) == 3 else 0
    wanted = call.operand(2) if call.has(2) else np.zeros(1, np.int64)
    room: Operand = wanted
    if isinstance(wanted, Value):
        most = size
        room = m.binary(wanted, np.asarray(size, np.int64), "min")
    else:
        most = min(int(_single(call, wanted, "max_output_boxes_per_class").reshape(())), size)
        if most < 1:
            return np.zeros((0, 3), np.int64)
    overlap, least = (
        call.operand(index) if call.has(index) else np.asarray(default, np.float32)
        for index, default in ((3, 0.0), (4, _LOWEST))
    )
    limits = m.concat([m.reshape(m.cast(each, "float32"), (1,)) for each in (room, overlap, least)], 0)
    is_centred = bool(call.integer("center_point_box", 0))
    rows, count = call.graph.non_max_suppression(
        m.value(boxes), m.value(scores), m.value(limits), most, is_centred, name=call.name
    )
    call.bounds.note(rows, Bound(0, count))
    return rows


def top_k(call: NodeCall) -> tuple[Operand, ...]:
    """Return the greatest or least elements along an axis, and their places; a computed number of them is counted."""
    source = call.tensor(0)
    axis, bound = call.axis(len(source.shape), -1), call.bounds.of(source)
    size = source.shape[axis]
    largest = bool(call.integer("largest", 1)) if call.opset >= 11 else True
    number: Value | None = None
    asked: tuple[str, ...] = ()
    if call.opset >= 10 and isinstance(call.operand(1), Value):
        number, asked, count = call.math.value(call.operand(1)), call.inputs_of(1), size
    else:
        count = call.integer("k") if call.opset < 10 else call.known_integers(1, "k")[0]
    if bound is not None and bound.axis == axis:
        source = call.math.select(used(call, source, bound), source, extreme(source, not largest))
        count = min(count, size)
    if count == 0 and bound is None:
        sizes = [0 if each == axis else length for each, length in enumerate(shape_of(source))]
        return call.math.empty(sizes, source), np.zeros(sizes, np.int64)
    if not 1 <= count <= size:
        raise call.malformed(f"k: expect 1..{size}, got {count}")
    results = call.graph.top_k(call.math.value(source), count, axis, largest, name=call.name)
    taken: Bound | None = bound
    if number is not None or (bound is not None and bound.axis == axis):
        m = call.math
        if bound is not None and bound.axis != axis:
            raise call.bounds.refused(call, [bound])
        left = m.reshape(m.cast(np.asarray(count) if number is None else number, "int64"), (1,))
        taken = Bound(axis, m.value(left if bound is None else m.binary(left, bound.count, "min")), asked)
    if taken is not None:
        for each in results:
            call.bounds.note(each, taken)
    return results


def non_zero(call: NodeCall) -> Operand:
    """Return the indices of the elements that are not 0."""
    found = call.operand(0)
    if not isinstance(found, Value):
        if found.size > MOST_SORTED:
            raise call.unsupported(f"{found.size} elements; at most {MOST_SORTED} are searched")
        call.folding.book((found.ndim, found.size), np.dtype(np.int64))
        return np.asarray(np.nonzero(found), np.int64).reshape(found.ndim, -1)
    if not found.shape:
        raise call.unsupported("a computed number without dimensions")
    result, count = call.graph.non_zero(found, name=call.name)
    call.bounds.note(result, Bound(1, count))
    return result


def compress(call: NodeCall) -> Operand:
    """Keep the slices along an axis whose condition is true."""
    condition, m = call.operand(1), call.math
    if dtype_of(condition) != "bool" or len(condition.shape) != 1:
        raise call.malformed("condition: expect booleans in one dimension")
    data = call.operand(0)
    if "axis" not in call.attrs:
        data, axis = m.reshape(data, (math.prod(shape_of(data)),)), 0
    else:
        axis = call.axis(len(data.shape))
    size = shape_of(data)[axis]
    if size == 0:
        return data
    if 0 in data.shape:
        condition = call.known(1, "condition")
    if not isinstance(condition, Value):
        places: Array = np.flatnonzero(condition[:size]).astype(np.int64)
        return m.take(data, places, axis)
    given = m.value(m.slice(condition, [0], [size], [0], [1]))
    chosen, count = m.graph.non_zero(given, dtype="int32" if size < 1 << 31 else "int64", name=m.name("places"))
    result = m.graph.gather(m.value(data), m.value(m.reshape(chosen, shape_of(given))), axis, name=call.name)
    call.bounds.note(result, Bound(axis, count))
    return result


def unique(call: NodeCall) -> tuple[Operand, ...]:
    """Return different elements or slices, where each is first, which each element is, and how often each occurs."""
    data, m = call.operand(0), call.math
    along = call.axis(len(data.shape)) if "axis" in call.attrs else None
    if (math.prod(data.shape) if along is None else data.shape[along]) == 0:
        none = np.zeros(0, np.int64)
        return data if along is not None else m.reshape(data, (0,)), none, none, none
    data = call.tensor(0)
    is_sorted = bool(call.integer("sorted", 1))
    if "axis" in call.attrs:
        axis = call.axis(len(data.shape))
        size = shape_of(data)[axis]
        inverse, count = _equal_slices(call, data, axis, is_sorted)
    else:
        data, axis = m.reshape(data, (-1,)), 0
        size = shape_of(data)[0]
        inverse, count = _equal_elements(call, data, is_sorted)
    numbers, ones = np.arange(size, dtype=np.int64), np.ones(size, np.int64)
    g = call.graph
    first = g.scatter_elements(np.full(size, size - 1, np.int64), inverse, numbers, 0, "min", name=m.name("first"))
    often = g.scatter_elements(np.zeros(size, np.int64), inverse, ones, 0, "add", name=m.name("counts"))
    values = m.graph.gather(m.value(data), first, axis, name=call.name)
    for result, along in ((values, axis), (first, 0), (often, 0)):
        call.bounds.note(result, Bound(along, count))
    return values, first, inverse, often


def _equal_elements(call: NodeCall, data: Operand, is_sorted: bool) -> tuple[Value, Value]:
    """Return for each element the number of the different one that it is, and how many of these there are."""
    m, (size,) = call.math, shape_of(data)
    # From the greatest to the least: NaN comes first, and last when they are turned round.
    values, order = (m.slice(each, [-1], [-size - 1], [0], [-1]) for each in m.graph.top_k(m.value(data), size, 0))
    parts: list[Operand] = [np.zeros(1, np.int64)]
    if size > 1:
        before, after = m.slice(values, [0], [size - 1], [0], [1]), m.slice(values, [1], [size], [0], [1])
        differs = m.binary(before, after, "ne")
        if dtype_of(data) in FLOATS:
            # All that are no numbers are one.
            exists = m.binary(m.binary(before, before, "eq"), m.binary(after, after, "eq"), "or")
            differs = m.binary(differs, exists, "and")
        parts.append(m.cast(differs, "int64"))
    return _number_groups(call, order, parts, is_sorted)


def _number_groups(call: NodeCall, order: Operand, parts: Sequence[Operand], is_sorted: bool) -> tuple[Value, Value]:
    """Return the same for elements in an order, whose ``parts`` are 1 where one differs from that before it, else 0."""
    m, (size,) = call.math, shape_of(order)
    numbers = np.arange(size, dtype=np.int64)
    group = accumulate(m, m.concat(parts, 0), 0, "add", False, False)
    count = m.value(m.binary(m.slice(group, [size - 1], [size], [0], [1]), np.ones(1, np.int64), "add"))
    g = call.graph
    if not is_sorted:
        late = np.full(size, size, np.int64)
        first = g.scatter_elements(late, m.value(group), m.value(order), 0, "min", name=m.name("first"))
        _, ranked = g.top_k(first, size, 0, largest=False)
        rank = g.scatter_elements(np.zeros(size, np.int64), ranked, numbers, 0, name=m.name("rank"))
        group = m.take(rank, group, 0)
    inverse = g.scatter_elements(np.zeros(size, np.int64), m.value(order), m.value(group), 0, name=m.name("inverse"))
    return inverse, count


def _equal_rows(call: NodeCall, rows: Operand, is_sorted: bool) -> tuple[Value, Value]:
    """Return the same for rows of few columns, which are sorted by one column after the other, the first one last."""
    m, (size, length) = call.math, shape_of(rows)
    order: Operand | None = None
    for column in range(length - 1, -1, -1):
        keys = m.reshape(m.slice(rows, [column], [column + 1], [1], [1]), (size,))
        _, places = m.graph.top_k(m.value(keys if order is None else m.take(keys, order, 0)), size, 0)
        order = places if order is None else m.take(order, places, 0)
    if order is None:
        raise call.malformed("slices without elements")
    # From the greatest to the least, as elements are.
    order = m.slice(order, [-1], [-size - 1], [0], [-1])
    ordered = m.take(rows, order, 0)
    before, after = m.slice(ordered, [0], [size - 1], [0], [1]), m.slice(ordered, [1], [size], [0], [1])
    differs = m.reduce(m.cast(m.binary(before, after, "ne"), "uint8"), "max", (1,), False)
    return _number_groups(call, order, [np.zeros(1, np.int64), m.cast(differs, "int64")], is_sorted)


def _equal_slices(call: NodeCall, data: Operand, axis: int, is_sorted: bool) -> tuple[Value, Value]:
    """Return the same for slices along an axis, each of which is compared with each other."""
    m, sizes = call.math, shape_of(data)
    size, length = sizes[axis], math.prod(sizes) // sizes[axis]
    rows = m.reshape(m.transpose(data, [axis, *(each for each in range(len(sizes)) if each != axis)]), (size, length))
    if dtype_of(rows) == "bool":
        rows = m.cast(rows, "uint8")
    if size >= _MANY_SLICES and 0 < length <= _FEW_COLUMNS:
        return _equal_rows(call, rows, is_sorted)
    if size * size * length > _MOST_COMPARED:
        raise call.unsupported(f"{size} slices of {length} elements; at most {_MOST_COMPARED} pairs are compared")
    one, other = m.reshape(rows, (size, 1, length)), m.reshape(rows, (1, size, length))
    differs = m.cast(m.binary(one, other, "ne"), "uint8")
    place = arg_reduce(m, differs, "max", 2, True, False)
    is_less = m.squeeze(m.gather_elements(m.cast(m.binary(one, other, "lt"), "uint8"), place, 2), (2,))
    is_equal = m.binary(m.reduce(differs, "max", (2,), False), np.asarray(0, np.uint8), "eq")
    first = m.squeeze(arg_reduce(m, m.cast(is_equal, "uint8"), "max", 1, True, False), (1,))
    leads = m.cast(m.binary(first, np.arange(size, dtype=np.int64), "eq"), "int64")
    count = m.value(m.reduce(leads, "sum", (0,), True))
    if is_sorted:
        lesser = m.binary(m.cast(is_less, "int64"), m.unsqueeze(leads, (1,)), "mul")
        return m.value(m.reduce(lesser, "sum", (0,), False)), count
    return m.value(m.take(accumulate(m, leads, 0, "add", True, False), first, 0)), count


def _single(call: NodeCall, array: Array, what: str) -> Array:
    if array.size != 1:
        raise call.malformed(f"{what}: expect one number, got {array.size}")
    return array


OPERATORS: Final[Mapping[str, Operator]] = {
    "Compress": compress,
    "NonMaxSuppression": non_max_suppression,
    "NonZero": non_zero,
    "TopK": top_k,
    "Unique": unique,
}
