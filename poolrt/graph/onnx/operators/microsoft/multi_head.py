"""Attention of queries, keys and values that are projected before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...call import NodeCall, Operator
from ...tensors import Operand, shape_of
from .heads import Options, attend, join_heads, number_of_heads, padding_mask, scale_of, split_heads


def multi_head_attention(call: NodeCall) -> tuple[Operand | None, ...]:
    """Add a bias, join what was computed before, and compute attention."""
    if call.has(8) or call.has(9):
        raise call.unsupported("past_sequence_length and cache_indirection (a shared buffer) are not supported")
    m = call.math
    query, key, value = _with_bias(call, *_operands(call))
    if call.has(6) != call.has(7):
        raise call.malformed("expect both past_key and past_value, or neither")
    if call.has(6):
        key, value = (m.concat([call.real(index), each], 2) for index, each in ((6, key), (7, value)))
    mask = call.optional(5)
    if call.has(4):
        added = padding_mask(call, call.tensor(4), query.shape[0], key.shape[2])
        mask = added if mask is None else m.binary(mask, added, "add")
    causal = bool(call.integer("unidirectional", 0))
    options = Options(scale_of(call, query.shape[3]), mask, causal, scores=3 in call.outputs)
    found, scores = attend(call, query, key, value, options)
    return join_heads(call, found), key, value, scores


def _operands(call: NodeCall) -> tuple[Operand, Operand, Operand]:
    """Return queries, keys and values as (B, H, S, D), from three tensors or from one or two that pack them."""
    heads, query = number_of_heads(call), call.real(0)
    if len(query.shape) == 5:
        first, second, third = _unpack(call, query, 3)
        return first, second, third
    query = split_heads(call, query, heads)
    key = call.real(1)
    if len(key.shape) == 5:
        first, second = _unpack(call, key, 2)
        return query, first, second
    value = call.real(2)
    if len(key.shape) == 4:
        return query, key, value
    return query, split_heads(call, key, heads), split_heads(call, value, heads)


def _unpack(call: NodeCall, packed: Operand, count: int) -> list[Operand]:
    """Return the tensors of (B, S, H, count, D), each as (B, H, S, D)."""
    m = call.math
    if packed.shape[3] != count:
        raise call.malformed(f"expect {count} tensors in one of shape {tuple(packed.shape)}")
    return [m.transpose(m.squeeze(m.slice(packed, [i], [i + 1], [3], [1]), (3,)), (0, 2, 1, 3)) for i in range(count)]


def _with_bias(call: NodeCall, *operands: Operand) -> list[Operand]:
    """Add to each of the queries, keys and values its part of the bias."""
    if not call.has(3):
        return list(operands)
    m, found, first = call.math, list[Operand](), 0
    is_encoder = call.has(1) and len(call.shape(1)) == 4
    for number, each in enumerate(operands):
        _, heads, _, depth = shape_of(each)
        part = m.slice(call.real(3), [first], [first + heads * depth], [0], [1])
        # Keys and values of an encoder have their bias already.
        added = m.reshape(part, (1, heads, 1, depth))
        found.append(each if number and is_encoder else m.binary(each, added, "add"))
        first += heads * depth
    return found


OPERATORS: Final[Mapping[str, Operator]] = {"MultiHeadAttention": multi_head_attention}
