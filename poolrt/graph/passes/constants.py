"""Fold views of constants into constants."""

from __future__ import annotations

from ..ir import GraphIR
from .rewriter import Rewriter


def fold_constants(ir: GraphIR) -> GraphIR:
    """Turn every reshape and transpose of a constant into a constant: a NumPy view where the array allows one."""
    new = Rewriter(ir)
    for node in ir.nodes:
        source = new.constants.get(node.inputs[0]) if node.kind in ("reshape", "transpose") else None
        if source is None:
            new.nodes.append(node)
        elif node.kind == "reshape":
            new.constants[node.output] = source.reshaped(ir.values[node.output])
        else:
            new.constants[node.output] = source.transposed(node.permutation())
    return new.finish()
