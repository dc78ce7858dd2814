"""References of prelu, shuffle, reduction, resampling, LRN within channels and gradients, against independent ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Attention, MemoryDesc, Reduction, Resampling
from poolrt.workers.desc.attributes import ELTWISE_ALGORITHMS, STEP_ALGORITHMS
from poolrt.workers.desc.operations.eltwise import FROM_DST
from poolrt.workers.desc.operations.resampling import COORDINATES

from .attention import attention
from .eltwise import eltwise
from .eltwise_gradient import eltwise_gradient
from .finite_differences import numeric_gradient
from .normalization import lrn_within
from .onnx_node import run_node, run_node_for_all
from .prelu import prelu
from .reduction import reduction
from .resampling import resampling
from .shuffle import shuffle
from .softmax import softmax, softmax_gradient

RNG = np.random.default_rng(3)


def test_prelu_agrees_with_onnxruntime() -> None:
    src, slopes = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((1, 3, 1))
    np.testing.assert_allclose(run_node("PRelu", [src, slopes]), prelu(src, slopes), rtol=1e-6)


def test_attention_agrees_with_onnxruntime() -> None:
    """Causal with as many queries as keys; with fewer, ONNX counts queries from the first key."""
    for rows, causal in ((5, False), (7, True)):
        shapes = ((2, 6, rows, 4), (2, 3, 7, 4), (2, 3, 7, 8), (2, 1, rows, 7), (2, 6, rows, 8))
        query, key, value, mask, _ = (RNG.standard_normal(size) for size in shapes)
        q, k, v, m, y = (MemoryDesc(size, "f32") for size in shapes)
        got = attention(Attention(q, k, v, m, y, 0.3, causal), query, key, value, mask)
        (want,) = run_node_for_all("Attention", [query, key, value, mask], 1, 23, scale=0.3, is_causal=int(causal))
        np.testing.assert_allclose(want, got, rtol=1e-5, atol=1e-6)


def test_shuffle_follows_its_definition_element_by_element() -> None:
    src = RNG.standard_normal((2, 6, 3))
    for group in (1, 2, 3, 6):
        rows = 6 // group
        for i, j in itertools.product(range(group), range(rows)):
            np.testing.assert_array_equal(shuffle(src, 1, group)[:, i * rows + j], src[:, j * group + i])


@pytest.mark.parametrize(
    ("algorithm", "node"),
    [
        ("max", "ReduceMax"), ("min", "ReduceMin"), ("sum", "ReduceSum"), ("mul", "ReduceProd"), ("mean", "ReduceMean"),
        ("norm_lp_sum", "ReduceL2"), ("norm_lp_power_p_max", "ReduceSumSquare"),
    ],
)  # fmt: skip
def test_reductions_agree_with_onnxruntime(algorithm: str, node: str) -> None:
    src = RNG.standard_normal((2, 3, 4))
    op = Reduction(MemoryDesc(src.shape, "f32"), MemoryDesc((1, 1, 1), "f32"), algorithm, 2.0)
    np.testing.assert_allclose(run_node(node, [src]), reduction(op, src), rtol=1e-5)


def test_eps_is_added_or_is_the_least_power() -> None:
    src, out = MemoryDesc((1, 2), "f32"), MemoryDesc((1, 1), "f32")
    found = {
        algorithm: reduction(Reduction(src, out, algorithm, 2.0, 36.0), np.array([[3.0, -4.0]])).item()
        for algorithm in ("norm_lp_max", "norm_lp_sum", "norm_lp_power_p_max", "norm_lp_power_p_sum")
    }
    assert found == {
        "norm_lp_max": 6.0, "norm_lp_sum": 61**0.5, "norm_lp_power_p_max": 36.0, "norm_lp_power_p_sum": 61.0,
    }  # fmt: skip


@pytest.mark.parametrize("sizes", [((5, 4), (10, 3)), ((7, 6), (3, 6)), ((3, 5), (7, 11)), ((1, 4), (5, 2))])
@pytest.mark.parametrize(("algorithm", "mode"), [("nearest", "nearest"), ("linear", "linear")])
def test_resampling_agrees_with_onnxruntime(
    algorithm: str, mode: str, sizes: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    src = RNG.standard_normal((1, 2, *sizes[0]))
    scales = np.array([1.0, 1.0, *(b / a for a, b in zip(*sizes, strict=True))])
    op = Resampling(MemoryDesc(src.shape, "f32"), MemoryDesc((1, 2, *sizes[1]), "f32"), algorithm)
    rounding = {"nearest_mode": "round_prefer_ceil"} if mode == "nearest" else {}
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "half_pixel", **rounding}
    (got,) = run_node_for_all("Resize", [src, None, scales], 1, **attributes)
    np.testing.assert_allclose(got, resampling(op, src), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [((5, 6), (12, 7)), ((9, 4), (4, 3)), ((3, 5), (1, 13))])
@pytest.mark.parametrize("algorithm", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.one_in(4)
def test_coordinates_of_resampling_agree_with_onnxruntime(
    coordinates: str, algorithm: str, sizes: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    src = RNG.standard_normal((1, 2, *sizes[0]))
    # Sizes are the whole part of src's times these.
    factors = tuple(float(np.float32((b + 0.3) / a)) for a, b in zip(*sizes, strict=True))
    nearest = {"half_pixel": "round_prefer_floor", "asymmetric": "floor", "align_corners": "ceil"}
    op = Resampling(
        MemoryDesc(src.shape, "f32"), MemoryDesc((1, 2, *sizes[1]), "f32"), algorithm, coordinates=coordinates,
        nearest=nearest.get(coordinates, "round_prefer_ceil"), cubic_coeff_a=-0.5,
        exclude_outside=algorithm == "cubic" and coordinates in ("half_pixel", "asymmetric"), factors=factors,
        roi=(0.1, -0.2, 0.8, 1.1) if coordinates == "tf_crop_and_resize" else (), extrapolation=7.0,
    )  # fmt: skip
    roi = np.array((0.0, 0.0, *op.roi[:2], 1.0, 1.0, *op.roi[2:])) if op.roi else None
    attributes: dict[str, Any] = {
        "mode": algorithm, "coordinate_transformation_mode": coordinates, "cubic_coeff_a": -0.5,
        "exclude_outside": int(op.exclude_outside), "extrapolation_value": 7.0,
    }  # fmt: skip
    if algorithm == "nearest":
        attributes["nearest_mode"] = op.nearest
    (got,) = run_node_for_all("Resize", [src, roi, np.array([1.0, 1.0, *factors])], 1, **attributes)
    np.testing.assert_allclose(got, resampling(op, src), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_lrn_within_channels_follows_its_definition_element_by_element(size: int) -> None:
    src = RNG.standard_normal((1, 2, 3, 4))
    got = lrn_within(src, size, 0.5, 0.75, 2.0)
    for c, y, x in np.ndindex(2, 3, 4):
        rows, columns = (
            [i for i in range(at - (size - 1) // 2, at + size // 2 + 1) if 0 <= i < limit]
            for at, limit in ((y, 3), (x, 4))
        )
        total = sum(src[0, c, i, j] ** 2 for i in rows for j in columns)
        np.testing.assert_allclose(got[0, c, y, x], src[0, c, y, x] / (2 + 0.5 / size**2 * total) ** 0.75)


# Rounding is constant between its steps: it has no gradient.
@pytest.mark.parametrize("algorithm", [a for a in ELTWISE_ALGORITHMS if a not in STEP_ALGORITHMS])
@pytest.mark.one_in(3)
def test_gradients_of_eltwise_agree_with_differences(algorithm: str) -> None:
    # Away from kinks, where a difference tells nothing: at 0 and at the bounds that 0.5 and 1.25 make.
    x = np.linspace(-3.03, 3.01, 61)
    x = np.abs(x) + 0.3 if algorithm in ("sqrt", "log", "pow") else x / 4 if algorithm in ("asin", "acos") else x
    diff_dst = np.cos(np.arange(x.size))
    wanted = numeric_gradient(lambda at: eltwise(algorithm, at, 0.5, 1.25), x, diff_dst)
    np.testing.assert_allclose(eltwise_gradient(algorithm, x, diff_dst, 0.5, 1.25), wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("algorithm", FROM_DST)
def test_gradients_from_dst_are_those_from_src(algorithm: str) -> None:
    x = np.linspace(0.01, 2.9, 30) if algorithm == "sqrt" else np.linspace(-3.03, 3.01, 61)
    dst = eltwise(algorithm, x, 0.5, 1.25)
    got = eltwise_gradient(algorithm, dst, np.ones(x.size), 0.5, 1.25, use_dst=True)
    np.testing.assert_allclose(got, eltwise_gradient(algorithm, x, np.ones(x.size), 0.5, 1.25), rtol=1e-9)


@pytest.mark.parametrize("algorithm", ["accurate", "log"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gradients_of_softmax_agree_with_differences(algorithm: str, axis: int) -> None:
    src, diff_dst = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 3, 4))
    wanted = numeric_gradient(lambda at: softmax(at, axis, algorithm), src, diff_dst)
    got = softmax_gradient(softmax(src, axis, algorithm), diff_dst, axis, algorithm)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-8)
