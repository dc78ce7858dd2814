"""Recognise shuffles of channels in graphs that spell them as reshape, transpose and reshape."""

from __future__ import annotations

from dataclasses import replace

from ..ir import GraphIR, Node
from .rewriter import Rewriter, only_reader


def use_shuffle(ir: GraphIR) -> GraphIR:
    """Replace a reshape of channels to two dimensions, their transpose and the reshape back by one shuffle.

    So the tensor need not become row-major, and is moved once.
    """
    producers = {value: node for node in ir.nodes for value in node.outputs}
    readers, leaving = ir.readers(), ir.output_values()

    def before(node: Node, kind: str) -> Node | None:
        """Return the node of a kind whose result another one reads alone."""
        found = producers.get(node.inputs[0])
        alone = found is not None and only_reader(found.output, readers, leaving) is node
        return found if alone and found is not None and found.kind == kind else None

    def match(last: Node) -> tuple[Node, Node] | None:
        transpose = before(last, "transpose") if last.kind == "reshape" else None
        first = before(transpose, "reshape") if transpose is not None else None
        if transpose is None or first is None:
            return None
        dims, parts = ir.values[last.output].dims, ir.values[first.output].dims
        swapped = (0, 2, 1, *range(3, len(parts)))
        same = ir.values[first.inputs[0]].dims == dims and len(dims) > 1 and len(parts) == len(dims) + 1
        fits = same and parts[:1] + parts[3:] == dims[:1] + dims[2:] and transpose.integers("perm") == swapped
        return (first, transpose) if fits and all(dims) else None

    found = {node.output: pair for node in ir.nodes if (pair := match(node)) is not None}
    if not found:
        return ir
    replaced = {node.output for pair in found.values() for node in pair}
    new = Rewriter(ir)
    for node in ir.nodes:
        if node.output in found:
            first, _ = found[node.output]
            attrs = {"axis": 1, "group_size": ir.values[first.output].dims[2]}
            new.nodes.append(replace(node, kind="shuffle", inputs=first.inputs, attrs=attrs))
        elif node.output not in replaced:
            new.nodes.append(node)
    return new.finish()
