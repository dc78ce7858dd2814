"""Rotary embeddings of positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...tensors import Operand
from ..rotary import heads_of, rotate_heads


def angles(call: NodeCall, cache: Operand, positions: Operand) -> Operand:
    """Return the rows of a table at positions (B, S) as (B, 1, S, R)."""
    return call.math.unsqueeze(call.math.take(cache, positions, 0), (1,))


def rotary_embedding(call: NodeCall) -> Operand:
    """Rotate each head of the input by the angles of its positions."""
    if call.integer("is_packed_batching", 0):
        raise call.unsupported("is_packed_batching=1 is not supported")
    given, width = call.integer("num_heads", 0), 2 * call.shape(2)[1]
    joined = len(call.shape(0)) == 3
    if joined and call.integer("rotary_embedding_dim", 0) and not given:
        raise call.malformed("rotary_embedding_dim needs num_heads")
    source, rows = heads_of(call, given or (call.shape(0)[2] // width if joined else 0))
    batch = source.shape[0]
    positions, m = call.tensor(1), call.math
    if len(positions.shape) == 1:
        positions = m.binary(positions, np.arange(rows, dtype=np.int64).reshape(1, rows), "add")
    elif tuple(positions.shape) != (batch, rows):
        raise call.malformed(f"position_ids: expect ({batch}, {rows}), got {tuple(positions.shape)}")
    cosine, sine = (m.take(call.real(index), positions, 0) for index in (2, 3))
    result = rotate_heads(call, source, cosine, sine, joined)
    scale = call.number("scale", 1.0)
    if scale != 1.0:
        result = m.eltwise(result, "linear", scale)
    return m.reshape(result, call.shape(0)) if joined else result


OPERATORS: Final[Mapping[str, Operator]] = {"RotaryEmbedding": rotary_embedding}
