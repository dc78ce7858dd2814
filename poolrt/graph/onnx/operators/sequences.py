"""Operators on sequences: n-grams that are counted, and caches of keys and values that are updated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..folding import Array
from ..tensors import Operand, dtype_of, shape_of

#: Most numbers from the first to the last element of a table that is looked up directly.
_DIRECT: Final = 1 << 16
#: The range of int64.
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1


def tensor_scatter(call: NodeCall) -> Operand:
    """Write a part of a sequence into a cache, from an index on that each image of the batch has."""
    m, cache, update = call.math, call.tensor(0), call.tensor(1)
    sizes, rank = shape_of(cache), len(cache.shape)
    axis, mode = call.axis(rank, -2), call.text("mode", "linear")
    length = shape_of(update)[axis] if len(update.shape) == rank else 0
    wanted = (*sizes[:axis], length, *sizes[axis + 1 :])
    if axis == 0 or shape_of(update) != wanted or not 1 <= length <= sizes[axis] or mode not in ("linear", "circular"):
        raise call.malformed(f"mode {mode!r}: an update of shape {shape_of(update)} does not fit {sizes}")
    numbers = np.arange(sizes[axis], dtype=np.int64).reshape([-1 if each == axis else 1 for each in range(rank)])
    place: Operand = numbers
    if call.has(2):
        first = m.reshape(m.cast(call.operand(2), "int64"), (sizes[0], *(1,) * (rank - 1)))
        place = m.binary(numbers, first, "sub")
    if mode == "circular":
        place = m.binary(place, np.asarray(sizes[axis], np.int64), "mod")
    is_new = m.binary(
        m.binary(place, np.asarray(0, np.int64), "ge"), m.binary(place, np.asarray(length, np.int64), "lt"), "and"
    )
    held = m.binary(m.binary(place, np.asarray(0, np.int64), "max"), np.asarray(length - 1, np.int64), "min")
    moved = m.gather_elements(update, m.expand(held, sizes), axis)
    return m.select(is_new, moved, cache)


def tf_idf(call: NodeCall) -> Operand:
    """Count n-grams of integers, with gaps of up to ``max_skip_count`` between their items."""
    m, source = call.math, call.tensor(0)
    if "pool_strings" in call.attrs or "pool_int64s" not in call.attrs:
        raise call.unsupported("n-grams of texts are not supported")
    if dtype_of(source) not in ("int32", "int64") or len(source.shape) > 2:
        raise call.malformed(f"expect integers in one or two dimensions, got {dtype_of(source)} of {shape_of(source)}")
    pool = np.asarray(call.integers("pool_int64s", most=None), np.int64)
    starts, places = call.integers("ngram_counts", most=None), call.integers("ngram_indexes", most=None)
    least, most, skips = (call.integer(name) for name in ("min_gram_length", "max_gram_length", "max_skip_count"))
    mode, width = call.text("mode", "TF"), max(places, default=0) + 1
    if mode not in ("TF", "IDF", "TFIDF") or min(places, default=0) < 0 or list(starts) != sorted(starts):
        raise call.malformed(f"mode {mode!r}, ngram_counts {starts} or ngram_indexes are not valid")
    weights = np.ones(len(places), np.float32)
    if mode != "TF" and "weights" in call.attrs:
        weights = np.asarray(call.numbers("weights"), np.float32)
        if len(weights) != len(places):
            raise call.malformed(f"weights: expect one for each n-gram, {len(places)}, got {len(weights)}")
        if mode == "IDF" and len({*places}) < len(places):
            raise call.unsupported("mode IDF with weights of n-grams that are counted in one place")
    rows = m.cast(m.reshape(source, (-1, source.shape[-1] if source.shape else 1)), "int64")
    count, length = shape_of(rows)
    # Places beyond the last column count for nothing, unless they are known.
    wide = width + (not isinstance(rows, Value))
    total: Operand = m.expand(np.zeros((1, 1), np.float32), (count, wide))
    vocabulary = np.unique(pool)
    known = _numbers(call, rows, vocabulary) if len(pool) and count * length else rows
    found: list[tuple[Operand, Operand]] = []
    first = 0
    for size, (start, end) in enumerate(zip(starts, (*starts[1:], len(pool)), strict=True), 1):
        several = (end - start) // size
        grams, columns = pool[start : start + several * size].reshape(several, size), places[first : first + several]
        weighted = weights[first : first + several] if mode == "TFIDF" else np.ones(several, np.float32)
        first += several
        if len(columns) != several:
            raise call.malformed(f"ngram_indexes: expect one for each n-gram, got {len(places)}")
        if not (several and count and least <= size <= most):
            continue
        if len(np.unique(grams, axis=0)) < several:
            raise call.malformed(f"pool: an n-gram of {size} items occurs more than once")
        kept = _Grams(np.searchsorted(vocabulary, grams), len(vocabulary))
        column_of = kept.spread(np.asarray(columns, np.int64), width)
        weight_of = kept.spread(weighted, 0)
        # Gaps make no difference to single items.
        for gap in range(1, (1 if size == 1 else skips + 1) + 1):
            last = length - gap * (size - 1)
            if last > 0:
                parts = [m.slice(known, [item * gap], [item * gap + last], [1], [1]) for item in range(size)]
                number = kept.numbers(call, parts)
                found.append((m.take(column_of, number, 0), m.take(weight_of, number, 0)))
    if found:
        at, added = (m.concat(list(parts), 1) for parts in zip(*found, strict=True))
        total = call.graph.scatter_elements(m.value(total), at, m.value(added), 1, "add", name=call.name)
    if wide > width:
        total = m.slice(total, [0], [width], [1], [1])
    if mode == "IDF":
        of_columns = np.zeros(width, np.float32)
        of_columns[list(places)] = weights
        total = m.binary(m.cast(m.binary(total, m.number(0, total), "gt"), "float32"), of_columns, "mul")
    return m.reshape(total, (width,)) if len(source.shape) < 2 else total


class _Grams:
    """N-grams of numbered items, found item by item: each beginning of one has a number, too."""

    def __init__(self, grams: Array, items: int) -> None:
        self._base = items + 1
        self._tables: list[Array] = []
        self._own = grams[:, 0]
        self._count = items
        for item in range(1, grams.shape[1]):
            keys = self._own * self._base + grams[:, item]
            self._tables.append(np.unique(keys))
            self._own = np.searchsorted(self._tables[-1], keys)
            self._count = len(self._tables[-1])

    def numbers(self, call: NodeCall, parts: Sequence[Operand]) -> Operand:
        """Return the number of each n-gram of the items in ``parts``; those beyond the last are no n-grams."""
        m, (found, *others) = call.math, parts
        base = np.asarray(self._base, np.int64)
        for table, part in zip(self._tables, others, strict=True):
            found = _numbers(call, m.binary(m.binary(found, base, "mul"), part, "add"), table)
        return found

    def spread(self, values: Array, other: float) -> Array:
        """Return values of n-grams by their numbers, and ``other`` for numbers of none."""
        found = np.full(self._count + 1, other, values.dtype)
        found[self._own] = values
        return found


def _numbers(call: NodeCall, keys: Operand, table: Array) -> Operand:
    """Return the place of each key in a sorted table, or the number of its elements."""
    m, count = call.math, len(table)
    low, high = int(table[0]), int(table[-1])
    if high - low < _DIRECT and low > _LEAST and high < _MOST:
        direct = np.full(high - low + 3, count, np.int64)
        direct[table - (low - 1)] = np.arange(count)
        inside = m.binary(m.binary(keys, np.asarray(low - 1, np.int64), "max"), np.asarray(high + 1, np.int64), "min")
        return m.take(direct, m.binary(inside, np.asarray(low - 1, np.int64), "sub"), 0)
    # The last element that is not larger, by halves.
    step = 1 << max(count - 1, 1).bit_length() - 1
    padded = np.concatenate([table, np.full(2 * step - count, high, np.int64)])
    place: Operand = m.expand(np.zeros((1, 1), np.int64), shape_of(keys))
    while step:
        probe = m.binary(place, np.asarray(step, np.int64), "add")
        place = m.select(m.binary(m.take(padded, probe, 0), keys, "le"), probe, place)
        step //= 2
    place = m.binary(place, np.asarray(count - 1, np.int64), "min")
    there = m.binary(m.take(table, place, 0), keys, "eq")
    return m.select(there, place, m.expand(np.full((1, 1), count, np.int64), shape_of(keys)))


OPERATORS: Final[Mapping[str, Operator]] = {"TensorScatter": tensor_scatter, "TfIdfVectorizer": tf_idf}
