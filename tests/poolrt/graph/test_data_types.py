"""Data types of graphs: inputs, constants and results of every type, and quantisation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from poolrt import Graph, GraphError
from poolrt.graph.bfloat16 import from_bfloat16, to_bfloat16
from tests.references import converted

from .interpreter import run_wire

TYPES = ["float64", "float32", "float16", "bfloat16", "bool"]
TYPES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", TYPES)
def test_inputs_constants_and_results_are_of_any_type(dtype: str) -> None:
    # Given an input and a constant of a type
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    given = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
    g = Graph("g")
    x = g.input("x", (2, 3), dtype)
    fixed = g.constant(given)
    # When they are joined
    y = g.concat([x, fixed], 0)
    g.output("y", y)
    # Then all are of that type, on the wire too
    assert (x.dtype, fixed.dtype, y.dtype) == (dtype,) * 3
    assert g.input_types == {"x": dtype}
    wire, _ = g.to_wire()
    assert len({short for _, short in wire["values"]}) == 1
    got = run_wire(wire, g.to_wire()[1], {"x": given})["y"]
    np.testing.assert_array_equal(got.astype(np.float64), np.concatenate([given, given]).astype(np.float64))


def test_a_result_may_be_of_another_type_than_its_operands() -> None:
    g = Graph("g")
    x, y = g.input("x", (2, 3)), g.input("y", (2, 3))
    assert g.binary(x, y, "lt").dtype == "float32"
    assert g.binary(x, y, "lt", dtype=bool).dtype == "bool"
    assert g.reorder(x, dtype="float16").dtype == "float16"
    assert g.reorder(x) is x
    assert g.eltwise(x, "round", dtype=np.int32).dtype == "int32"


def test_products_of_integers_are_int32_and_those_with_scales_float32() -> None:
    g = Graph("g")
    x = g.input("x", (2, 4), "uint8")
    w = np.ones((4, 3), np.int8)
    assert g.matmul(x, w).dtype == "int32"
    assert g.matmul(x, w, dtype="int8").dtype == "int8"
    assert g.matmul(x, w, scales={"src": 0.5}).dtype == "float32"


def test_constants_take_the_type_that_they_go_with() -> None:
    g = Graph("g")
    f, i, h = g.input("f", (2, 4)), g.input("i", (2, 4), "uint8"), g.input("h", (2, 4), "float16")

    def types(*operands: Any) -> list[str]:
        graph = Graph("t")
        graph.output("y", graph.binary(graph.input("x", (2, 4), operands[0].dtype), operands[1], "add"))
        return [short for _, short in graph.to_wire()[0]["values"]][1:2]

    assert types(f, np.ones(4)) == ["f32"]
    assert types(f, np.ones(4, np.int8)) == ["f32"]
    assert types(h, np.ones(4, np.float32)) == ["f16"]
    assert types(i, 3) == ["u8"]
    assert types(i, np.ones(4, np.int8)) == ["s8"]
    assert types(i, np.arange(4)) == ["u8"]
    assert types(i, np.array([1, 2, 3, -1])) == ["s64"]
    assert types(i, 0.5) == ["f32"]
    with pytest.raises(GraphError, match=r"src1: integers beyond -16777216..16777216 do not fit float32"):
        g.binary(f, np.array([2**24 + 1] * 4), "add")


def test_a_quantised_product_computes_what_its_scales_say() -> None:
    # Given a product of 8-bit integers that stand for real numbers
    random = np.random.default_rng(0)
    x, w = random.integers(0, 256, (5, 8)).astype(np.uint8), random.integers(-128, 128, (8, 3)).astype(np.int8)
    scales = np.array([0.5, 0.25, 2.0], np.float32)
    g = Graph("g")
    product = g.matmul(
        g.input("x", x.shape, "uint8"),
        w,
        scales={"src": 0.1, "weights": scales, "dst": 4.0},
        zero_points={"src": 128, "dst": -3},
        dtype="int8",
    )
    g.output("y", g.eltwise(product, "relu"))
    # When it is computed, then it is their product, rounded and saturated once
    expected = (np.float32(0.1) * (x.astype(np.float64) - 128)) @ (w * scales.astype(np.float64)) / 4 - 3
    got = run_wire(*g.to_wire(), {"x": x})["y"]
    np.testing.assert_array_equal(got, np.maximum(np.clip(np.rint(expected), -128, 127), 0))


QUANTISED: list[tuple[Any, str]] = [
    ({"scales": {"bias": 1.0}}, "scales: matmul has no argument 'bias' that takes them; these do: src, weights, dst"),
    ({"scales": {"src": [1.0, 2.0, 3.0]}}, "scales: src: expect one number or a shape of rank 2 that broadcasts to (2"),
    ({"zero_points": {"src": [[0.5]]}}, "zero_points: src: expect an array of integers for int32"),
]


@pytest.mark.parametrize(("options", "expected"), QUANTISED, ids=[text[:40] for _, text in QUANTISED])
def test_a_mistake_in_quantisation_is_named(options: Any, expected: str) -> None:
    g = Graph("g")
    x = g.input("x", (2, 4), "uint8")
    with pytest.raises(GraphError) as caught:
        g.matmul(x, np.ones((4, 3), np.int8), **options)
    assert expected in str(caught.value)


def test_what_is_quantised_or_rounded_is_not_folded() -> None:
    g = Graph("g")
    x = g.input("x", (1, 2, 4, 4), "float16")
    y = g.convolution(x, np.ones((2, 2, 1, 1), np.float32))
    g.output("y", g.eltwise(g.binary(y, np.full((1, 2, 1, 1), 2.0), "mul"), "relu"))
    q = g.convolution(g.input("q", (1, 2, 4, 4)), np.ones((2, 2, 1, 1), np.float32), scales={"dst": 2.0})
    g.output("z", g.eltwise(q, "relu"))
    kinds = [node[0] for node in g.to_wire()[0]["nodes"]]
    assert kinds == ["convolution", "binary", "eltwise", "convolution", "eltwise"]


def test_bfloat16_is_rounded_once_and_to_even() -> None:
    # Given values of all magnitudes, halfway cases, and float64 just beside them, which rounding to float32 first would lose
    random = np.random.default_rng(0)
    values = random.standard_normal(4096) * 10.0 ** random.integers(-45, 40, 4096)
    halves = (1 + (2 * np.arange(128) + 1) / 256) * 2.0 ** random.integers(-10, 10, 128)
    beside = [np.nextafter(halves, 9e9), np.nextafter(halves, 0), [np.inf, -np.inf, 0.0, -0.0, 3.4e38, -1e300]]
    values = np.concatenate([values, halves, *beside])
    # When they are rounded, then each is what an exact rounding gives
    np.testing.assert_array_equal(to_bfloat16(values), converted(values, "bf16").view(np.uint16))
    single = values[np.abs(values) < 1e38].astype(np.float32)
    np.testing.assert_array_equal(to_bfloat16(single), single.astype(ml_dtypes.bfloat16).view(np.uint16))
    assert np.isnan(from_bfloat16(to_bfloat16(np.array([np.nan], np.float32))))[0]
