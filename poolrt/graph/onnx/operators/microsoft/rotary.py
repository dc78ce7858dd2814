"""Rotary embeddings of positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...tensors import Operand, shape_of
from .heads import join_heads, split_heads


def rotate(call: NodeCall, x: Operand, cosine: Operand, sine: Operand, interleaved: bool) -> Operand:
    """Rotate pairs of the first 2 R elements of (B, H, S, D) by angles whose cosines and sines are (B or 1, 1, S, R)."""
    m = call.math
    sizes, half = shape_of(x), shape_of(cosine)[-1]
    depth = sizes[-1]
    if 2 * half > depth:
        raise call.malformed(f"{half} angles do not fit heads of {depth}")
    turned = m.slice(x, [0], [2 * half], [3], [1])
    if interleaved:
        pairs = m.reshape(turned, (*sizes[:-1], half, 2))
        first, second = (m.reshape(m.slice(pairs, [i], [i + 1], [4], [1]), (*sizes[:-1], half)) for i in (0, 1))
    else:
        first, second = (m.slice(turned, [i * half], [(i + 1) * half], [3], [1]) for i in (0, 1))
    real = m.binary(m.binary(first, cosine, "mul"), m.binary(second, sine, "mul"), "sub")
    imaginary = m.binary(m.binary(second, cosine, "mul"), m.binary(first, sine, "mul"), "add")
    if interleaved:
        joined = m.concat([m.unsqueeze(each, (4,)) for each in (real, imaginary)], 4)
        parts = [m.reshape(joined, (*sizes[:-1], 2 * half))]
    else:
        parts = [real, imaginary]
    if 2 * half < depth:
        parts.append(m.slice(x, [2 * half], [depth], [3], [1]))
    return parts[0] if len(parts) == 1 else m.concat(parts, 3)


def angles(call: NodeCall, cache: Operand, positions: Operand) -> Operand:
    """Return the rows of a table at positions (B, S) as (B, 1, S, R)."""
    return call.math.unsqueeze(call.math.take(cache, positions, 0), (1,))


def rotary_embedding(call: NodeCall) -> Operand:
    """Rotate each head of the input by the angles of its positions."""
    m, source = call.math, call.real(0)
    if call.integer("is_packed_batching", 0):
        raise call.unsupported("is_packed_batching=1 is not supported")
    joined = len(source.shape) == 3
    if joined:
        depth = 2 * call.shape(2)[1]
        given = call.integer("num_heads", 0)
        if call.integer("rotary_embedding_dim", 0) and not given:
            raise call.malformed("rotary_embedding_dim needs num_heads")
        source = split_heads(call, source, given or call.shape(0)[2] // depth)
    batch, _, rows, _ = shape_of(source)
    positions = call.tensor(1)
    if len(positions.shape) == 1:
        positions = m.binary(positions, np.arange(rows, dtype=np.int64).reshape(1, rows), "add")
    elif tuple(positions.shape) != (batch, rows):
        raise call.malformed(f"position_ids: expect ({batch}, {rows}), got {tuple(positions.shape)}")
    cosine, sine = (angles(call, call.real(index), positions) for index in (2, 3))
    result = rotate(call, source, cosine, sine, bool(call.integer("interleaved", 0)))
    scale = call.number("scale", 1.0)
    if scale != 1.0:
        result = m.eltwise(result, "linear", scale)
    return join_heads(call, result) if joined else result


OPERATORS: Final[Mapping[str, Operator]] = {"RotaryEmbedding": rotary_embedding}
