"""Attention whose heads share keys and values in groups, with a cache of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...tensors import Operand, shape_of
from ..rotary import rotate
from .heads import Options, attend, join_heads, number_of_heads, scale_of, split_heads
from .rotary import angles

#: Inputs and attributes that are refused if they are given, by their names.
_REFUSED_INPUTS: Final = {12: "k_scale", 13: "v_scale", 16: "query_seqlens"}


def group_query_attention(call: NodeCall) -> tuple[Operand | None, ...]:
    """Rotate queries and keys, append keys and values to the cache, and compute causal attention."""
    _refuse(call)
    query, key, value = _operands(call)
    batch, _, rows, depth = shape_of(query)
    total = _total(call)
    past = call.shape(3)[2] if call.has(3) else 0
    if rows == total and past < total:
        past = 0  # the first prompt: what the cache holds is not read
    starts = _starts(call, batch, rows, total, past)
    query, key = _rotated(call, query, key, starts)
    keys, values = (_append(call, index, new, past, total, starts) for index, new in ((3, key), (4, value)))
    options = Options(
        scale_of(call, depth),
        _mask(call, rows, int(keys.shape[2]), starts),
        softcap=call.number("softcap", 0.0),
        sink=_sink(call, query),
        scores=3 in call.outputs and call.integer("qk_output", 0) == 1,
        weights=3 in call.outputs and call.integer("qk_output", 0) == 2,
    )
    found, scores = attend(call, query, keys, values, options)
    return join_heads(call, found), keys, values, scores


def _refuse(call: NodeCall) -> None:
    for index, name in _REFUSED_INPUTS.items():
        if call.has(index):
            raise call.unsupported(f"its input {name} is not supported")
    for name in ("k_quant_type", "v_quant_type"):
        if call.text(name, "NONE") != "NONE":
            raise call.unsupported(f"{name}={call.text(name, '')!r}: a quantised cache is not supported")
    if call.integer("sliding_window_cache", 0):
        raise call.unsupported("sliding_window_cache=1 is not supported")
    if call.has(3) != call.has(4):
        raise call.malformed("expect both past_key and past_value, or neither")


def _operands(call: NodeCall) -> tuple[Operand, Operand, Operand]:
    """Return queries (B, H, S, D), keys and values (B, G, S, D), from three tensors or one that packs them."""
    m, heads, groups = call.math, number_of_heads(call), number_of_heads(call, "kv_num_heads")
    query = call.real(0)
    if call.has(1) and call.has(2):
        key, value = (split_heads(call, call.real(index), groups) for index in (1, 2))
        return split_heads(call, query, heads), key, value
    joined = split_heads(call, query, heads + 2 * groups)
    first, second, third = (
        m.slice(joined, [start], [start + count], [1], [1])
        for start, count in ((0, heads), (heads, groups), (heads + groups, groups))
    )
    return first, second, third


def _total(call: NodeCall) -> int:
    """Return the number of keys after this call, which has to be known."""
    found = call.known(6, "total_sequence_length").reshape(-1)
    if found.size != 1 or found.dtype.kind not in "iu" or found[0] < 1:
        raise call.malformed("total_sequence_length: expect one positive integer")
    return int(found[0])


def _starts(call: NodeCall, batch: int, rows: int, total: int, past: int) -> Operand:
    """Return the position of the first new key: (1, 1), or (B, 1) if the sequences may have several."""
    m = call.math
    same = np.full((1, 1), total - rows, np.int64)
    lengths = call.tensor(5)
    if rows == total or (batch == 1 and past + rows == total):
        return same
    if tuple(lengths.shape) not in ((batch,), (batch, 1)):
        raise call.malformed(f"seqlens_k: expect ({batch},), got {tuple(lengths.shape)}")
    if isinstance(lengths, np.ndarray) and (lengths == total - 1).all():
        return same
    return m.binary(m.cast(m.reshape(lengths, (batch, 1)), "int64"), np.asarray(1 - rows, np.int64), "add")


def _rotated(call: NodeCall, query: Operand, key: Operand, starts: Operand) -> tuple[Operand, Operand]:
    """Normalise queries and keys if there are weights, and rotate them if it is asked for."""
    m, rows = call.math, int(query.shape[2])
    if call.has(14) != call.has(15):
        raise call.malformed("expect both q_norm_weight and k_norm_weight, or neither")
    if call.has(14):
        usual = call.number("qk_norm_epsilon", 1e-6)
        query, key = (
            call.graph.rms_normalization(
                m.value(each),
                m.cast(call.real(index), "float32"),
                epsilon=call.number(name, usual),
                name=call.name_part(name),
            )
            for each, index, name in ((query, 14, "q_norm_epsilon"), (key, 15, "k_norm_epsilon"))
        )
    if not call.integer("do_rotary", 0):
        return query, key
    positions = m.binary(starts, np.arange(rows, dtype=np.int64).reshape(1, rows), "add")
    if call.has(9):
        given = call.tensor(9)
        if isinstance(starts, np.ndarray) and not starts.any():
            # Of a first prompt, ONNX Runtime reads the first position alone.
            first = m.reshape(m.slice(m.reshape(given, (math.prod(given.shape),)), [0], [1], [0], [1]), (1, 1))
            positions = m.binary(first, positions, "add")
        else:
            positions = given
    cosine, sine = (angles(call, call.real(index), positions) for index in (7, 8))
    interleaved = bool(call.integer("rotary_interleaved", 0))
    return rotate(call, query, cosine, sine, interleaved), rotate(call, key, cosine, sine, interleaved)


def _append(call: NodeCall, index: int, new: Operand, past: int, total: int, starts: Operand) -> Operand:
    """Return the cache with the new rows at their positions: it is as long as before, if it has room for all."""
    if not past:
        return new
    m, old = call.math, call.real(index)
    batch, groups, rows, _ = shape_of(new)
    if isinstance(starts, np.ndarray) and starts.size == 1:
        parts = [m.slice(old, [0], [total - rows], [2], [1]), new, m.slice(old, [total], [past], [2], [1])]
        return m.concat(parts, 2)
    length = max(past, total)
    # Row t is new if it is one of ``rows`` from the start on, else it is old.
    place = np.arange(length, dtype=np.int64).reshape(1, length)
    ahead = m.binary(place, starts, "sub")
    inside = m.binary(
        m.binary(ahead, np.asarray(0, np.int64), "ge"), m.binary(ahead, np.asarray(rows, np.int64), "lt"), "min"
    )
    chosen = m.select(inside, m.binary(ahead, np.asarray(past, np.int64), "add"), np.minimum(place, past - 1))
    chosen = m.expand(m.reshape(chosen, (batch, 1, length, 1)), (batch, groups, length, 1))
    return m.gather_nd(m.concat([old, new], 2), chosen, 2)


def _mask(call: NodeCall, rows: int, keys: int, starts: Operand) -> Operand | None:
    """Return which keys a query sees, or what is added to the scores, in a shape that broadcasts to (B, H, S, T)."""
    m, window, causal = call.math, call.integer("local_window_size", -1), bool(call.integer("causal", 1))
    place = np.arange(keys, dtype=np.int64).reshape(1, 1, 1, keys)
    steps = np.arange(rows, dtype=np.int64).reshape(1, 1, rows, 1)
    first = m.reshape(starts, (int(starts.shape[0]), 1, 1, 1))
    at = m.binary(first, steps, "add")
    kept = m.binary(place, at if causal else m.binary(first, steps[:, :, -1:], "add"), "le")
    if window > 0:
        kept = m.binary(kept, m.binary(place, m.binary(at, np.asarray(window, np.int64), "sub"), "gt"), "min")
    bias = call.optional(10)
    if bias is None:
        return None if isinstance(kept, np.ndarray) and kept.all() else kept
    if bias.shape[-1] != keys:
        raise call.unsupported(f"attention_bias for {bias.shape[-1]} of {keys} keys is not supported")
    return m.select(kept, bias, m.number(-math.inf, bias))


def _sink(call: NodeCall, query: Operand) -> Operand | None:
    heads = int(query.shape[1])
    if call.has(11):
        return call.math.reshape(call.real(11), (1, heads, 1, 1))
    if call.integer("smooth_softmax", 0) > 0:
        return np.zeros((1, heads, 1, 1), np.float32)
    return None


OPERATORS: Final[Mapping[str, Operator]] = {"GroupQueryAttention": group_query_attention}
