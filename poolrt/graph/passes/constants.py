"""Fold views of constants into constants."""

from __future__ import annotations

from ..constant import Constant
from ..inference.movement import resolve_slice
from ..inference.operations import is_view
from ..ir import GraphIR, Node
from .rewriter import Rewriter


def fold_constants(ir: GraphIR) -> GraphIR:
    """Turn every view of a constant into a constant: a NumPy view if the array allows one."""
    new = Rewriter(ir)
    for node in ir.nodes:
        source = new.constants.get(node.inputs[0]) if is_view(node.kind) else None
        if source is None:
            new.nodes.append(node)
        else:
            new.constants[node.output] = _view_constant(source, node, ir.values[node.output].dims)
    return new.finish()


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
