"""Constants: what users may give, and what is written to where a constant lives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.graph.constant import Constant, make_constant


def test_float32_arrays_are_kept_without_a_copy() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert make_constant(array).array is array


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64", "uint8", "bool"])
def test_other_numbers_become_float32(dtype: str) -> None:
    array = np.array([0, 1, 1, 0]).astype(dtype)
    constant = make_constant(array)
    assert constant.array.dtype == np.float32
    assert constant.array.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (np.array([2**24 + 1]), "integers beyond"),
        (np.array([1e300]), "exceed the range of float32"),
        (np.array(["a"]), "dtype <U1"),
        (np.array([1j]), "dtype complex128"),
        (None, "dtype object"),
        ([[1.0], [1.0, 2.0]], "expect an array of numbers, got list"),
    ],
)
def test_what_float32_does_not_hold_is_refused(given_value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        make_constant(given_value)


def test_infinities_and_nans_stay_what_they_are() -> None:
    written = make_constant(np.array([np.inf, -np.inf, np.nan])).to_array()
    assert np.array_equal(written, np.array([np.inf, -np.inf, np.nan], np.float32), equal_nan=True)


@pytest.mark.parametrize("make", [lambda a: a, lambda a: a[:, ::-1], lambda a: a.T, lambda a: a.astype(np.float64) / 3])
def test_any_strides_are_written_row_major(make: Any) -> None:
    array = make(np.arange(12, dtype=np.float32).reshape(3, 4))
    constant = Constant(array)
    memory = np.full(constant.nbytes + 4, 7, np.uint8)
    constant.write_into(memory)
    assert memory[: constant.nbytes].tobytes() == array.astype(np.float32).tobytes()
    assert memory[constant.nbytes :].tolist() == [7] * 4


def test_one_number_seen_through_a_shape_takes_no_memory_until_it_is_written() -> None:
    constant = make_constant(np.broadcast_to(np.float32(0.5), (1000, 1000)))
    assert constant.array.base is not None
    assert constant.array.strides == (0, 0)
    assert constant.to_array().sum() == 500_000


@given(st.integers(0, 2**32 - 1))
def test_a_folded_scale_is_rounded_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    array = random.standard_normal((3, 2, 2)).astype(np.float32)
    first, second = random.standard_normal(3), random.standard_normal(3)
    written = Constant(array).multiply(first).multiply(second).to_array()
    exact = array.astype(np.float64) * (first * second)[:, None, None]
    assert np.array_equal(written, exact.astype(np.float32))


@pytest.mark.parametrize("shape", [(5,), (3, 1), (7, 1025), (4, 33, 3, 3), (2, 100_001)])
def test_a_folded_scale_is_rounded_once_in_any_shape_and_numpy_keeps_its_settings(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    array, scale = random.standard_normal(shape).astype(np.float32), random.standard_normal(shape[0])
    along = scale.reshape(-1, *[1] * (len(shape) - 1))
    settings = np.getbufsize(), np.geterr()
    assert np.array_equal(
        Constant(array).multiply(scale).to_array(), (array.astype(np.float64) * along).astype(np.float32)
    )
    turned = Constant(array.T.copy().T).multiply(scale).to_array()
    assert np.array_equal(turned, (array.astype(np.float64) * along).astype(np.float32))
    assert settings == (np.getbufsize(), np.geterr())


def test_a_scale_survives_views() -> None:
    array = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
    constant = Constant(array, np.array([2.0, 3.0]))
    scaled = constant.to_array()
    assert np.array_equal(constant.reshape((2, 12)).to_array(), scaled.reshape(2, 12))
    assert np.array_equal(constant.reshape((6, 4)).to_array(), scaled.reshape(6, 4))
    assert np.array_equal(constant.transpose((0, 2, 1)).to_array(), scaled.transpose(0, 2, 1))
    assert np.array_equal(constant.transpose((2, 1, 0)).to_array(), scaled.transpose(2, 1, 0))


def test_memory_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="a constant of 16 bytes does not fit in 12"):
        Constant(np.zeros(4, np.float32)).write_into(np.empty(3, np.float32))
