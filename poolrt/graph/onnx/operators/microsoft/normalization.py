"""Normalisations of sums and of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...tensors import Operand


def normalize(call: NodeCall, source: Operand, scale: Operand, shift: Operand | None, kind: str) -> Operand:
    """Normalise over the last dimension: ``layer`` or ``rms``."""
    m = call.math
    value, epsilon = m.value(source), call.number("epsilon", 1e-12)
    scale = m.cast(scale, "float32")
    if kind == "rms":
        return call.graph.rms_normalization(value, scale, epsilon=epsilon, name=call.name)
    shift = None if shift is None else m.cast(shift, "float32")
    return call.graph.layer_normalization(value, scale, shift, epsilon=epsilon, name=call.name)


def skip(kind: str) -> Operator:
    """Return the operator that adds ``skip`` and a bias, and normalises the sum, which is the fourth result."""

    def operator(call: NodeCall) -> tuple[Operand | None, ...]:
        if not call.outputs.isdisjoint((1, 2)):
            raise call.unsupported("its outputs of statistics are used")
        bias = call.optional(4 if kind == "layer" else 3)
        total = call.math.binary(call.real(0), call.real(1), "add")
        if bias is not None:
            total = call.math.binary(total, bias, "add")
        shift = call.optional(3) if kind == "layer" else None
        return normalize(call, total, call.real(2), shift, kind), None, None, total

    return operator


def embed(call: NodeCall) -> tuple[Operand | None, ...]:
    """Add up the embeddings of words, positions and segments, and normalise; count the words that a mask keeps."""
    m, (batch, length) = call.math, call.shape(0)
    words = m.take(call.real(2), call.tensor(0), 0)
    if call.has(8):
        positions = m.take(call.real(3), call.tensor(8), 0)
    else:
        positions = m.slice(call.real(3), [0], [length], [0], [1])
    total = m.binary(words, positions, "add")
    if call.has(1) and call.has(4):
        total = m.binary(total, m.take(call.real(4), call.tensor(1), 0), "add")
    counts: Operand = np.zeros((batch,), np.int32)
    if call.has(7):
        # The number of words before the first 0 of the mask would differ; ONNX Runtime counts the ones.
        counts = m.cast(m.reduce(m.cast(call.tensor(7), "int32"), "sum", (1,), False), "int32")
    return normalize(call, total, call.real(5), call.real(6), "layer"), counts, total


OPERATORS: Final[Mapping[str, Operator]] = {
    "SkipLayerNormalization": skip("layer"),
    "SkipSimplifiedLayerNormalization": skip("rms"),
    "EmbedLayerNormalization": embed,
}
