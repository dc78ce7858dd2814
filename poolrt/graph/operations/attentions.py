"""Attention, and rotations of what it compares."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from poolrt.workers.desc.typed import to_bool, to_float

from ..values import NodeOptions, Operand, Value
from .family import Family


class Attentions(Family):
    """Scaled dot product attention, and rotary embeddings."""

    def attention(
        self,
        query: Operand,
        key: Operand,
        value: Operand,
        mask: Operand | None = None,
        causal: bool = False,
        scale: float | None = None,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Return softmax(scale * query key^T + mask) value of shape (B, H, S, E), without storing the scores.

        ``query`` is (B, H, S, D), ``key`` (B, G, T, D) and ``value`` (B, G, T, E). H is a multiple of G: H / G consecutive
        heads share keys and values. ``scale`` is 1 / sqrt(D) by default. ``mask`` broadcasts to (B, H, S, T) as in NumPy: if
        it is of bool, it excludes the keys at which it is false; any other is added to the scores. ``causal`` excludes key t
        for query s if t > s + T - S, so that the last query sees all keys. The result is 0 for a query without keys: all are
        excluded or have a score of minus infinity. Limitation: a key that is excluded and its value must be finite.
        """
        with self._build("attention", **options) as node:
            dtype = node.type_of(query, key, value)
            operands = [
                node.operand(name, each, dtype) for name, each in (("query", query), ("key", key), ("value", value))
            ]
            if mask is not None:
                truth = not isinstance(mask, Value) and np.asarray(mask).dtype == np.bool_
                added = node.operand("mask", mask, "bool" if truth else dtype)
                if added.ndim > 4:
                    raise ValueError(f"mask: expect at most 4 dimensions, got {added.shape}")
                operands.append(node.pad_rank(added, 4))
            depth = operands[0].shape[-1] if operands[0].ndim else 1
            factor = 1.0 / math.sqrt(depth) if scale is None else to_float("scale", scale)
            return node.add(operands, scale=factor, causal=to_bool("causal", causal))

    def rotary(
        self, src: Operand, cosine: Operand, sine: Operand, interleaved: bool = False, **options: Unpack[NodeOptions]
    ) -> Value:
        """Rotate pairs of the first 2 R elements of rows of src (A, B, C, D) by angles, as rotary embeddings of positions do.

        ``cosine`` and ``sine`` (A, B, C, R) have those of the angles; each of their sizes but R may be 1. Pair k is the elements
        2 k and 2 k + 1 if they are ``interleaved``, else k and R + k: (x, y) becomes (x cos - y sin, y cos + x sin).
        """
        with self._build("rotary", **options) as node:
            dtype = node.type_of(src, cosine, sine)
            operands = [
                node.operand(name, each, dtype) for name, each in (("src", src), ("cosine", cosine), ("sine", sine))
            ]
            return node.add(operands, interleaved=to_bool("interleaved", interleaved))
