"""Turn a choice between scores and minus infinity before a softmax into the addition of a mask."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from poolrt.workers.desc import MemoryDesc

from ..constant import Constant, make_constant
from ..ir import GraphIR, Node
from .rewriter import Rewriter, only_reader

#: A number at most as great as this absorbs every score of less than 1e22 that is added to it.
_LOWEST: Final = -1e30


def add_masks(ir: GraphIR) -> GraphIR:
    """Replace the choice of a score or a very low number, as of PyTorch's ``masked_fill``, by the addition of 0 or that number.

    A later pass finds attention then. Limitation: a masked score that is NaN or infinite gives NaN then.
    """
    new = Rewriter(ir)
    readers, leaving = ir.readers(), ir.output_values()
    products = {node.output for node in ir.nodes if node.kind in ("matmul", "eltwise", "binary", "sum")}
    masks: dict[tuple[int, float, bool], int] = {}
    for node in ir.nodes:
        softmax = only_reader(node.output, readers, leaving) if node.kind == "select" else None
        choice = None
        if softmax is not None and softmax.kind == "softmax" and not (node.post_ops or node.quantisation):
            choice = _choice(node, ir)
        if choice is None or choice[0] not in products:
            new.nodes.append(node)
            continue
        scores, lowest, keeps = choice
        key = node.inputs[0], lowest, keeps
        if key not in masks:
            masks[key] = _append_mask(new, node, lowest, keeps, ir)
        attrs = {"algorithm": "add"}
        new.nodes.append(Node("binary", node.name, (scores, masks[key]), node.outputs, attrs, engine=node.engine))
    return new.finish()


def _choice(node: Node, ir: GraphIR) -> tuple[int, float, bool] | None:
    """Return the scores, the low number, and whether scores are kept where the condition is true."""
    condition, *values = node.inputs
    if ir.values[condition].dtype != "bool" or ir.values[node.output].dtype != "f32" or node.implementation:
        return None
    for scores, number, keeps in ((*values, True), (*values[::-1], False)):
        constant = ir.constants.get(number)
        if constant is None or math.prod(constant.dims) != 1 or ir.values[scores] != ir.values[node.output]:
            continue
        lowest = float(constant.float64().reshape(-1)[0])
        smaller = math.prod(ir.values[condition].dims) < math.prod(ir.values[scores].dims)
        if lowest <= _LOWEST and (smaller or condition in ir.constants):
            return scores, lowest, bool(keeps)
    return None


def _append_mask(new: Rewriter, node: Node, lowest: float, keeps: bool, ir: GraphIR) -> int:
    """Add the constant that is 0 where scores are kept and low elsewhere, or the node that computes it."""
    condition = node.inputs[0]
    dims = ir.values[condition].dims
    zero, low = np.float32(0), np.float32(lowest)
    known = ir.constants.get(condition)
    if known is not None:
        return new.constant(make_constant(np.where(known.to_array(), *((zero, low) if keeps else (low, zero)))))
    numbers: list[Constant] = [make_constant(np.full((1,) * len(dims), each)) for each in (zero, low)]
    given = [new.constant(each) for each in (numbers if keeps else numbers[::-1])]
    mask = new.value(MemoryDesc(dims, "f32"))
    new.nodes.append(Node("select", f"{node.name}/mask", (condition, *given), (mask,), node.attrs, engine=node.engine))
    return mask
