"""Remove nodes that change nothing, and all but the last of consecutive reshapes."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ..ir import Attribute, GraphIR, Node
from .rewriter import Rewriter


def remove_identities(ir: GraphIR) -> GraphIR:
    """Make the readers of a node that returns its source read the source itself."""
    new = Rewriter(ir)
    sources: dict[int, int] = {}
    for node in ir.nodes:
        node = new.apply_renames(node)
        if node.kind == "reshape":
            source = sources.get(node.inputs[0], node.inputs[0])
            if source != node.inputs[0]:
                attrs: dict[str, Attribute] = {"shape": ir.values[node.output].dims, "axes": ()}
                node = replace(node, inputs=(source,), attrs=attrs)
            sources[node.output] = source
        if is_identity(node, ir):
            new.rename(node.output, node.inputs[0])
        else:
            new.nodes.append(node)
    return new.finish()


def is_identity(node: Node, ir: GraphIR) -> bool:
    """Return whether a node returns its source unchanged."""
    if node.post_ops or node.quantisation or ir.values[node.inputs[0]] != ir.values[node.output]:
        return False
    match node.kind:
        case "transpose":
            perm = node.integers("perm")
            return perm == tuple(range(len(perm)))
        case "eltwise":
            return (node.attrs["algorithm"], node.attrs["alpha"], node.attrs["beta"]) == ("linear", 1.0, 0.0)
        case "sum":
            return len(node.inputs) == 1 and "scales" not in node.attrs
        case "concat":
            return len(node.inputs) == 1
        case "reshape" | "slice" | "expand":
            return True
        case _:
            return False
