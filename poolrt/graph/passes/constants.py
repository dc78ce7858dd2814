"""Fold views of constants into constants.

A number that is repeated as what a scatter updates stays a view: the scatter writes it as often without reading as many.
"""

from __future__ import annotations

from ..constant import Constant
from ..inference.movement import resolve_slice
from ..inference.operations import is_view
from ..ir import GraphIR, Node
from .rewriter import Rewriter


def fold_constants(ir: GraphIR) -> GraphIR:
    """Turn every view of a constant into a constant: a NumPy view if the array allows one."""
    new = Rewriter(ir)
    updated = _updated_only(ir)
    for node in ir.nodes:
        source = new.constants.get(node.inputs[0]) if is_view(node.kind) else None
        if source is None or (node.kind == "expand" and source.array.size == 1 and node.output in updated):
            new.nodes.append(node)
        else:
            new.constants[node.output] = _view_constant(source, node, ir.values[node.output].dims)
    return new.finish()


def _updated_only(ir: GraphIR) -> set[int]:
    """Return the values that scatters update, and that no other node reads."""
    found = {node.inputs[0] for node in ir.nodes if node.kind == "scatter"}
    if not found:
        return found
    others = {value for node in ir.nodes for value in node.uses()[node.kind == "scatter" :]}
    return found - others - {value for _, value in ir.outputs}


def _view_constant(source: Constant, node: Node, dims: tuple[int, ...]) -> Constant:
    match node.kind:
        case "reshape":
            return source.reshape(dims)
        case "transpose":
            return source.transpose(node.integers("perm"))
        case "slice":
            return source.slice(resolve_slice(source.dims, node.attrs)[0], node.integers("steps"), dims)
        case _:
            return source.expand(dims)
