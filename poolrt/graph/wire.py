"""The wire form of a graph: plain data in a message to the coordinator. The data of constants is not in it.

``engine`` and ``fpmath_mode`` are the graph's. ``values`` holds [dims, dtype] by value id, ``inputs`` and ``outputs`` [name, id],
``constants`` [id, bytes], all of them row-major, ``sources`` of large constants [id, `constant_source.describe_source`] if they
may be shared, and ``nodes`` in topological order: [kind, name, [input ids], [output ids], attributes, post-ops, quantisation,
engine, implementation]. Attributes are the operation descriptor's fields that are no memories, and those
that determine the shape of the result: ``axes`` of a reduction, ``sizes`` or ``factors`` of a resampling,
``output_padding`` of a deconvolution. The views ``reshape`` (``shape``, and ``axes`` for sizes of the
source, see `shapes.infer_reshape`), ``expand`` (``shape``), ``transpose`` (``perm``) and ``slice`` (``starts``, ``ends``,
``steps``) are nodes too, as is ``reorder`` (``tag``, empty if the plan may choose).
A post-op is ["eltwise", algorithm, alpha, beta] or ["binary", algorithm, id]; an item of quantisation ["scales" or
"zero_points", argument, mask, id]. An empty engine is the graph's. The name of the implementation begins with the
one given. `wire_parser` reads it.
"""

from __future__ import annotations

from typing import Any

from .constant import Constant
from .ir import Attribute, GraphIR, PostOpUse


def to_wire(ir: GraphIR) -> tuple[dict[str, Any], list[Constant]]:
    """Return the wire form of a graph, and its constants in the order of the wire's ``constants``.

    Values are renumbered: inputs, then constants, then results, each in order of first use. Unused ones are left out.
    """
    numbers: dict[int, int] = {}
    for _, value in ir.inputs:
        numbers[value] = len(numbers)
    read = [value for node in ir.nodes for value in node.uses()] + [value for _, value in ir.outputs]
    constants = list(dict.fromkeys(value for value in read if value in ir.constants))
    for value in (*constants, *(output for node in ir.nodes for output in node.outputs)):
        numbers[value] = len(numbers)
    wire = {
        "name": ir.name,
        "engine": ir.engine,
        "fpmath_mode": ir.fpmath_mode,
        "values": [[list(ir.values[value].dims), ir.values[value].dtype] for value in numbers],
        "inputs": [[name, numbers[value]] for name, value in ir.inputs],
        "outputs": [[name, numbers[value]] for name, value in ir.outputs],
        "constants": [[numbers[value], ir.constants[value].nbytes] for value in constants],
        "nodes": [
            [
                node.kind,
                node.name,
                [numbers[value] for value in node.inputs],
                [numbers[value] for value in node.outputs],
                {name: _plain(attribute) for name, attribute in node.attrs.items()},
                [_post_op(post_op, numbers) for post_op in node.post_ops],
                [[q.kind, q.arg, q.mask, numbers[q.value]] for q in node.quantisation],
                node.engine,
                node.implementation,
            ]
            for node in ir.nodes
        ],
    }
    return wire, [ir.constants[value] for value in constants]


def _post_op(post_op: PostOpUse, numbers: dict[int, int]) -> list[Any]:
    if post_op.value is not None:
        return [post_op.kind, post_op.algorithm, numbers[post_op.value]]
    return [post_op.kind, post_op.algorithm, post_op.alpha, post_op.beta]


def _plain(attribute: Attribute) -> Any:
    return list(attribute) if isinstance(attribute, tuple) else attribute
