"""Turn products with constant matrices into inner products, whose weights can be packed ahead of time.

Those of whole numbers beyond bytes stay what they are: inner products are computed in float64, matmul is exact.
"""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ..ir import GraphIR
from .rewriter import Rewriter

#: Types of src that inner products have native implementations for.
_TYPES: Final = ("f64", "f32", "f16", "bf16", "s8", "u8")


def use_inner_product(ir: GraphIR) -> GraphIR:
    """Replace each matmul of rank 2 whose weights (and bias, if any) are constants."""
    new = Rewriter(ir)
    for node in ir.nodes:
        src, *rest = node.inputs
        constants = [ir.constants[value] for value in rest if value in ir.constants]
        simple = node.kind == "matmul" and ir.values[src].ndims == 2 and not node.quantisation
        if simple and ir.values[src].dtype in _TYPES and len(constants) == len(rest):
            weights, *bias = constants
            turned = [weights.transpose((1, 0)), *(b.reshape((b.dims[-1],)) for b in bias)]
            inputs = (src, *(new.constant(constant) for constant in turned))
            node = replace(node, kind="inner_product", inputs=inputs)
        new.nodes.append(node)
    return new.finish()
