"""Attention with the projection of its input, in float32 or with weights of 8-bit integers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from ...call import NodeCall, Operator
from ...tensors import Operand, shape_of
from ..integer_products import integer_product
from .heads import Options, attend, join_heads, number_of_heads, padding_mask, scale_of, split_heads


def attention(call: NodeCall) -> tuple[Operand | None, ...]:
    """Project the input to queries, keys and values, and compute attention."""
    if call.has(6):
        raise call.unsupported("past_sequence_length (a shared buffer) is not supported")
    projected = call.math.matmul(call.real(0), call.real(1))
    if call.has(2):
        projected = call.math.binary(projected, call.real(2), "add")
    return _attend(call, projected, 3, 4, call.optional(5))


def quantized_attention(call: NodeCall) -> tuple[Operand | None, ...]:
    """Project by a product of integers, and compute attention in float32."""
    left, right = (call.tensor(0), call.optional(6)), (call.tensor(1), call.optional(7))
    projected = integer_product(call, *left, *right, (call.tensor(3), call.tensor(4)))
    if projected is None:
        raise call.unsupported("several zero points of the input are not supported")
    return _attend(call, call.math.binary(projected, call.tensor(2), "add"), 5, 8, None)


def _attend(
    call: NodeCall, projected: Operand, mask_index: int, past_index: int, bias: Operand | None
) -> tuple[Operand | None, ...]:
    if call.integer("do_rotary", 0) or call.integer("past_present_share_buffer", 0):
        raise call.unsupported("do_rotary and past_present_share_buffer are not supported")
    m, heads = call.math, number_of_heads(call)
    batch, _, width = shape_of(projected)
    sizes = call.integers("qkv_hidden_sizes", (width // 3,) * 3)
    if len(sizes) != 3 or sum(sizes) != width:
        raise call.malformed(f"hidden sizes {sizes} do not fit {width} columns of weights")
    ends = (0, sizes[0], sizes[0] + sizes[1], width)
    query, key, value = (
        split_heads(call, m.slice(projected, [first], [last], [2], [1]), heads) for first, last in pairwise(ends)
    )
    if call.has(past_index):
        past = call.real(past_index)
        if len(past.shape) != 5:
            raise call.malformed(f"past: expect five dimensions, got {tuple(past.shape)}")
        old = [m.squeeze(m.slice(past, [i], [i + 1], [0], [1]), (0,)) for i in (0, 1)]
        key, value = (m.concat(pair, 2) for pair in zip(old, (key, value), strict=True))
    present = None
    if 1 in call.outputs:
        present = m.concat([m.unsqueeze(each, (0,)) for each in (key, value)], 0)
    mask = bias
    if call.has(mask_index):
        added = padding_mask(call, call.tensor(mask_index), batch, key.shape[2])
        mask = added if mask is None else m.binary(mask, added, "add")
    causal = bool(call.integer("unidirectional", 0))
    found, _ = attend(call, query, key, value, Options(scale_of(call, query.shape[3]), mask, causal))
    return join_heads(call, found), present


OPERATORS: Final[Mapping[str, Operator]] = {"Attention": attention, "QAttention": quantized_attention}
