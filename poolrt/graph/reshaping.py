"""Inference of the shapes of a graph for inputs of other shapes than those that it was built with."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.workers.desc import MemoryDesc

from .errors import GraphError
from .inference.operations import infer, is_view, op_desc
from .ir import GraphIR


def infer_for_inputs(ir: GraphIR, shapes: Sequence[tuple[int, ...]]) -> GraphIR:
    """Return a graph as it was built, for inputs of these shapes in order; constants keep theirs.

    Raises GraphError naming the node whose operands do not fit together.
    """
    values = dict(ir.values)
    for (_, value), dims in zip(ir.inputs, shapes, strict=True):
        values[value] = MemoryDesc(dims, values[value].dtype)
    for node in ir.nodes:
        sources = [values[value] for value in node.inputs]
        dtype = ir.values[node.output].dtype
        try:
            found = infer(node.kind, sources, node.attrs, dtype)
            if not is_view(node.kind):
                node.check_quantisation(op_desc(node.kind, sources, node.attrs, dtype).memories(), values)
        except ValueError as error:
            given = ", ".join(f"{name} {dims}" for (name, _), dims in zip(ir.inputs, shapes, strict=True))
            raise GraphError(f"{node.kind} {node.name!r}, for inputs {given}: {error}") from error
        values.update(zip(node.outputs, found, strict=True))
    return replace(ir, values=values)
