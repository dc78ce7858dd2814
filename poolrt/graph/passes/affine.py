"""Merge operations that scale and shift each channel by constants: into one batch normalization, or into weights.

Sums and products of constants are computed in float64 and rounded to float32 once, when they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ..constant import Constant
from ..ir import GraphIR, Node
from .rewriter import Rewriter, only_reader

_BY_WEIGHTS = ("convolution", "inner_product")


@dataclass(frozen=True, slots=True)
class Affine:
    """x -> x * scale + shift for each channel (dimension 1)."""

    scale: NDArray[np.float64]
    shift: NDArray[np.float64]

    def then(self, other: Affine) -> Affine:
        """Return this, followed by another."""
        return Affine(self.scale * other.scale, self.shift * other.scale + other.shift)


_Absorb: TypeAlias = Callable[[Node, Affine, Rewriter], Node]
_Recognise: TypeAlias = Callable[[Node, int, GraphIR], Affine | None]


def merge_affine(ir: GraphIR) -> GraphIR:
    """Merge per-channel multiplications and additions that follow a batch normalization into its scale and shift."""
    return _absorb_followers(ir, _into_batch_normalization, followers=_recognise_binary, roots=("batch_normalization",))


def fold_affine(ir: GraphIR) -> GraphIR:
    """Fold batch normalizations and per-channel arithmetic into the weights and bias of the node that they follow."""
    return _absorb_followers(ir, _into_weights, followers=_recognise_any, roots=_BY_WEIGHTS)


def _absorb_followers(ir: GraphIR, absorb: _Absorb, followers: _Recognise, roots: tuple[str, ...]) -> GraphIR:
    if not any(node.kind in roots for node in ir.nodes):
        return ir
    new = Rewriter(ir)
    readers, leaving = ir.readers(), ir.output_values()
    absorbed: set[int] = set()
    for node in ir.nodes:
        if node.output in absorbed:
            continue
        merged, last = None, node
        if node.kind in roots and _is_plain(node, ir) and all(value in ir.constants for value in node.inputs[1:]):
            while (reader := only_reader(last.output, readers, leaving)) is not None:
                step = followers(reader, last.output, ir)
                if step is None or (reader.engine, reader.implementation) != (node.engine, node.implementation):
                    break
                merged = step if merged is None else merged.then(step)
                last = reader
                absorbed.add(reader.output)
        new.nodes.append(node if merged is None else replace(absorb(node, merged, new), outputs=last.outputs))
    return new.finish()


def _into_batch_normalization(node: Node, step: Affine, new: Rewriter) -> Node:
    src, mean, variance, scale, shift = node.inputs
    scale64, shift64 = new.constants[scale].float64(), new.constants[shift].float64()
    merged = Affine(scale64, shift64).then(step)
    return replace(
        node,
        inputs=(src, mean, variance, new.constant(Constant(merged.scale)), new.constant(Constant(merged.shift))),
    )


def _into_weights(node: Node, step: Affine, new: Rewriter) -> Node:
    src, weights, *bias = node.inputs
    first = new.constants[bias[0]].float64() if bias else np.zeros(step.scale.shape)
    scaled = new.constant(new.constants[weights].multiply(step.scale))
    return replace(node, inputs=(src, scaled, new.constant(Constant(first * step.scale + step.shift))))


def _recognise_any(node: Node, source: int, ir: GraphIR) -> Affine | None:
    return _recognise_batch_normalization(node, source, ir) or _recognise_binary(node, source, ir)


def _recognise_batch_normalization(node: Node, source: int, ir: GraphIR) -> Affine | None:
    if node.kind != "batch_normalization" or node.inputs[0] != source or not _is_plain(node, ir):
        return None
    constants = [ir.constants.get(value) for value in node.inputs[1:]]
    given = [constant.float64() for constant in constants if constant is not None]
    if len(given) != len(constants) or len(given) != 4:
        return None
    mean, variance, scale, shift = given
    factor = scale / np.sqrt(variance + node.number("epsilon"))
    return Affine(factor, shift - mean * factor)


def _recognise_binary(node: Node, source: int, ir: GraphIR) -> Affine | None:
    if node.kind != "binary" or not _is_plain(node, ir) or ir.values[node.output] != ir.values[source]:
        return None
    first, second = node.inputs
    operand = _per_channel(second if first == source else first, ir.values[source].dims, ir)
    if operand is None:
        return None
    ones, zeros = np.ones_like(operand), np.zeros_like(operand)
    match node.attrs["algorithm"]:
        case "add":
            return Affine(ones, operand)
        case "mul":
            return Affine(operand, zeros)
        case "sub":
            return Affine(ones, -operand) if first == source else Affine(-ones, operand)
        case "div" if first == source and operand.all():
            return Affine(1 / operand, zeros)
        case _:
            return None


def _is_plain(node: Node, ir: GraphIR) -> bool:
    """Return whether a node has only float32 operands, and rounds its result once."""
    of_float32 = all(ir.values[value].dtype == "f32" for value in (*node.inputs, *node.outputs))
    statistics = node.kind != "batch_normalization" or len(node.inputs) == 5
    return of_float32 and statistics and not (node.post_ops or node.quantisation)


def _per_channel(value: int, dims: tuple[int, ...], ir: GraphIR) -> NDArray[np.float64] | None:
    """Return a constant that is broadcast over all but the channels of ``dims`` as one number a channel."""
    constant = ir.constants.get(value)
    if constant is None or len(dims) < 2 or any(size != 1 for axis, size in enumerate(constant.dims) if axis != 1):
        return None
    return np.broadcast_to(constant.float64().reshape(-1), (dims[1],))
