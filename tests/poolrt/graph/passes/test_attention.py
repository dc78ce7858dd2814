"""Attention is recognised where a graph spells it out, and computes the same then; what is nearly attention is left alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt import Graph, Value
from tests.poolrt.graph.interpreter import run_wire
from tests.poolrt.graph.native_graphs import NativeGraphs

Array = NDArray[Any]
Build = Callable[[Graph, Value, Value, Value], Value]


def drawn(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def spelled(
    g: Graph, query: Value, key: Value, value: Value, scale: Callable[[Value], Value] = lambda scores: scores,
    mask: Any = None, **options: Any,
) -> Value:  # fmt: skip
    """Return attention as most frameworks export it; ``key`` is transposed."""
    scores = scale(g.matmul(query, key, **options))
    if mask is not None:
        scores = g.binary(scores, mask, "add")
    return g.matmul(g.softmax(scores), value)


def guarded(g: Graph, query: Value, key: Value, value: Value, masks: Sequence[Any]) -> Value:
    """Return attention as PyTorch exports it: scaled before the product, 0 for rows without a score that is finite."""
    scores = g.matmul(g.binary(query, 0.5, "mul"), g.eltwise(key, "linear", 0.25, 0.0))
    for mask in masks:
        scores = g.binary(scores, mask, "add")
    weights = g.softmax(scores)
    return g.matmul(g.select(g.binary(weights, weights, "ne", dtype="bool"), 0.0, weights), value)


def bias() -> Array:
    """Return a mask that leaves one row without a key."""
    mask = np.where(drawn(2, 1, 5, 7) > 0.5, np.float32(-np.inf), np.float32(0))
    mask[1, 0, 3] = -np.inf
    return mask


def heads(g: Graph, x: Value, perm: tuple[int, ...] = (0, 2, 1, 3)) -> Value:
    return g.transpose(g.reshape(x, (2, x.shape[1], 3, -1)), perm)


def part(g: Graph, x: Value) -> Value:
    """Return the first of two."""
    return g.slice(x, 0, 1)


#: Inputs q (2, 5, 12), k and v (2, 7, 12), which have three heads.
RECOGNISED: dict[str, Build] = {
    "bert": lambda g, q, k, v: g.reshape(
        g.transpose(
            spelled(
                g, heads(g, q), heads(g, k, (0, 2, 3, 1)), heads(g, v), lambda s: g.binary(s, 2.0, "div"), drawn(2, 1, 1, 7)
            ),
            (0, 2, 1, 3),
        ),
        (2, 5, 12),
    ),
    "scaled twice": lambda g, q, k, v: spelled(
        g, heads(g, q), heads(g, k, (0, 2, 3, 1)), heads(g, v),
        lambda s: g.eltwise(g.binary(0.25, s, "mul"), "linear", -3.0, 0.0), drawn(5, 7),
    ),
    "batches": lambda g, q, k, v: spelled(g, q, g.transpose(k, (0, 2, 1)), v, mask=drawn(2, 5, 7)),
    "one head": lambda g, q, k, v: spelled(g, part(g, q), part(g, g.transpose(k, (0, 2, 1))), part(g, v)),
    "a matrix": lambda g, q, k, v: spelled(
        g, g.squeeze(part(g, q), 0), g.squeeze(part(g, g.transpose(k, (0, 2, 1))), 0), g.squeeze(part(g, v), 0)
    ),
    "shared keys": lambda g, q, k, v: spelled(
        g, heads(g, q), g.reshape(g.transpose(g.slice(k, 0, 4, 2), (0, 2, 1)), (2, 1, 4, 7)), g.reshape(v, (2, 1, 7, 12))
    ),
    "guarded": lambda g, q, k, v: guarded(g, heads(g, q), heads(g, k, (0, 2, 3, 1)), heads(g, v), [bias()]),
    "filled by a constant": lambda g, q, k, v: spelled(
        g, heads(g, q), heads(g, k, (0, 2, 3, 1)), heads(g, v),
        lambda s: g.select(np.tri(5, 7, dtype=np.bool_), s, np.float32(-3e38)),
    ),
    "filled where a condition is true": lambda g, q, k, v: spelled(
        g, heads(g, q), heads(g, k, (0, 2, 3, 1)), heads(g, v),
        lambda s: g.select(np.tri(5, 7, -2, dtype=np.bool_)[::-1].copy(), np.float32(-np.inf), s),
    ),
    "sum of scores": lambda g, q, k, v: spelled(
        g, q, g.transpose(k, (0, 2, 1)), v, lambda s: g.sum([g.constant(drawn(2, 5, 7)), s])
    ),
}  # fmt: skip
LEFT_ALONE: dict[str, Build] = {
    "masked, then scaled": lambda g, q, k, v: spelled(
        g, q, g.transpose(k, (0, 2, 1)), v, lambda s: g.binary(g.binary(s, drawn(5, 7), "add"), 0.5, "mul")
    ),
    "guarded by 1": lambda g, q, k, v: g.matmul(
        g.select(g.binary(p := g.softmax(g.matmul(q, g.transpose(k, (0, 2, 1)))), p, "ne", dtype="bool"), 1.0, p), v
    ),
    "guarded weights read twice": lambda g, q, k, v: g.binary(
        g.matmul(
            g.select(g.binary(p := g.softmax(g.matmul(q, g.transpose(k, (0, 2, 1)))), p, "ne", dtype="bool"), 0.0, p), v
        ),
        g.reduction(p, "sum", -1), "add",
    ),
    "filled by a small number": lambda g, q, k, v: spelled(
        g, heads(g, q), heads(g, k, (0, 2, 3, 1)), heads(g, v), lambda s: g.select(np.tri(5, 7, dtype=np.bool_), s, -1e4)
    ),
    "another axis": lambda g, q, k, v: g.matmul(g.softmax(g.matmul(q, g.transpose(k, (0, 2, 1))), 1), v),
    "logarithm": lambda g, q, k, v: g.matmul(g.softmax(g.matmul(q, g.transpose(k, (0, 2, 1))), -1, "log"), v),
    "weights read twice": lambda g, q, k, v: g.binary(
        g.matmul(p := g.softmax(g.matmul(q, g.transpose(k, (0, 2, 1)))), v), g.reduction(p, "sum", -1), "add"
    ),
    "a bias": lambda g, q, k, v: g.matmul(g.softmax(g.matmul(q, g.transpose(k, (0, 2, 1)), drawn(7))), v),
    "another engine": lambda g, q, k, v: spelled(g, q, g.transpose(k, (0, 2, 1)), v, engine="opencl"),
    "shared values": lambda g, q, k, v: g.matmul(
        g.softmax(g.matmul(heads(g, q), heads(g, k, (0, 2, 3, 1)))), g.reshape(v, (2, 1, 7, 12))
    ),
    "weights on the right": lambda g, q, k, v: g.matmul(
        g.transpose(v, (0, 2, 1)), g.softmax(g.matmul(k, g.transpose(q, (0, 2, 1))))
    ),
}  # fmt: skip


def graph_of(build: Build) -> Graph:
    g = Graph("g")
    q, k, v = (g.input(name, (2, rows, 12)) for name, rows in (("q", 5), ("k", 7), ("v", 7)))
    g.output("y", build(g, q, k, v))
    return g


def kinds(g: Graph) -> list[str]:
    """Return what an optimised graph has beside views."""
    wire, _ = g.to_wire()
    return [node[0] for node in wire["nodes"] if node[0] not in ("reshape", "transpose", "slice")]


@pytest.mark.parametrize("name", RECOGNISED)
def test_attention_is_recognised_and_computes_the_same(name: str) -> None:
    g = graph_of(RECOGNISED[name])
    assert kinds(g) == ["attention"]
    inputs = {"q": drawn(2, 5, 12), "k": drawn(2, 7, 12), "v": drawn(2, 7, 12)[::-1].copy()}
    want = run_wire(*g.to_wire(optimize=False), inputs)["y"]
    np.testing.assert_allclose(run_wire(*g.to_wire(), inputs)["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pairs", [2, 3, 4, 9])
def test_a_product_belongs_to_one_attention_of_a_chain(pairs: int) -> None:
    """The second product of each attention is the first one of the next, if keys and values are one constant."""
    g = Graph("g")
    y, shared = g.input("x", (3, 5, 8)), g.constant(drawn(3, 8, 8))
    for _ in range(pairs):
        y = g.softmax(g.matmul(y, shared))
    g.output("y", y)
    assert kinds(g).count("attention") == pairs // 2
    inputs = {"x": drawn(3, 5, 8)}
    want = run_wire(*g.to_wire(optimize=False), inputs)["y"]
    np.testing.assert_allclose(run_wire(*g.to_wire(), inputs)["y"], want, rtol=1e-5, atol=1e-6)


def test_attention_of_float16_keeps_scores_in_float32() -> None:
    """Weights that are rounded to float16 between the products are further from float64."""
    g = Graph("g")
    q, k, v = (g.input(name, (2, 3, rows, 8), "float16") for name, rows in (("q", 5), ("k", 7), ("v", 7)))
    mask = np.where(drawn(5, 7) > 1, -np.inf, drawn(5, 7)).astype(np.float16)
    scores = g.binary(g.binary(g.matmul(q, g.transpose(k, (0, 1, 3, 2))), np.float16(0.5), "mul"), mask, "add")
    g.output("y", g.matmul(g.softmax(scores), v))
    assert kinds(g) == ["attention"]
    inputs = {name: drawn(2, 3, rows, 8).astype(np.float16) for name, rows in (("q", 5), ("k", 7), ("v", 7))}
    query, key, value = (array.astype(np.float64) for array in inputs.values())
    exact = query @ key.swapaxes(2, 3) / 2 + mask.astype(np.float64)
    weights = np.exp(exact - exact.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ value
    unit = np.spacing(np.abs(want).astype(np.float16)).astype(np.float64)
    apart, before = (
        (np.abs(run_wire(*g.to_wire(optimize=each), inputs)["y"].astype(np.float64) - want) / unit).max()
        for each in (True, False)
    )
    assert apart <= 0.51 < 1 < before


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("bfloat16", "bfloat16"), ("float64", "float64")])
def test_attention_of_other_types_is_left_alone(dtypes: tuple[str, str]) -> None:
    g = Graph("g")
    q, k, v = (g.input(name, (1, 2, rows, 8), dtypes[0]) for name, rows in (("q", 5), ("k", 7), ("v", 7)))
    weights = g.softmax(g.matmul(q, g.transpose(k, (0, 1, 3, 2)), dtype=dtypes[1]))
    g.output("y", g.matmul(weights, g.reorder(v, dtype=dtypes[1])))
    assert "attention" not in kinds(g)


def test_masks_are_added_up_once_for_all_attentions_that_read_them() -> None:
    g = Graph("g")
    q, k, v = (g.input(name, (2, rows, 12)) for name, rows in (("q", 5), ("k", 7), ("v", 7)))
    first, second = g.input("first", (1, 3, 5, 7)), bias()
    keys = heads(g, k, (0, 2, 3, 1))
    for number in range(2):
        g.output(f"y{number}", guarded(g, heads(g, q), keys, heads(g, v), [first, second]))
    assert kinds(g) == ["binary", "attention", "attention"]
    inputs = {"q": drawn(2, 5, 12), "k": drawn(2, 7, 12), "v": drawn(2, 7, 12), "first": drawn(1, 3, 5, 7)}
    want = run_wire(*g.to_wire(optimize=False), inputs)
    found = run_wire(*g.to_wire(), inputs)
    assert not np.isnan(want["y0"]).any()
    for name in want:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-5, atol=1e-6)


def test_a_computed_condition_is_one_mask_for_all_layers() -> None:
    g = Graph("g")
    q, k, v = (g.input(name, (2, rows, 12)) for name, rows in (("q", 5), ("k", 7), ("v", 7)))
    kept = g.binary(g.input("kept", (2, 1, 1, 7)), 0.0, "gt", dtype="bool")
    for number in range(2):
        scores = g.select(kept, g.matmul(heads(g, q), heads(g, k, (0, 2, 3, 1))), np.float32(-np.inf))
        g.output(f"y{number}", g.matmul(g.softmax(scores), heads(g, v)))
    assert kinds(g) == ["binary", "select", "attention", "attention"]
    inputs = {"q": drawn(2, 5, 12), "k": drawn(2, 7, 12), "v": drawn(2, 7, 12), "kept": drawn(2, 1, 1, 7)}
    want = run_wire(*g.to_wire(optimize=False), inputs)
    found = run_wire(*g.to_wire(), inputs)
    for name in want:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_not_attention_is_left_alone(name: str) -> None:
    assert "attention" not in kinds(graph_of(LEFT_ALONE[name]))


def test_scores_that_leave_the_graph_are_computed() -> None:
    g = Graph("g")
    q, k = g.input("q", (1, 2, 5, 4)), g.input("k", (1, 2, 7, 4))
    scores = g.matmul(q, g.transpose(k, (0, 1, 3, 2)))
    g.output("scores", scores)
    g.output("y", g.matmul(g.softmax(scores), k))
    assert kinds(g) == ["matmul", "softmax", "matmul"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECOGNISED)
def test_recognised_attention_runs_on_native_kernels(native_graphs: NativeGraphs, name: str) -> None:
    g = graph_of(RECOGNISED[name])
    inputs = {"q": drawn(2, 5, 12), "k": drawn(2, 7, 12), "v": drawn(2, 7, 12)[::-1].copy()}
    want = run_wire(*g.to_wire(optimize=False), inputs)["y"]
    np.testing.assert_allclose(native_graphs.run(g, inputs)["y"], want, rtol=1e-4, atol=1e-5)
