"""Operators on sequences: n-grams that are counted, and caches of keys and values that are updated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ..call import NodeCall, Operator
from ..folding import Array
from ..tensors import Operand, dtype_of, shape_of


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
    rows = m.reshape(source, (-1, source.shape[-1] if source.shape else 1))
    total: Operand = m.expand(np.zeros((1, 1), np.float32), (shape_of(rows)[0], width))
    first = 0
    for size, (start, end) in enumerate(zip(starts, (*starts[1:], len(pool)), strict=True), 1):
        count = (end - start) // size
        grams, columns = pool[start : start + count * size].reshape(count, size), places[first : first + count]
        weighted = weights[first : first + count]
        first += count
        if len(columns) != count:
            raise call.malformed(f"ngram_indexes: expect one for each n-gram, got {len(places)}")
        if count and least <= size <= most:
            # Gaps make no difference to single items.
            for gap in range(1, (1 if size == 1 else skips + 1) + 1):
                found = _occurrences(call, rows, grams, gap)
                if found is not None:
                    hot = np.zeros((count, width), np.float32)
                    hot[np.arange(count), list(columns)] = weighted if mode == "TFIDF" else 1
                    total = m.binary(total, m.matmul(m.cast(found, "float32"), hot), "add")
    if mode == "IDF":
        of_columns = np.zeros(width, np.float32)
        of_columns[list(places)] = weights
        total = m.binary(m.cast(m.binary(total, m.number(0, total), "gt"), "float32"), of_columns, "mul")
    return m.reshape(total, (width,)) if len(source.shape) < 2 else total


def _occurrences(call: NodeCall, rows: Operand, grams: Array, gap: int) -> Operand | None:
    """Return how often n-grams with a distance between their items occur in rows; None if rows are too short."""
    m, (count, size) = call.math, grams.shape
    length = shape_of(rows)[1] - gap * (size - 1)
    if length < 1:
        return None
    same: Operand | None = None
    for item in range(size):
        part = m.unsqueeze(m.slice(rows, [item * gap], [item * gap + length], [1], [1]), (1,))
        equal = m.binary(part, grams[:, item].astype(dtype_of(rows)).reshape(1, count, 1), "eq")
        same = equal if same is None else m.binary(same, equal, "and")
    return None if same is None else m.reduce(m.cast(same, "int32"), "sum", (2,), False)


OPERATORS: Final[Mapping[str, Operator]] = {"TensorScatter": tensor_scatter, "TfIdfVectorizer": tf_idf}
