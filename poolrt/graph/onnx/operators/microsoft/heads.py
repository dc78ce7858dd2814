"""What the attention operators share: heads, masks, and attention with options that the fast operation does not have."""

from __future__ import annotations

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass

from ...call import NodeCall
from ...tensors import Operand, dtype_of, shape_of


def split_heads(call: NodeCall, operand: Operand, heads: int) -> Operand:
    """Return (B, S, H * D) as (B, H, S, D)."""
    batch, rows, width = shape_of(operand)
    if heads < 1 or width % heads:
        raise call.malformed(f"{heads} heads do not divide {width}")
    apart = call.math.reshape(operand, (batch, rows, heads, width // heads))
    return call.math.transpose(apart, (0, 2, 1, 3))


def join_heads(call: NodeCall, operand: Operand) -> Operand:
    """Return (B, H, S, D) as (B, S, H * D)."""
    batch, heads, rows, width = shape_of(operand)
    return call.math.reshape(call.math.transpose(operand, (0, 2, 1, 3)), (batch, rows, heads * width))


def number_of_heads(call: NodeCall, name: str = "num_heads") -> int:
    """Return an attribute that counts heads."""
    heads = call.integer(name)
    if heads < 1:
        raise call.malformed(f"{name}: expect a positive number, got {heads}")
    return heads


def scale_of(call: NodeCall, depth: int) -> float:
    """Return the attribute ``scale``, 1 / sqrt(depth) if it is missing or 0."""
    return call.number("scale", 0.0) or depth**-0.5


def padding_mask(call: NodeCall, given: Operand, batch: int, keys: int) -> Operand:
    """Return what a mask adds to the scores: 0 or ``mask_filter_value``, in float32 that broadcasts to (B, H, S, T).

    A mask is (B, T), (B, S, T), with 0 for what is masked, or (B): numbers of keys, or (2 B): the ends and then the
    first keys.
    """
    m, sizes = call.math, shape_of(given)
    if dtype_of(given) not in ("int32", "int64"):
        raise call.unsupported(f"a mask of type {dtype_of(given)} is not supported")
    places = np.arange(keys, dtype=dtype_of(given)).reshape(1, keys)
    if sizes == (batch,):
        kept = m.binary(places, m.reshape(given, (batch, 1)), "lt")
    elif sizes == (2 * batch,):
        end, start = (m.reshape(m.slice(given, [i * batch], [(i + 1) * batch], [0], [1]), (batch, 1)) for i in (0, 1))
        kept = m.binary(m.binary(places, end, "lt"), m.binary(places, start, "ge"), "min")
    elif len(sizes) in (2, 3) and sizes[0] in (1, batch) and sizes[-1] == keys:
        kept = m.binary(given, m.number(0, given), "gt")
    else:
        raise call.unsupported(f"a mask of shape {sizes} for {batch} sequences of {keys} keys is not supported")
    dims = shape_of(kept)
    kept = m.reshape(kept, (dims[0], 1, 1, keys) if len(dims) == 2 else (dims[0], 1, *dims[1:]))
    dropped = np.asarray(call.number("mask_filter_value", -10000.0), np.float32)
    return m.select(kept, np.zeros((), np.float32), dropped)


@dataclass(frozen=True, slots=True)
class Options:
    """What attention does beside the plain: ``mask`` is added to the scores or, of bool, keeps those where it is true.

    ``softcap`` bounds scores before the mask is added (0: not). ``sink`` is a score of each head, (1, H, 1, 1), for a key
    without a value. ``scores`` asks for scores before the softmax, ``weights`` for those after it.
    """

    scale: float
    mask: Operand | None = None
    causal: bool = False
    softcap: float = 0.0
    sink: Operand | None = None
    scores: bool = False
    weights: bool = False


def attend(
    call: NodeCall, query: Operand, key: Operand, value: Operand, options: Options
) -> tuple[Operand, Operand | None]:
    """Return attention of (B, H, S, D) over (B, G, T, D), and the scores if they are asked for."""
    m = call.math
    if not (options.softcap or options.sink is not None or options.scores or options.weights):
        added = None if options.mask is None else m.value(options.mask)
        found = call.graph.attention(
            m.value(query), m.value(key), m.value(value), added, options.causal, options.scale, name=call.name
        )
        return found, None
    (batch, heads, rows, _), (_, groups, keys, _) = shape_of(query), shape_of(key)
    if heads != groups:
        key, value = (_repeat(call, each, heads // groups) for each in (key, value))
    scores = m.eltwise(m.matmul(query, m.transpose(key, (0, 1, 3, 2))), "linear", options.scale)
    if options.softcap:
        bounded = m.eltwise(m.eltwise(scores, "linear", 1.0 / options.softcap), "tanh")
        scores = m.eltwise(bounded, "linear", options.softcap)
    mask = options.mask
    if options.causal:
        seen = np.arange(keys)[None, :] <= np.arange(rows)[:, None] + (keys - rows)
        scores = m.select(seen, scores, m.number(float(np.finfo(np.float32).min), scores))
    if mask is not None:
        if dtype_of(mask) == "bool":
            scores = m.select(mask, scores, m.number(float(np.finfo(np.float32).min), scores))
        else:
            scores = m.binary(scores, mask, "add")
    whole = scores
    if options.sink is not None:
        whole = m.concat([scores, m.expand(options.sink, (batch, heads, rows, 1))], 3)
    weights: Operand = call.graph.softmax(m.value(whole), 3, name=call.name_part("softmax"))
    if options.sink is not None:
        weights = m.slice(weights, [0], [keys], [3], [1])
    return m.matmul(weights, value), scores if options.scores else weights


def _repeat(call: NodeCall, operand: Operand, times: int) -> Operand:
    batch, groups, keys, depth = shape_of(operand)
    apart = call.math.reshape(operand, (batch, groups, 1, keys, depth))
    wide = call.math.expand(apart, (batch, groups, times, keys, depth))
    return call.math.reshape(wide, (batch, groups * times, keys, depth))
