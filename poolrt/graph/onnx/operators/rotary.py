"""Rotary embeddings of positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..call import NodeCall, Operator
from ..tensors import Operand, dtype_of, shape_of


def rotary_embedding(call: NodeCall) -> Operand:
    """Rotate each head of the input by the angles of its positions, or by the angles that are given for each row."""
    joined = len(call.shape(0)) == 3
    heads = call.integer("num_heads", 0)
    if joined and not heads:
        raise call.malformed("an input of rank 3 needs num_heads")
    source, rows = heads_of(call, heads)
    batch, depth, m = source.shape[0], source.shape[3], call.math
    pairs = (call.integer("rotary_embedding_dim", 0) or depth) // 2
    tables = [call.real(1), call.real(2)]
    if call.has(3):
        positions = call.tensor(3)
        if tuple(positions.shape) != (batch, rows):
            raise call.malformed(f"position_ids: expect ({batch}, {rows}), got {tuple(positions.shape)}")
        tables = [m.take(table, positions, 0) for table in tables]
    for table in tables:
        if tuple(table.shape) != (batch, rows, pairs):
            raise call.malformed(f"caches: expect angles ({batch}, {rows}, {pairs}), got {tuple(table.shape)}")
    result = rotate_heads(call, source, tables[0], tables[1], joined)
    return m.reshape(result, call.shape(0)) if joined else result


def heads_of(call: NodeCall, heads: int) -> tuple[Operand, int]:
    """Return operand 0 of rank 4, (B, S, H, D) if its heads are joined, else (B, H, S, D), and S."""
    source, sizes = call.real(0), call.shape(0)
    if len(sizes) == 4:
        return source, sizes[2]
    if len(sizes) != 3:
        raise call.malformed(f"expect an input of rank 3 or 4, got {sizes}")
    batch, rows, width = sizes
    if heads < 1 or width % heads:
        raise call.malformed(f"{heads} heads do not divide {width}")
    return call.math.reshape(source, (batch, rows, heads, width // heads)), rows


def rotate_heads(call: NodeCall, source: Operand, cosine: Operand, sine: Operand, joined: bool) -> Operand:
    """Rotate what `heads_of` returns by angles (B, S, R)."""
    wide = [call.math.unsqueeze(each, (2 if joined else 1,)) for each in (cosine, sine)]
    return rotate(call, source, wide[0], wide[1], bool(call.integer("interleaved", 0)))


def rotate(call: NodeCall, x: Operand, cosine: Operand, sine: Operand, interleaved: bool) -> Operand:
    """Rotate pairs of the first 2 R elements of (A, B, C, D) by cosines and sines (A, B, C, R), where any may be 1 but R."""
    m, half, depth = call.math, shape_of(cosine)[-1], shape_of(x)[-1]
    if 2 * half > depth:
        raise call.malformed(f"{half} angles do not fit heads of {depth}")
    source, real, imaginary = (m.value(m.cast(each, dtype_of(x))) for each in (x, cosine, sine))
    return call.graph.rotary(source, real, imaginary, interleaved, name=call.name_part("rotated"))


OPERATORS: Final[Mapping[str, Operator]] = {"RotaryEmbedding": rotary_embedding}
