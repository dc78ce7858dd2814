"""Recognise shuffles of channels that graphs spell as reshape, transpose and reshape, and shuffle as little as can be."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ..constant import Constant
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


def shuffle_less(ir: GraphIR) -> GraphIR:
    """Shuffle the result of a depthwise convolution instead of its source if the result is smaller.

    The convolution has its constant weights in the order that channels had before.
    """
    readers, leaving = ir.readers(), ir.output_values()
    new = Rewriter(ir)
    moved: dict[int, Node] = {}
    for node in ir.nodes:
        reader = only_reader(node.output, readers, leaving) if node.kind == "shuffle" and not node.post_ops else None
        if reader is not None and _shrinks_each_channel(reader, node, ir):
            moved[node.output] = node
        elif node.kind == "convolution" and node.inputs[0] in moved:
            shuffle = moved[node.inputs[0]]
            rows = int(shuffle.number("group_size"))
            constants = [new.constant(_take_back(ir.constants[value], rows)) for value in node.inputs[1:]]
            first = new.value(ir.values[node.output])
            new.nodes.append(replace(node, inputs=(shuffle.inputs[0], *constants), outputs=(first,)))
            new.nodes.append(replace(shuffle, inputs=(first,), outputs=node.outputs))
        else:
            new.nodes.append(node)
    return new.finish() if moved else ir


def _shrinks_each_channel(node: Node, shuffle: Node, ir: GraphIR) -> bool:
    """Return whether a node is a depthwise convolution of a shuffle's result, smaller than that, of constant weights."""
    if node.kind != "convolution" or node.inputs[0] != shuffle.output or node.quantisation:
        return False
    constant = all(value in ir.constants for value in node.inputs[1:])
    alone = all(use.value is None for use in node.post_ops)
    src, dst = ir.values[shuffle.output], ir.values[node.output]
    each = node.attrs.get("groups", 1) == src.dims[1] == dst.dims[1] and src.dtype == dst.dtype
    here = (node.engine, node.implementation) == (shuffle.engine, shuffle.implementation) == ("", "")
    return constant and alone and each and here and shuffle.attrs["axis"] == 1 and 0 < dst.elements < src.elements


def _take_back(constant: Constant, rows: int) -> Constant:
    """Return the rows of a constant in the order before a shuffle with groups of ``rows``."""
    dims = constant.dims
    groups = dims[0] // rows
    return constant.reshape((rows, groups, *dims[1:])).transpose((1, 0, *range(2, len(dims) + 1))).reshape(dims)
