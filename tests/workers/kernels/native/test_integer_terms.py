"""What each output of a product of bytes begins with, its factor and its offset: those of float64 arithmetic, bit by bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    InnerProduct,
    MemoryDesc,
    PrimitiveAttr,
    Quantisation,
    scales_of,
    zero_points_of,
)
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]
F32 = np.float32


def expected(sums: Array, bias: Array, scales: dict[int, Array], point: int) -> Array:
    """Return sums times factors plus offsets, rounded to float32 once; a bias of whole units is added to sums."""
    factor = (float(scales[Arg.SRC][0]) * scales[Arg.WEIGHTS].astype(np.float64)).astype(F32).astype(np.float64)
    bias, divisor = bias.astype(np.float64), float(scales[Arg.DST][0])
    with np.errstate(divide="ignore", invalid="ignore"):
        units = np.rint(bias / factor)
        is_whole = (factor != 0.0) & (np.abs(units) <= 4194304.0)
    units = np.where(is_whole, units, 0.0)
    rest = bias - units * factor
    rest[is_whole & (np.abs(rest) <= 2.0**-22 * np.abs(units * factor))] = 0.0
    first, second = (factor / divisor).astype(F32), (rest / divisor + point).astype(F32)
    whole = (sums + units.astype(np.int64)).astype(F32)
    # Products of two float32 have 48 bits, so that long doubles round sums but once before they become float32
    return (whole.astype(np.longdouble) * first.astype(np.longdouble) + second.astype(np.longdouble)).astype(F32)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("outputs", [5, 37])
def test_terms_factors_and_offsets_are_those_of_float64(native: NativeRunner, outputs: int, level: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Given biases of whole units and others, small and beyond all bounds, and scales of which some are 0
    src, weights = rng.integers(0, 256, (3, 40)), rng.integers(-128, 128, (outputs, 40))
    scales: dict[int, Array] = {
        Arg.SRC: rng.uniform(0.01, 0.1, 1).astype(F32),
        Arg.WEIGHTS: (rng.uniform(0.001, 0.01, outputs) * rng.choice([0, 1, 1, 1], outputs)).astype(F32),
        Arg.DST: rng.uniform(0.1, 3, 1).astype(F32),
    }
    bias = (rng.integers(-9000, 9000, outputs) * float(scales[Arg.SRC][0]) * scales[Arg.WEIGHTS]).astype(F32)
    bias += (rng.choice([0, 0, 1e-3, 1e7], outputs) * rng.normal(size=outputs)).astype(F32)
    source, point = int(rng.integers(0, 256)), int(rng.integers(-99, 99))
    quantised = Quantisation(Arg.SRC), Quantisation(Arg.WEIGHTS, 1), Quantisation(Arg.DST)
    attr = PrimitiveAttr((), quantised, (Quantisation(Arg.SRC), Quantisation(Arg.DST)))
    dims = MemoryDesc((outputs, 40), "s8", "any"), MemoryDesc((outputs,), "f32"), MemoryDesc((3, outputs), "f32")
    pd = primitive_desc(InnerProduct(MemoryDesc((3, 40), "u8"), *dims), attr, target_of(level))
    assert "integer_terms" in [spec.generator for spec in pd.program().kernels]
    args: dict[int, Array] = {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.BIAS: bias}
    args |= {scales_of(arg): of for arg, of in scales.items()}
    args |= {zero_points_of(Arg.SRC): np.array([source]), zero_points_of(Arg.DST): np.array([point])}
    # When they are multiplied
    got = native.results(pd, args)[Arg.DST]
    # Then results have the same bits
    np.testing.assert_array_equal(got, expected((src - source) @ weights.T, bias, scales, point))
