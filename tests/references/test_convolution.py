"""The reference of deconvolution against ONNX Runtime, and the gradients of convolution against differences."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from poolrt.workers.desc import Convolution, Deconvolution, MemoryDesc

from .convolution import convolution, convolution_backward_data, convolution_backward_weights, deconvolution
from .finite_differences import numeric_gradient
from .onnx_node import run_node

Sizes = tuple[int, ...]


def plain(*dims: int) -> MemoryDesc:
    return MemoryDesc(dims, "f64")


def convolved(
    sizes: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, left: Sizes, right: Sizes, groups: int
) -> Convolution:
    out = tuple(
        (s + a + b - ((k - 1) * (d + 1) + 1)) // st + 1
        for s, k, st, d, a, b in zip(sizes, kernel, strides, dilations, left, right, strict=True)
    )
    src, weights, dst = plain(2, 2 * groups, *sizes), plain(3 * groups, 2, *kernel), plain(2, 3 * groups, *out)
    return Convolution(src, weights, None, dst, strides, dilations, left, right, groups)


CONVOLUTIONS = [
    convolved((5, 4), (3, 2), (1, 1), (0, 0), (0, 0), (0, 0), 1),
    convolved((6, 5), (3, 3), (2, 1), (0, 1), (1, 0), (0, 3), 2),
    convolved((9,), (3,), (3,), (1,), (2,), (1,), 3),
    convolved((3, 4, 3), (2, 1, 3), (1, 2, 2), (0, 0, 0), (0, 1, 2), (1, 0, 0), 1),
    convolved((4,), (2,), (3,), (0,), (4,), (5,), 1),
]


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=lambda op: f"{op.weights}")
def test_gradients_of_a_convolution_agree_with_differences(op: Convolution) -> None:
    rng = np.random.default_rng(3)
    src, weights, errors = (rng.standard_normal(md.dims) for md in (op.src, op.weights, op.dst))
    bias = rng.standard_normal(op.weights.dims[0])
    got_weights, got_bias = convolution_backward_weights(op, src, errors)
    got_src = convolution_backward_data(op, weights, errors)
    for got, wanted in (
        (got_src, numeric_gradient(lambda x: convolution(op, x, weights, None), src, errors)),
        (got_weights, numeric_gradient(lambda x: convolution(op, src, x, None), weights, errors)),
        (got_bias, numeric_gradient(lambda x: convolution(op, src, weights, x), bias, errors)),
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=lambda op: f"{op.weights}")
def test_a_deconvolution_agrees_with_onnxruntime(op: Convolution) -> None:
    # Given a deconvolution that runs a convolution backwards, from its dst to its src
    backwards = Deconvolution(
        op.dst, plain(2 * op.groups, 3, *op.weights.dims[2:]), plain(2 * op.groups), op.src,
        op.strides, op.dilations, op.padding_l, op.padding_r, op.groups,
    )  # fmt: skip
    rng = np.random.default_rng(4)
    src, weights = rng.standard_normal(backwards.src.dims), rng.standard_normal(backwards.weights.dims)
    bias = rng.standard_normal(2 * op.groups)
    # When ONNX Runtime, whose weights are (IC, OC / groups, *kernel), computes the same
    theirs = np.swapaxes(weights.reshape(op.groups, 2, 3, *op.weights.dims[2:]), 1, 2)
    beyond = [
        size - (stride * (seen - 1) + (k - 1) * (dilation + 1) + 1 - left - right)
        for size, seen, k, stride, dilation, left, right in zip(
            op.src.dims[2:], op.dst.dims[2:], op.weights.dims[2:],
            op.strides, op.dilations, op.padding_l, op.padding_r, strict=True,
        )
    ]  # fmt: skip
    got = run_node(
        "ConvTranspose",
        [src, theirs.reshape(3 * op.groups, 2, *op.weights.dims[2:]), bias],
        strides=op.strides,
        dilations=[d + 1 for d in op.dilations],
        pads=[*op.padding_l, *op.padding_r],
        output_padding=beyond,
        group=op.groups,
    )
    # Then both agree
    np.testing.assert_allclose(got, deconvolution(backwards, src, weights, bias), rtol=1e-4, atol=1e-4)


def test_a_deconvolution_is_the_gradient_of_a_convolution_with_swapped_channels() -> None:
    op = CONVOLUTIONS[1]
    rng = np.random.default_rng(5)
    errors, weights = rng.standard_normal(op.dst.dims), rng.standard_normal(op.weights.dims)
    swapped = np.swapaxes(weights.reshape(2, 3, 2, 3, 3), 1, 2).reshape(4, 3, 3, 3)
    fields = {f.name: getattr(op, f.name) for f in dataclasses.fields(op)}
    backwards = Deconvolution(**{**fields, "src": op.dst, "dst": op.src, "weights": plain(4, 3, 3, 3)})
    np.testing.assert_allclose(
        deconvolution(backwards, errors, swapped, None), convolution_backward_data(op, weights, errors), rtol=1e-12
    )
