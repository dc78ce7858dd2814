"""What a graph spells out as a division, rounding, a zero point and a conversion is one step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from poolrt import Graph, Value
from poolrt.graph.passes import optimize
from tests.poolrt.graph.native_graphs import NativeGraphs

#: Quotients by 0.5 of these are halves, of which every second one is rounded down.
X = (np.arange(-600, 600, dtype=np.float32) / 4).reshape(3, 400)


def quantised(g: Graph, x: Value, point: float, dtype: str, scale: object = 0.5) -> Value:
    whole = g.eltwise(g.binary(x, np.asarray(scale, np.float32), "div"), "round")
    if point:
        whole = g.binary(whole, np.float32(point), "add")
    return g.reorder(whole, dtype=dtype)


@pytest.mark.parametrize(("point", "dtype"), [(17, "uint8"), (-3, "int8"), (0, "int8")])
def test_a_spelled_out_quantisation_is_one_step_with_the_same_results(
    point: int, dtype: str, native_graphs: NativeGraphs
) -> None:
    g = Graph("quantised")
    g.output("y", quantised(g, g.input("x", X.shape), point, dtype))
    (node,) = optimize(g.to_ir()).nodes
    assert (node.kind, [step.algorithm for step in node.post_ops]) == ("binary", ["round"])
    limits = np.iinfo(dtype)
    want = np.clip(np.rint(X / 0.5) + point, limits.min, limits.max).astype(dtype)
    np.testing.assert_array_equal(native_graphs.run(g, {"x": X})["y"], want)


def test_the_scale_may_be_computed(native_graphs: NativeGraphs) -> None:
    g = Graph("computed")
    x, scale = g.input("x", (2, 16, 5, 5)), g.input("scale", (1,))
    g.output("y", g.reorder(g.eltwise(g.binary(x, scale, "div"), "round"), dtype="int8"))
    given = np.random.default_rng().normal(0, 60, x.shape).astype(np.float32)
    want = np.clip(np.rint(given / np.float32(0.7)), -128, 127)
    got = native_graphs.run(g, {"x": given, "scale": np.full(1, 0.7, np.float32)})["y"]
    np.testing.assert_array_equal(got, want)
    assert [node.kind for node in optimize(g.to_ir()).nodes if node.kind != "reshape"] == ["binary"]


def test_what_has_blocks_with_padding_is_made_row_major_first(native_graphs: NativeGraphs) -> None:
    rng = np.random.default_rng()
    weights = rng.integers(-3, 4, (21, 16)).astype(np.float32)
    g = Graph("padded")
    sums = g.convolution(g.input("x", (2, 16, 6, 7)), weights.reshape(21, 16, 1, 1))
    g.output("y", quantised(g, g.eltwise(sums, "relu"), 17, "uint8", 4.0))
    x = rng.integers(-3, 4, (2, 16, 6, 7)).astype(np.float32)
    want = np.clip(np.rint(np.maximum(np.einsum("nchw,oc->nohw", x, weights), 0) / 4) + 17, 0, 255)
    np.testing.assert_array_equal(native_graphs.run(g, {"x": x})["y"], want)
    assert [node.kind for node in optimize(g.to_ir()).nodes] == ["convolution", "binary"]


def test_the_zero_point_may_be_computed(native_graphs: NativeGraphs) -> None:
    g = Graph("computed")
    x, scale, point = g.input("x", (5, 37)), g.input("scale", ()), g.eltwise(g.input("point", ()), "round")
    g.output("y", g.reorder(g.binary(g.eltwise(g.binary(x, scale, "div"), "round"), point, "add"), dtype="uint8"))
    given = np.random.default_rng().normal(0, 60, x.shape).astype(np.float32)
    numbers = {"scale": np.array(0.7, np.float32), "point": np.array(93.2, np.float32)}
    want = np.clip(np.rint(given / np.float32(0.7)) + 93, 0, 255)
    np.testing.assert_array_equal(native_graphs.run(g, {"x": given, **numbers})["y"], want)
    kinds = [node.kind for node in optimize(g.to_ir()).nodes if node.kind != "reshape"]
    assert kinds == ["eltwise", "reorder", "binary"]


@pytest.mark.parametrize(
    ("dims", "axis"),
    [((5, 37), 0), ((5, 37), 1), ((3, 21, 5, 7), 0), ((3, 21, 5, 7), 1), ((3, 32, 5, 7), 2), ((2, 4, 33), 2), ((9001,), 0),
     ((2, 3, 70, 70), 1)],
)  # fmt: skip
@pytest.mark.parametrize("points", ["none", "one", "many"])
def test_divisors_and_zero_points_may_differ_along_a_dimension(
    dims: tuple[int, ...], axis: int, points: str, native_graphs: NativeGraphs
) -> None:
    rng = np.random.default_rng()
    shape = tuple(size if dim == axis else 1 for dim, size in enumerate(dims))
    scale = rng.uniform(0.1, 2.0, shape).astype(np.float32)
    point = {"none": np.zeros(shape), "one": np.full(shape, 7.0), "many": rng.integers(0, 256, shape)}[points]
    g = Graph("along")
    whole = g.eltwise(g.binary(g.input("x", dims), scale, "div"), "round")
    g.output("y", g.reorder(g.binary(whole, point.astype(np.float32), "add"), dtype="uint8"))
    x = rng.normal(0, 100, dims).astype(np.float32)
    x.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = np.nan_to_num(np.clip(np.rint(x / scale) + point, 0, 255), nan=0.0)
    np.testing.assert_array_equal(native_graphs.run(g, {"x": x})["y"], want)
    assert [node.kind for node in optimize(g.to_ir()).nodes if node.kind != "reshape"] == ["binary"]


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ((6, 3, 32), (6, 3, 1)), ((5, 2, 3, 37), (5, 2, 1, 37)), ((4, 3, 5, 7), (1, 3, 1, 7)), ((2, 3, 5, 7), (1, 3, 5, 1)),
        ((3, 400), (3, 400)), ((3, 70, 71), (3, 70, 71)), ((1, 3, 1, 5000), (1, 3, 1, 5000)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_divisors_and_zero_points_may_differ_along_several_dimensions(
    dims: tuple[int, ...], shape: tuple[int, ...], dtype: str, native_graphs: NativeGraphs
) -> None:
    rng, limits = np.random.default_rng(), np.iinfo(dtype)
    scale = rng.uniform(0.1, 2.0, shape).astype(np.float32)
    point = rng.integers(limits.min, limits.max + 1, shape)
    g = Graph("blocks")
    whole = g.eltwise(g.binary(g.input("x", dims), scale, "div"), "round")
    g.output("y", g.reorder(g.binary(whole, point.astype(np.float32), "add"), dtype=dtype))
    x = rng.normal(0, (limits.max - limits.min) / 3, dims).astype(np.float32)
    x.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = np.nan_to_num(np.clip(np.rint(x / scale) + point, limits.min, limits.max), nan=limits.min)
    np.testing.assert_array_equal(native_graphs.run(g, {"x": x})["y"], want)
    assert [node.kind for node in optimize(g.to_ir()).nodes if node.kind != "reshape"] == ["binary"]


@pytest.mark.parametrize("channels", [32, 21])
def test_divisors_may_differ_along_channels_of_a_convolution(channels: int, native_graphs: NativeGraphs) -> None:
    rng = np.random.default_rng()
    while True:
        weights = rng.integers(-3, 4, (channels, 16))
        scale = rng.uniform(0.5, 2.0, (1, channels, 1, 1)).astype(np.float32)
        x = rng.integers(-3, 4, (2, 16, 6, 7)).astype(np.float32)
        # The divisors are divided into the weights: the quotient has the roundings of these, of 16 products and of their sums.
        quotient, bound = (
            np.einsum("nchw,oc->nohw", change(x), change(weights)) / scale for change in (np.float64, np.abs)
        )
        error = 34 * 2.0**-24 * bound
        least, most = (np.clip(np.rint(quotient + side * error), -128, 127) for side in (-1, 1))
        if np.mean(least == most) > 0.99:  # else many quotients are close to halves
            break
    g = Graph("after a convolution")
    sums = g.convolution(g.input("x", x.shape), weights[:, :, None, None].astype(np.float32))
    g.output("y", g.reorder(g.eltwise(g.binary(sums, scale, "div"), "round"), dtype="int8"))
    found = native_graphs.run(g, {"x": x})["y"]
    assert np.all((least <= found) & (found <= most))


def leave_quotient(g: Graph, x: Value) -> None:
    quotient = g.binary(x, np.float32(0.5), "div")
    g.output("quotient", quotient)
    g.output("y", g.reorder(g.eltwise(quotient, "round"), dtype="uint8"))


def scale_dimensions_apart(g: Graph, x: Value) -> None:
    parts = g.reshape(x, (3, 4, 5, 4, 5))
    g.output("y", quantised(g, parts, 5, "uint8", np.full((3, 1, 5, 1, 5), 0.5)))


def shift_other_dimension(g: Graph, x: Value) -> None:
    whole = g.eltwise(g.binary(x, np.full((1, 400), 0.5, np.float32), "div"), "round")
    g.output("y", g.reorder(g.binary(whole, np.array([[1], [2], [3]], np.float32), "add"), dtype="uint8"))


@pytest.mark.parametrize(
    "build",
    [
        leave_quotient,
        scale_dimensions_apart,
        shift_other_dimension,
        lambda g, x: g.output("y", quantised(g, x, 0.5, "uint8")),
    ],
)
def test_what_is_more_than_that_stays_as_it_is(build: Callable[[Graph, Value], None]) -> None:
    g = Graph("more")
    build(g, g.input("x", X.shape))
    ir = g.to_ir()
    kept = [node.kind for node in ir.nodes if node.kind != "reshape"]
    assert [node.kind for node in optimize(ir).nodes if node.kind != "reshape"] == kept
