"""Fuse a relu and the addition of a residual into the operation whose result they take."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ..ir import GraphIR, Node, PostOpUse
from .rewriter import Rewriter

_WITH_RELU = frozenset({"convolution", "inner_product", "batch_normalization", "sum", "binary"})
_WITH_RESIDUAL = frozenset({"convolution", "inner_product", "batch_normalization"})
_RELU = PostOpUse("eltwise", "relu")


def fuse_post_ops(ir: GraphIR) -> GraphIR:
    """Let nodes absorb the relu or addition that is the only reader of their result.

    Nodes are visited from the last to the first. So the later of two candidates for one addition absorbs it, because
    the other operand is computed by then, and an absorbed node has absorbed its own followers before. A fused node gets
    the place of the last node that it absorbed, so that everything that it reads is computed before it.
    """
    nodes = {node.output: node for node in ir.nodes}
    readers: dict[int, list[int]] = {value: [] for value in ir.values}
    for node in ir.nodes:
        for value in node.uses():
            readers[value].append(node.output)
    leaving = ir.output_values()
    for node in reversed(ir.nodes):
        root = nodes.get(node.output)
        while root is not None and root.output not in leaving and len(readers[root.output]) == 1:
            (follower,) = readers[root.output]
            fused = _fuse(root, nodes[follower], ir)
            if fused is None:
                break
            del nodes[root.output]
            nodes[follower] = fused
            for value in root.uses():
                readers[value] = [follower if reader == root.output else reader for reader in readers[value]]
            root = fused
    return Rewriter(ir).finish(nodes.values())


def _fuse(node: Node, follower: Node, ir: GraphIR) -> Node | None:
    """Return ``node`` with ``follower`` and its post-ops in its chain, or None if it cannot be fused."""
    if (
        (node.engine, node.implementation) != (follower.engine, follower.implementation)
        or node.quantisation
        or follower.quantisation
        or not _is_float32(node, follower, ir)
    ):
        return None
    if node.kind in _WITH_RELU and _is_relu(follower):
        chain = (_RELU, *follower.post_ops)
    elif node.kind in _WITH_RESIDUAL and (other := _added_to(node, follower, ir)) is not None:
        chain = (PostOpUse("binary", "add", value=other), *follower.post_ops)
    else:
        return None
    post_ops = (*node.post_ops, *chain)
    if sum(post_op.kind == "binary" for post_op in post_ops) > 1:
        return None
    return replace(node, outputs=follower.outputs, post_ops=post_ops)


def _is_float32(node: Node, follower: Node, ir: GraphIR) -> bool:
    """Return whether neither a node nor its follower rounds to another type."""
    return ir.values[node.output].dtype == ir.values[follower.output].dtype == "f32"


def _is_relu(node: Node) -> bool:
    return node.kind == "eltwise" and node.attrs["algorithm"] == "relu" and node.attrs["alpha"] == 0.0


def _added_to(node: Node, follower: Node, ir: GraphIR) -> int | None:
    """Return the other operand if ``follower`` adds two tensors of one shape, one of them ``node``'s result."""
    is_add = (follower.kind == "sum" and "scales" not in follower.attrs) or (
        follower.kind == "binary" and follower.attrs["algorithm"] == "add"
    )
    if not is_add or len(follower.inputs) != 2:
        return None
    first, second = follower.inputs
    other = second if first == node.output else first
    # A constant keeps its row-major layout; the operand of a post-op needs the layout of the result.
    same_shape = ir.values[other] == ir.values[node.output] == ir.values[follower.output]
    return other if same_shape and other not in ir.constants else None
