"""The reference implementations of binary, prelu and sum, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import LIMITS, Arg, Binary, MemoryDesc, Prelu, Sum, multiple_src
from poolrt.workers.desc.attributes import BINARY_ALGORITHMS
from poolrt.workers.desc.operations.binary import BITWISE_ALGORITHMS
from tests.references import numpy_type

from .drawing import Array, Runner, attributes, check, described, examples, shapes


@pytest.mark.parametrize("algorithm", BINARY_ALGORITHMS)
def test_every_binary_algorithm_is_right(runner: Runner, algorithm: str) -> None:
    numbers = np.array([0.0, -0.0, 1.0, -1.5, 3.0, 1e300, np.inf, -np.inf, np.nan])
    md = MemoryDesc((81,), "f64")
    args: dict[int, Array] = {Arg.SRC: np.repeat(numbers, 9), Arg.SRC_1: np.tile(numbers, 9)}
    check(runner, Binary(md, md, md, algorithm), args=args)


@pytest.mark.parametrize("dtype", ["s32", "u16", "u8"])
def test_every_function_of_bits_is_right(runner: Runner, dtype: str) -> None:
    limits = np.iinfo(numpy_type(dtype))
    numbers = np.array([0, 1, 2, 3, 7, limits.max // 3, limits.max, limits.min, limits.min + 5], limits.dtype)
    md = MemoryDesc((81,), dtype)
    args: dict[int, Array] = {Arg.SRC: np.repeat(numbers, 9), Arg.SRC_1: np.tile(numbers, 9)}
    for algorithm in BITWISE_ALGORITHMS:
        check(runner, Binary(md, md, md, algorithm), args=args, threshold=0.0)


@pytest.mark.parametrize("algorithm", ["div", "floor_div", "trunc_div", "mod", "fmod"])
def test_integers_divided_by_zero_are_zero(runner: Runner, algorithm: str) -> None:
    for dtype, (least, most) in LIMITS.items():
        numbers = np.array([0, 1, most, least, max(least, -1)], numpy_type(dtype))
        src, row, column = (MemoryDesc(dims, dtype) for dims in ((25,), (1, 5), (5, 1)))
        args: dict[int, Array] = {Arg.SRC: np.repeat(numbers, 5), Arg.SRC_1: np.tile(numbers, 5)}
        check(runner, Binary(src, src, src, algorithm), args=args, threshold=0.0)
        args = {Arg.SRC: numbers[None], Arg.SRC_1: numbers[:, None]}
        check(runner, Binary(row, column, MemoryDesc((5, 5), dtype), algorithm), args=args, threshold=0.0)
    # Of floats, and by them, the quotient is infinite or NaN.
    md, floats = MemoryDesc((3,), "s32"), MemoryDesc((3,), "f32")
    args = {Arg.SRC: np.array([0, 1, -1], np.int32), Arg.SRC_1: np.zeros(3, np.float32)}
    check(runner, Binary(md, floats, floats, algorithm), args=args, threshold=0.0)


@examples(30)
@given(data=st.data(), algorithm=st.sampled_from(BINARY_ALGORITHMS))
def test_binary_broadcasts_either_source(runner: Runner, data: st.DataObject, algorithm: str) -> None:
    dims = data.draw(shapes())
    first, second = (tuple(data.draw(st.sampled_from((d, d, 1))) for d in dims) for _ in range(2))
    out = tuple(max(a, b) for a, b in zip(first, second, strict=True))
    src0, src1, dst = (data.draw(described(shape)) for shape in (first, second, out))
    op = Binary(src0, src1, dst, algorithm)
    attr = data.draw(attributes(op, (Arg.SRC, Arg.SRC_1)))
    check(runner, op, attr, data.draw(st.integers(0, 99)))


@examples(25)
@given(data=st.data())
def test_prelu_broadcasts_its_slopes(runner: Runner, data: st.DataObject) -> None:
    dims = data.draw(shapes())
    slopes = tuple(data.draw(st.sampled_from((d, 1))) for d in dims)
    op = Prelu(data.draw(described(dims)), data.draw(described(slopes)), data.draw(described(dims)))
    check(runner, op, data.draw(attributes(op, (Arg.SRC, Arg.WEIGHTS))), data.draw(st.integers(0, 99)))


@examples(25)
@given(data=st.data())
def test_sums_of_any_number_of_scaled_sources(runner: Runner, data: st.DataObject) -> None:
    dims = data.draw(shapes())
    srcs = tuple(data.draw(st.lists(described(dims), min_size=1, max_size=9)))
    scales = tuple(data.draw(st.sampled_from((1.0, 2.0, -0.5))) for _ in srcs)
    op = Sum(srcs, data.draw(described(dims)), data.draw(st.sampled_from(((), scales))))
    check(runner, op, data.draw(attributes(op, (multiple_src(0),))), data.draw(st.integers(0, 99)))


def test_a_scale_is_a_float32(runner: Runner) -> None:
    md = MemoryDesc((2,), "f64")
    check(runner, Sum((md,), md, (0.1,)), args={multiple_src(0): np.array([1.0, 3.0])}, threshold=0.0)
