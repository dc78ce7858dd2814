"""Remove nodes and constants that no output depends on."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ..ir import GraphIR, Node


def remove_dead(ir: GraphIR) -> GraphIR:
    """Keep the nodes and constants that outputs need, and all inputs, because these are the graph's interface."""
    live = set(ir.output_values())
    kept: list[Node] = []
    for node in reversed(ir.nodes):
        if not live.isdisjoint(node.outputs):
            live.update(node.uses())
            kept.append(node)
    constants = {value: constant for value, constant in ir.constants.items() if value in live}
    live.update(value for _, value in ir.inputs)
    live.update(value for node in kept for value in node.outputs)
    values = {value: desc for value, desc in ir.values.items() if value in live}
    return replace(ir, values=values, constants=constants, nodes=tuple(reversed(kept)))
