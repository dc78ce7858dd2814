"""Shuffles of channels that a graph spells out are one operation, and results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt import Graph
from poolrt.graph import passes
from tests.poolrt.graph.interpreter import run_wire


def spelled(parts: tuple[int, ...], perm: tuple[int, ...], back: tuple[int, ...], leaves: bool = False) -> Graph:
    """Return a graph that reshapes x (2, 12, 3, 5) to ``parts``, transposes that and reshapes it to ``back``."""
    g = Graph("g")
    x = g.eltwise(g.input("x", (2, 12, 3, 5)), "relu")
    turned = g.transpose(g.reshape(x, parts), perm)
    if leaves:
        g.output("turned", turned)
    g.output("y", g.eltwise(g.reshape(turned, back), "tanh"))
    return g


def kinds(g: Graph) -> list[str]:
    return [node.kind for node in passes.optimize(g.to_ir()).nodes]


IMAGE = (2, 12, 3, 5)


@pytest.mark.parametrize("groups", [2, 3, 4, 6])
def test_channels_as_groups_that_are_transposed_are_shuffled(groups: int) -> None:
    g = spelled((2, groups, 12 // groups, 3, 5), (0, 2, 1, 3, 4), IMAGE)
    assert kinds(g) == ["eltwise", "shuffle", "eltwise"]
    x = np.arange(360, dtype=np.float32).reshape(IMAGE) / 360
    want = np.tanh(x.reshape(2, groups, 12 // groups, 3, 5).swapaxes(1, 2).reshape(IMAGE))
    np.testing.assert_allclose(run_wire(*g.to_wire(), {"x": x})["y"], want, rtol=1e-6)


@pytest.mark.parametrize(
    "g",
    [
        spelled((2, 4, 3, 3, 5), (0, 2, 1, 4, 3), IMAGE),
        spelled((2, 4, 3, 3, 5), (0, 1, 2, 4, 3), (2, 12, 5, 3)),
        spelled((2, 4, 3, 3, 5), (0, 2, 1, 3, 4), (2, 12, 15)),
        spelled((2, 12, 3, 1, 5), (0, 2, 1, 3, 4), IMAGE),
        spelled((2, 4, 3, 15), (0, 2, 1, 3), IMAGE),
        spelled((2, 4, 3, 3, 5), (0, 2, 1, 3, 4), IMAGE, leaves=True),
    ],
)
def test_other_transposes_stay(g: Graph) -> None:
    assert "transpose" in kinds(g)
    x = np.arange(360, dtype=np.float32).reshape(IMAGE) / 360
    want = run_wire(*g.to_wire(optimize=False), {"x": x})["y"]
    np.testing.assert_allclose(run_wire(*g.to_wire(), {"x": x})["y"], want, rtol=1e-6)


def depthwise(stride: int, bias: bool = True, wanted: bool = False) -> Graph:
    """Return a graph that shuffles x (2, 12, 3, 5), and convolves and normalises each channel."""
    g, draw = Graph("g"), np.random.default_rng(3)
    y = g.shuffle(g.input("x", IMAGE), 1, 4)
    if wanted:
        g.output("shuffled", y)
    weights, added, *numbers = (draw.random(dims).astype(np.float32) for dims in ((12, 1, 3, 3), *((12,),) * 5))
    y = g.convolution(y, weights, added if bias else None, strides=stride, padding=1, groups=12)
    g.output("y", g.eltwise(g.batch_normalization(y, *numbers), "relu"))
    return g


@pytest.mark.parametrize(
    ("g", "order"),
    [
        (depthwise(2), ["convolution", "shuffle"]),
        (depthwise(2, bias=False), ["convolution", "shuffle"]),
        (depthwise(1), ["shuffle", "convolution"]),
        (depthwise(2, wanted=True), ["shuffle", "convolution"]),
    ],
)
def test_what_is_smaller_is_shuffled(g: Graph, order: list[str]) -> None:
    assert kinds(g) == order
    x = np.random.default_rng(4).standard_normal(IMAGE).astype(np.float32)
    want = run_wire(*g.to_wire(optimize=False), {"x": x})["y"]
    np.testing.assert_allclose(run_wire(*g.to_wire(), {"x": x})["y"], want, rtol=1e-5, atol=1e-6)
