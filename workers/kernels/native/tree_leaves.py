"""Follow the nodes of decision trees: several ways at a time, each of which waits for a load at every node.

An item is a chunk of rows in all trees, or of few rows a chunk of trees for all of them. ``ways`` are rows in one tree, or trees
for one row, with bytes from way to way of roots, rows and leaves, and from one of the ``others`` to the next. Ways end when all
that are followed at once are at leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...desc import item_size
from .compiler import types
from .compiler.language import intrinsic
from .vec import F32, F64, I32, I64, Builder, Value, pointer


def make(isa: str, dtype: str, two_limits: bool, together: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature, for rows of f32 or f64 and as many ways ``together``."""
    several, one = (_make_follow(dtype, two_limits, ways) for ways in (together, 1))

    def kernel(
        begin: int, end: int, src: int, nodes: int, limits: int, roots: int, dst: int, ways: int, others: int, chunk: int,
        root_step: int, row_step: int, leaf_step: int, next_root: int, next_row: int, next_leaf: int, columns: int,
        count: int, levels: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            start = item * chunk
            stop = min(ways, start + chunk)
            for other in range(others):
                way = start
                while way < stop:
                    is_many = stop - start >= together
                    # Of many, the last ways are some of those before them, too.
                    way = min(way, stop - together) if is_many else way
                    root = roots + way * root_step + other * next_root
                    row = src + way * row_step + other * next_row
                    leaf = dst + way * leaf_step + other * next_leaf
                    if is_many:
                        several(nodes, limits, root, row, leaf, root_step, row_step, leaf_step, columns, count, levels)
                        way += together
                    else:
                        one(nodes, limits, root, row, leaf, 0, 0, 0, columns, count, levels)
                        way += 1

    return kernel, types.void(*[types.int64] * 19)


def _make_follow(dtype: str, two_limits: bool, ways: int) -> Any:
    """Return the intrinsic that follows some ways from roots to leaves, with bytes from way to way of roots, rows and leaves."""
    kind, size, bounds = (F64 if dtype == "f64" else F32), item_size(dtype), 2 if two_limits else 1

    def decide(b: Builder, nodes: Value, limits: Value, row: Value, at: Value, columns: Value, count: Value) -> Value:
        """Return the node behind a node."""
        number = b.zext(at, I64)
        node = b.add(nodes, b.shl(number, I64(4)))
        column, passed, failed, keeps = (
            b.load(pointer(b, b.add(node, I64(4 * field)), I32), align=4) for field in range(4)
        )
        column = b.zext(_known(b, column, columns), I64)
        value = b.load(pointer(b, b.add(row, b.mul(column, I64(size))), kind), align=size)
        limit = b.add(limits, b.mul(number, I64(bounds * size)))
        found = [b.load(pointer(b, b.add(limit, I64(size * each)), kind), align=size) for each in range(bounds)]
        passes = b.fcmp_ordered("<=", value, found[-1])
        if two_limits:
            passes = b.and_(passes, b.fcmp_ordered(">=", value, found[0]))
        is_none = b.and_(b.fcmp_unordered("uno", value, value), b.icmp_signed("!=", keeps, I32(0)))
        return _known(b, b.select(b.or_(passes, is_none), passed, failed), count)

    def typed(_: Any, *given: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            nodes, limits, roots, row, dst, root_step, row_step, dst_step = a[:8]
            columns, count = b.trunc(a[8], I32), b.trunc(a[9], I32)
            starts, rows = [], []
            for way in range(ways):
                root = b.load(pointer(b, b.add(roots, b.mul(root_step, I64(way))), I32), align=4)
                starts.append(_known(b, root, count))
                rows.append(b.add(row, b.mul(row_step, I64(way))))
            before, level, done = b.block, b.append_basic_block("level"), b.append_basic_block("leaves")
            b.branch(level)
            b.position_at_end(level)
            places = [b.phi(I32) for _ in range(ways)]
            left = b.phi(I64)
            found = [decide(b, nodes, limits, *pair, columns, count) for pair in zip(rows, places, strict=True)]
            moved: Value = I32(0)
            for place, start, then in zip(places, starts, found, strict=True):
                place.add_incoming(start, before)
                place.add_incoming(then, b.block)
                moved = b.or_(moved, b.xor(place, then))
            fewer = b.sub(left, I64(1))
            left.add_incoming(a[10], before)
            left.add_incoming(fewer, b.block)
            goes_on = b.and_(b.icmp_signed("!=", moved, I32(0)), b.icmp_signed(">", fewer, I64(0)))
            b.cbranch(goes_on, level, done)
            b.position_at_end(done)
            for way, place in enumerate(found):
                b.store(place, pointer(b, b.add(dst, b.mul(dst_step, I64(way))), I32), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), emit

    return intrinsic(typed)


def _known(b: Builder, number: Value, count: Value) -> Value:
    """Return a number below a count, which is the last one for others."""
    return b.select(b.icmp_unsigned("<", number, count), number, b.sub(count, I32(1)))
