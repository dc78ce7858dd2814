"""Leaves of decision trees for rows of f32 and f64, row-major."""

from __future__ import annotations

from ...desc import PrimitiveAttr, TreeLeaves, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation

#: Ways that are followed at once.
_TOGETHER = 8
#: Nodes that an item visits, about: rows of one item go down a tree one after the other, while it is in the cache.
_VISITS = 1 << 14
#: So many rows go down one tree at a time, however many trees there are: the tree stays in the cache.
_MANY = 64


class NativeTreeLeaves(NativeImplementation[TreeLeaves]):
    """Several rows go down one tree at a time, or one row down several trees if there are few rows."""

    name = "native:tree_leaves"

    def reject(self, op: TreeLeaves, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype not in ("f32", "f64") or op.limits.dtype != op.src.dtype or op.dst.dtype != "s32":
            return f"{op.src.dtype} by limits of {op.limits.dtype} to {op.dst.dtype}; only f32 and f64 to s32 are supported"
        if not all(md.is_plain for md in op.memories().values()):
            return "only row-major layouts are supported"
        return None

    def program(self, op: TreeLeaves, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        (rows, columns), trees = op.src.dims, op.roots.dims[0]
        by_rows = rows >= _TOGETHER and (rows >= _MANY or trees * _groups(rows) <= rows * _groups(trees))
        kernel = KernelSpec.of("tree_leaves", dtype=op.src.dtype, two_limits=op.limits.dims[1] == 2, together=_TOGETHER)
        ways, others = (rows, trees) if by_rows else (trees, rows)
        # Chunks of nearly equal size: the last one has no few ways.
        most = _TOGETHER * max(1, _VISITS // (_TOGETHER * others * op.levels))
        chunk = -(-ways // -(-ways // most))
        work = -(-ways // chunk)
        # Bytes from tree to tree, and from row to row, of roots, rows and leaves.
        to_tree, to_row = (4, 0, 4), (0, item_size(op.src.dtype) * columns, 4 * trees)
        steps = (*to_row, *to_tree) if by_rows else (*to_tree, *to_row)
        numbers = (ways, others, chunk, *steps, columns, op.nodes.dims[0], op.levels)
        memories: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in op.memories()]
        args = (*memories, *(("i", number) for number in numbers))
        return Program((kernel,), (Launch(0, args, work),))


def _groups(ways: int) -> int:
    return -(-ways // _TOGETHER)


IMPLEMENTATIONS = (NativeTreeLeaves(),)
