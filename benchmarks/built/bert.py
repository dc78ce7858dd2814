"""BERT-base, the encoder with its pooler: token ids, segments and a mask in, rows and their summary out."""

from __future__ import annotations

from poolrt import Graph

from .transformer import BASE, Sizes, Transformer
from .weights import Weights


def build_bert(rows: int = 128, sizes: Sizes = BASE, vocabulary: int = 30522, longest: int = 512) -> Graph:
    """Return the graph on ``ids`` and ``segments`` (1, rows) of int64 and a ``mask`` (1, rows) of float32: 0 hides a row."""
    g, weights = Graph("bert"), Weights()
    parts = Transformer(g, sizes, weights, epsilon=1e-12)
    ids, segments = (g.input(name, (1, rows), "int64") for name in ("ids", "segments"))
    mask = g.input("mask", (1, rows))
    hidden = g.reshape(g.eltwise(mask, "linear", 1e4, -1e4), (1, 1, 1, rows))
    tokens = g.gather(weights.normal((vocabulary, sizes.width), 0.5), ids)
    kinds = g.gather(weights.normal((2, sizes.width), 0.5), segments)
    positions = weights.normal((longest, sizes.width), 0.5)[None, :rows]
    x = parts.norm(g.binary(parts.add(tokens, kinds), positions, "add"))
    for _ in range(sizes.layers):
        x = parts.norm(parts.add(x, parts.attend(x, hidden)))
        x = parts.norm(parts.add(x, parts.feed_forward(x)))
    g.output("rows", x)
    first = g.reshape(g.slice(x, 0, 1, 1), (1, sizes.width))
    g.output("summary", g.eltwise(parts.dense(first, sizes.width), "tanh"))
    return g
