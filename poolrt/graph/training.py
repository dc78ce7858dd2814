"""A graph in training: every operation keeps what its backward operation needs."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import FORWARD
from poolrt.workers.desc.args import argument_name

from .errors import GraphError
from .inference.attributes import attribute_types
from .inference.operands import result_arguments
from .inference.operations import infer, op_desc
from .ir import Attribute, GraphIR, Node
from .passes.rewriter import Rewriter

_GIVEN: Final = "use_global_stats"


def to_training(ir: GraphIR) -> GraphIR:
    """Return a graph as it was built with every operation that has a propagation kind as ``forward_training``.

    Operations that were built with ``is_test`` remain as they are. Batch normalizations use the statistics of the batch instead
    of given ones. Operations keep mean, variance and workspace as outputs named ``<node>.<argument>``. Raises GraphError if the
    graph has such an output.
    """
    new = Rewriter(ir)
    outputs = dict(ir.outputs)
    for node in ir.nodes:
        if "prop" not in attribute_types(node.kind) or node.attrs.get("prop") == FORWARD[0]:
            new.nodes.append(node)
            continue
        node = replace(
            _use_batch_statistics(node), attrs={**_use_batch_statistics(node).attrs, "prop": "forward_training"}
        )
        sources = [ir.values[value] for value in node.inputs]
        dtype = ir.values[node.output].dtype
        count = len(node.outputs)
        kept = [new.value(each) for each in infer(node.kind, sources, node.attrs, dtype)[count:]]
        args = result_arguments(op_desc(node.kind, sources, node.attrs, dtype))[count:]
        for arg, value in zip(args, kept, strict=True):
            name = f"{node.name}.{argument_name(arg)}"
            if name in outputs:
                raise GraphError(f"output {name!r}: the {argument_name(arg)} of node {node.name!r} has this name")
            outputs[name] = value
        new.nodes.append(replace(node, outputs=(*node.outputs, *kept)))
    return new.finish(outputs=outputs.items())


def _use_batch_statistics(node: Node) -> Node:
    """Return a batch normalization without given statistics, any other node as it is."""
    flags = node.attrs.get("flags")
    if node.kind != "batch_normalization" or not isinstance(flags, tuple) or _GIVEN not in flags:
        return node
    src, _, _, *affine = node.inputs
    left: Attribute = tuple(flag for flag in flags if flag != _GIVEN)  # type: ignore[assignment]
    return replace(node, inputs=(src, *affine), attrs={**node.attrs, "flags": left})
