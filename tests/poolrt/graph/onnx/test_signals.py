"""Fourier transforms of lengths that are one, prime, products of small and of large primes, and drawn, compared with SciPy."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import scipy.fft
from onnx import ModelProto, TensorProto, helper

from poolrt import Executor, ModelError, load_onnx
from poolrt.graph.onnx.operators.fourier_stages import find_stages
from poolrt.workers.primitives.provider import PrimitiveProvider

#: Each compiles kernels of its own.
pytestmark = pytest.mark.one_test_in(2)

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
TOLERANCE = {"float32": 3e-7, "float64": 1e-14}


def model(dims: tuple[int, ...], axis: int, dtype: str, length: int = 0, **attributes: Any) -> ModelProto:
    names = ["x", "length" if length else "", "axis"]
    known = [helper.make_tensor("axis", TensorProto.INT64, [], [axis])]
    if length:
        known.append(helper.make_tensor("length", TensorProto.INT64, [], [length]))
    node = helper.make_node("DFT", names, ["y"], **attributes)
    source = helper.make_tensor_value_info("x", TYPES[dtype], dims)
    result = helper.make_tensor_value_info("y", TYPES[dtype], [None] * len(dims))
    graph = helper.make_graph([node], "dft", [source], [result], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def check(random: np.random.Generator, size: int, dtype: str, cache: PrimitiveProvider) -> None:
    """Transform in each way along an axis that is drawn, and compare."""
    before, behind = (tuple(int(each) for each in random.integers(1, 4, count)) for count in random.permutation(3)[:2])
    axis, padded = len(before), int(random.integers(1, 2 * size + 2))

    def run(parts: int, given: int, length: int = 0, **attributes: int) -> tuple[Any, Any]:
        x = random.standard_normal((*before, given, *behind, parts)).astype(dtype)
        graph = load_onnx(model(x.shape, axis, dtype, length, **attributes))
        (y,) = Executor(graph, cache=cache).run(x=x).values()
        assert y.dtype == x.dtype
        wide = x.astype(np.float64)
        return (wide[..., 0] + 1j * wide[..., 1] if parts == 2 else wide[..., 0]), y

    def compare(found: Any, wanted: Any) -> None:
        assert found.shape[:-1] == wanted.shape
        parts = np.stack([wanted.real, wanted.imag], -1) if found.shape[-1] == 2 else wanted[..., None]
        scale = max(float(np.abs(parts).max()), 1e-30)
        assert float(np.abs(found - parts).max()) <= TOLERANCE[dtype] * scale * max(1.0, size / 500)

    for length in (0, padded):
        n = length or size
        for parts in (1, 2):
            x, y = run(parts, size, length)
            compare(y, scipy.fft.fft(x, n, axis))
            x, y = run(parts, size, length, inverse=1)
            compare(y, scipy.fft.ifft(x, n, axis))
        x, y = run(1, size, length, onesided=1)
        compare(y, scipy.fft.rfft(x, n, axis))
    # The half of a spectrum that a number of elements has; the imaginary parts that a real signal cannot have do not count.
    for n in (size, padded):
        x, y = run(2, n // 2 + 1, n, inverse=1, onesided=1)
        compare(y, scipy.fft.irfft(x, n, axis))


#: Lengths in `make test`, of small primes and of large ones in each type.
LENGTHS = {"float32": (1, 64, 127), "float64": (9, 120, 391)}


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        pytest.param(size, dtype, marks=[pytest.mark.slow] * (size not in LENGTHS[dtype]))
        for size in (1, 2, 9, 31, 64, 100, 120, 127, 256, 343, 391, 509, 1000)
        for dtype in TYPES
    ],
)
@pytest.mark.one_in(2)
def test_transforms_of_known_lengths_are_scipys(size: int, dtype: str, cache: PrimitiveProvider) -> None:
    check(np.random.default_rng(), size, dtype, cache)


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_transforms_of_drawn_lengths_are_scipys(count: int, cache: PrimitiveProvider) -> None:
    random = np.random.default_rng()
    for size in random.integers(1, 700, count):
        check(random, int(size), "float32", cache)


def test_lengths_of_small_primes_are_one_primitive_and_others_products(cache: PrimitiveProvider) -> None:
    for size, kinds in ((60, {"dft"}), (391, {"matmul"}), (127, {"matmul"})):
        executor = Executor(load_onnx(model((3, size, 2), 1, "float32")), cache=cache)
        x = np.random.default_rng().standard_normal((3, size, 2)).astype(np.float32)
        primitives = executor.time_steps(1, x=x)[0].primitives
        assert kinds <= {each.op.kind for each in primitives}
        assert (len(primitives) == 1) == (kinds == {"dft"})


def test_composite_lengths_are_divided_and_others_are_not() -> None:
    assert {n: find_stages(n) for n in (1, 10, 40, 64, 509, 1000, 1018, 1024)} == {
        1: None, 10: None, 40: None, 64: (8, 8), 509: None, 1000: (25, 40), 1018: None, 1024: (32, 32),
    }  # fmt: skip


def test_a_composite_length_takes_few_products(cache: PrimitiveProvider) -> None:
    random, seconds = np.random.default_rng(), []
    for size in (1037, 1039):
        executor = Executor(load_onnx(model((4, size, 2), 1, "float32")), cache=cache)
        x = random.standard_normal((4, size, 2)).astype(np.float32)
        executor.run(x=x)
        times = []
        for _ in range(5):
            start = time.process_time()
            executor.run(x=x)
            times.append(time.process_time() - start)
        seconds.append(min(times))
    # 17 and 61: 78 products an element instead of 1,039; moves between the stages take some of the difference.
    assert seconds[0] < seconds[1] / 2


def test_a_length_without_bound_is_refused_at_once() -> None:
    start = time.process_time()
    with pytest.raises(ModelError, match="bytes"):
        load_onnx(model((2, 4, 2), 1, "float32", 2**58 + 1))
    assert time.process_time() - start < 2.0
