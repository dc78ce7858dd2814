"""Turn batches of products that share their weights into one product."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import MemoryDesc

from ..ir import GraphIR, Node
from .rewriter import Rewriter


def join_batches(ir: GraphIR) -> GraphIR:
    """Replace each matmul of rank 3 or more whose weights (and bias, if any) are the same for all of the batch."""
    new = Rewriter(ir)
    for node in ir.nodes:
        if node.kind != "matmul" or node.quantisation or node.post_ops or not _shares_weights(node, ir):
            new.nodes.append(node)
            continue
        dst = ir.values[node.output]
        rows = math.prod(dst.dims[:-1])
        inputs = []
        for value, what in zip(node.inputs, ("src", "weights", "bias"), strict=False):
            desc = ir.values[value]
            flat = (rows if what == "src" else desc.dims[-2], desc.dims[-1])
            inputs.append(new.value(MemoryDesc(flat, desc.dtype)))
            new.nodes.append(_reshape(f"{node.name}/{what}", value, inputs[-1], flat))
        product = new.value(MemoryDesc((rows, dst.dims[-1]), dst.dtype))
        new.nodes.append(replace(node, inputs=tuple(inputs), outputs=(product,)))
        new.nodes.append(_reshape(f"{node.name}/dst", product, node.output, dst.dims))
    return new.finish()


def _shares_weights(node: Node, ir: GraphIR) -> bool:
    src, *rest = (ir.values[value].dims for value in node.inputs)
    return len(src) > 2 and all(math.prod(dims[:-2]) == 1 for dims in rest) and all(d[-2] == 1 for d in rest[1:])


def _reshape(name: str, source: int, result: int, dims: tuple[int, ...]) -> Node:
    return Node("reshape", name, (source,), (result,), {"shape": dims, "axes": ()})
