"""The gradients of inner product against differences."""

from __future__ import annotations

import numpy as np
import pytest

from .finite_differences import numeric_gradient
from .products import inner_product, inner_product_backward_data, inner_product_backward_weights


@pytest.mark.parametrize("inputs", [(4,), (3, 2), (2, 3, 2, 1)])
def test_gradients_of_an_inner_product_agree_with_differences(inputs: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    src, weights = rng.standard_normal((3, *inputs)), rng.standard_normal((5, *inputs))
    bias, errors = rng.standard_normal(5), rng.standard_normal((3, 5))
    got_weights, got_bias = inner_product_backward_weights(src, errors)
    got_src = inner_product_backward_data(weights, errors)
    for got, wanted in (
        (got_src, numeric_gradient(lambda x: inner_product(x, weights, None), src, errors)),
        (got_weights, numeric_gradient(lambda x: inner_product(src, x, None), weights, errors)),
        (got_bias, numeric_gradient(lambda x: inner_product(src, weights, x), bias, errors)),
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


def test_an_inner_product_sums_over_all_dimensions_behind_the_first() -> None:
    rng = np.random.default_rng(2)
    src, weights = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((6, 3, 4, 5))
    np.testing.assert_allclose(inner_product(src, weights, None), np.einsum("nchw,ochw->no", src, weights), rtol=1e-12)
