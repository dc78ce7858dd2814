"""Graphs for a part of a batch: what they compute are the rows of the whole, and what may mix samples is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from numpy.typing import NDArray

from poolrt import Graph, GraphError, Value
from poolrt.graph import passes
from poolrt.graph.batch_part import carrying_inputs, part_of_batch
from poolrt.graph.ir import GraphIR
from poolrt.graph.wire import to_wire

from .every_operation import OPERATIONS, array, graph_of, values_of
from .interpreter import run_wire
from .random_graphs import graphs

Array = NDArray[Any]
#: Operations of `OPERATIONS` that keep samples apart, so that they must be split, not refused.
_APART = {
    "deconvolution", "cubic", "resampling", "reduction", "norms", "prelu", "shuffle", "layer_normalization",
    "rms_normalization", "group_normalization",
}  # fmt: skip


def _run(ir: GraphIR, inputs: dict[str, Array]) -> dict[str, Array]:
    wire, constants = to_wire(passes.optimize(ir))
    return run_wire(wire, constants, inputs)


def _check(graph: Graph, inputs: dict[str, Array], sizes: tuple[int, ...]) -> None:
    """Compare the joined results of parts with those of the whole. Raises GraphError if the graph is refused."""
    ir = graph.to_ir()
    samples = sum(sizes)
    carrying = carrying_inputs(ir, samples)
    parts, begin = [], 0
    for size in sizes:
        given = {n: x[begin : begin + size] if n in carrying else x for n, x in inputs.items()}
        parts.append(_run(part_of_batch(ir, samples, size), given))
        begin += size
    for name, whole in _run(ir, inputs).items():
        if parts[0][name].shape == whole.shape:
            joined = parts[0][name]
        else:
            joined = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(joined, whole, rtol=1e-12, atol=1e-12, err_msg=name)


@settings(max_examples=60)
@given(graphs(views=True))
def test_random_graphs_are_split_or_refused(drawn: tuple[Graph, dict[str, Array]]) -> None:
    graph, inputs = drawn
    samples = inputs["x"].shape[0]
    if samples == 1:
        return
    try:
        _check(graph, inputs, (1,) * samples)
    except GraphError as error:
        event("refused: " + str(error).split(":")[-1])
    else:
        event("split")


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_operations_are_split_or_refused(name: str) -> None:
    graph, x = graph_of(name), values_of(name)
    rows = x.shape[0]
    sizes = (rows - 1, 1)
    if name in _APART:
        _check(graph, {"x": x}, sizes)
        return
    try:
        _check(graph, {"x": x}, sizes)
    except GraphError as error:
        assert str(error).startswith(f"graph {graph.name!r}: split_batch: ")


def _transformer(g: Graph, x: Value) -> Value:
    """A layer of a vision transformer: rows of all samples in one dimension, a token for each sample, attention."""
    n = x.shape[0]
    patches = g.transpose(g.reshape(g.convolution(x, array(8, 3, 2, 2), strides=2), (n, 8, -1)), (0, 2, 1))
    tokens = g.concat([g.expand(array(1, 1, 8), (n, 1, 8)), patches], 1)
    tokens = g.binary(tokens, np.broadcast_to(array(1, tokens.shape[1], 8), tokens.shape).copy(), "add")
    rows = tokens.shape[1]
    flat = g.reshape(tokens, (n * rows, 8))
    query, key, value = (
        g.transpose(g.reshape(g.matmul(flat, array(8, 8, seed=k), array(8)), (n, rows, 2, 4)), (0, 2, 1, 3))
        for k in range(3)
    )
    joined = g.reshape(g.transpose(g.attention(query, key, value), (0, 2, 1, 3)), (n * rows, 8))
    mixed = g.layer_normalization(g.binary(joined, flat, "add"), array(8), array(8))
    pairs = g.reshape(mixed, (n * 2, rows // 2, 8)) if rows % 2 == 0 else g.reshape(mixed, (n, rows, 8))
    squares = g.matmul(pairs, g.transpose(pairs, (0, 2, 1)))
    return g.softmax(squares, 2)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 2), (2, 2, 1)])
@pytest.mark.parametrize("width", [4, 6])
def test_a_transformer_whose_rows_are_in_one_dimension_is_split(sizes: tuple[int, ...], width: int) -> None:
    samples = sum(sizes)
    g = Graph("vit")
    g.output("y", _transformer(g, g.input("x", (samples, 3, 4, width))))
    _check(g, {"x": array(samples, 3, 4, width).astype(np.float64)}, sizes)


def test_inputs_without_the_batch_and_results_of_them_are_whole() -> None:
    g = Graph("shared")
    x, w = g.input("x", (4, 3)), g.input("w", (3, 5))
    g.output("y", g.matmul(x, w))
    g.output("squared", g.binary(w, w, "mul"))
    _check(g, {"x": array(4, 3), "w": array(3, 5)}, (2, 2))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x: g.softmax(x, 0), "it works along the batch"),
        (lambda g, x: g.layer_normalization(g.reshape(x, (24,))), "it works along the batch"),
        (lambda g, x: g.reduction(x, "sum", (0, 1)), "it reduces the batch"),
        (lambda g, x: g.transpose(x, (1, 0)), "it moves the batch"),
        (lambda g, x: g.slice(x, 0, 2, 0), "it takes some samples"),
        (lambda g, x: g.reshape(x, (6, 4)), "is not a multiple of the number of samples"),
        (lambda g, x: g.reshape(x, (3, 8)), "is not a multiple of the number of samples"),
        (lambda g, x: g.binary(x, array(4, 6), "add"), "has rows for each sample"),
        (lambda g, x: g.concat([x, x], 0), "it works along the batch"),
        (lambda g, x: g.matmul(x, g.transpose(g.reshape(x, (4, 6)), (1, 0))), "it moves the batch"),
        (lambda g, x: g.matmul(array(3, 4), x), "its weights depend on the batch"),
        (lambda g, x: g.gather(x, np.array([1, 0, 2, 3]), 0), "an index may choose another sample"),
        (lambda g, x: g.batch_normalization(g.reshape(x, (4, 6, 1, 1))), "its mean and variance are those of the batch"),
        (lambda g, x: g.pad(x, ((1, 0), (0, 0))), "it pads the batch"),
        (lambda g, x: g.expand(g.reshape(x, (1, 4, 6)), (2, 4, 6)), "is not a multiple"),
    ],
)  # fmt: skip
def test_what_may_mix_samples_is_refused_with_its_node(build: Callable[[Graph, Value], Value], reason: str) -> None:
    g = Graph("mixed")
    g.output("y", build(g, g.input("x", (4, 6))))
    with pytest.raises(GraphError, match=rf"^graph 'mixed': split_batch: \w+ '.+': .*{reason}"):
        part_of_batch(g.to_ir(), 4, 2)
