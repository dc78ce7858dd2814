"""Attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ..call import NodeCall, Operator
from ..tensors import Operand, dtype_of


def attention(call: NodeCall) -> tuple[Operand | None, ...]:
    """Compute attention by one operation; the function that ONNX defines does what it leaves out."""
    if 3 in call.outputs or call.number("softcap", 0.0) or call.has(6):
        raise call.unsupported("softcap, nonpad_kv_seqlen and the output qk_matmul_output are not supported")
    if "softmax_precision" in call.attrs or any(
        call.integer(f"{side}_window_size", -1) >= 0 for side in ("left", "right")
    ):
        raise call.unsupported("softmax_precision and windows are not supported")
    m = call.math
    query, key, value = (call.real(index) for index in range(3))
    joined = len(query.shape) == 3
    if joined:
        heads, groups = call.integer("q_num_heads"), call.integer("kv_num_heads")
        query = _heads(call, query, heads)
        key, value = (_heads(call, each, groups) for each in (key, value))
    past = 0
    if call.has(4) and call.has(5):
        past = call.shape(4)[2]
        key, value = (m.concat([call.real(index), each], 2) for index, each in ((4, key), (5, value)))
    if len({len(each.shape) for each in (query, key, value)} | {4}) != 1:
        raise call.malformed("expect a query, keys and values of 3 or 4 dimensions each")
    rows, keys = query.shape[2], key.shape[2]
    causal = bool(call.integer("is_causal", 0))
    mask = call.optional(3)
    if mask is not None and mask.shape[-1] < keys:
        raise call.unsupported("a mask for fewer keys than there are")
    # The operation lets the last query see all keys; without a cache ONNX lets query i see key i.
    if causal and keys - rows != past:
        call.folding.book((rows, keys), np.dtype(np.bool_))
        seen = np.arange(keys)[None, :] <= np.arange(rows)[:, None] + past
        if mask is None:
            mask = seen
        elif dtype_of(mask) == "bool":
            mask = m.binary(mask, seen, "min")
        else:
            mask = m.select(seen, mask, m.number(-math.inf, mask))
        causal = False
    scale = call.number("scale") if "scale" in call.attrs else None
    result: Operand = call.graph.attention(
        m.value(query),
        m.value(key),
        m.value(value),
        None if mask is None else m.value(mask),
        causal,
        scale,
        name=call.name,
    )
    if joined:
        batch, heads, _, width = result.shape
        result = m.reshape(m.transpose(result, (0, 2, 1, 3)), (batch, rows, heads * width))
    return result, key, value


def _heads(call: NodeCall, operand: Operand, heads: int) -> Operand:
    """Cut the last of three dimensions into heads, and move these before the rows."""
    batch, rows, width = operand.shape
    if heads < 1 or width % heads:
        raise call.malformed(f"{heads} heads do not divide {width}")
    apart = call.math.reshape(operand, (batch, rows, heads, width // heads))
    return call.math.transpose(apart, (0, 2, 1, 3))


OPERATORS: Final[Mapping[str, Operator]] = {"Attention": attention}
