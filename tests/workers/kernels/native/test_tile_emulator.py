"""The emulator of tiles computes what Intel's manual says, refuses what the manual does, and kernels give tiles back."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.kernels.native.amx_tile import (
    ALL_SUM_BYTES,
    PRODUCTS,
    SUM_BYTES,
    ask_for_tiles,
    configure_tiles,
    make_tile_sums,
    release_tiles,
)
from poolrt.workers.kernels.native.compiler import types
from tests.references import numpy_type

from .lacking_instructions import function_for_this_host
from .tile_emulator import can_be_emulated, emulate_tiles

pytestmark = pytest.mark.skipif(not can_be_emulated(), reason="needs gcc or a processor with AMX")
INSTRUCTIONS = "x86-64-v4+amx_bf16+amx_int8"
BF16 = numpy_type("bf16")
Array = NDArray[Any]


def kernel(product: str, releases: bool = True) -> NativeKernel:
    """Return a kernel that multiplies two panels by two blocks: config, steps, left, right, sums, height, groups."""
    sums = make_tile_sums(product, 2, 2)

    def multiply(
        begin: int, end: int, config: int, steps: int, left: int, right: int, to: int, height: int, groups: int
    ) -> None:
        ask_for_tiles()
        configure_tiles(config, height, groups)
        sums(0, 1, steps, left, height * groups * 4, groups * 4, 0, right, groups * 64, 0, to)
        if releases:
            release_tiles()

    return load_object(function_for_this_host("multiply", multiply, types.void(*[types.int64] * 9), INSTRUCTIONS))


def computed(product: str, left: Array, right: Array, height: int, groups: int, releases: bool = True) -> bytes:
    """Return the sums of two panels and two blocks of the first factors' bytes."""
    config, steps = np.zeros(64, np.uint8), np.array([0, 1], np.int64)
    to = np.zeros(ALL_SUM_BYTES, np.uint8)
    loaded = kernel(product, releases)
    arrays = [np.ascontiguousarray(each) for each in (config, steps, left, right, to)]
    words = (ctypes.c_int64 * 9)(0, 1, *(each.ctypes.data for each in arrays), height, groups)
    assert loaded.function(None, None, words) == 0
    return arrays[-1].tobytes()


def tile(found: bytes, i: int, j: int, height: int, dtype: Any) -> Array:
    number = 2 * i + j
    return np.frombuffer(found[number * SUM_BYTES : (number + 1) * SUM_BYTES], dtype).reshape(16, 16)[:height]


def drawn(rng: np.random.Generator, dtype: str, *dims: int) -> Array:
    low, high = {"u8": (0, 256), "s8": (-128, 128)}[dtype]
    return rng.integers(low, high, dims).astype(numpy_type(dtype))


@pytest.mark.parametrize(("height", "groups"), [(16, 16), (1, 1), (7, 13)])
@pytest.mark.parametrize("left_type", ["u8", "s8"])
def test_products_of_bytes_are_exact(left_type: str, height: int, groups: int) -> None:
    rng = np.random.default_rng()
    left, right = drawn(rng, left_type, 2, height, groups * 4), drawn(rng, "s8", 2, groups, 16, 4)
    found = computed(PRODUCTS[left_type, "s8"], left, right, height, groups)
    for i, j in np.ndindex(2, 2):
        want = np.einsum("mkc,knc->mn", left[i].reshape(height, groups, 4).astype(int), right[j].astype(int))
        np.testing.assert_array_equal(tile(found, i, j, height, np.int32), want)


@pytest.mark.parametrize(("height", "groups"), [(16, 16), (1, 1), (7, 13)])
def test_even_and_odd_products_of_bf16_are_summed_apart_and_each_step_is_rounded(height: int, groups: int) -> None:
    rng = np.random.default_rng()
    left = rng.standard_normal((2, height, groups, 2)).astype(BF16)
    right = rng.standard_normal((2, groups, 16, 2)).astype(BF16)
    found = computed(PRODUCTS["bf16", "bf16"], left, right, height, groups)
    for i, j in np.ndindex(2, 2):
        # A product of two bf16 is exact in float32, and so is a sum of two float32 in float64.
        apart = np.zeros((height, 16, 2), np.float32)
        for k in range(groups):
            products = left[i, :, k, None].astype(np.float64) * right[j, None, k].astype(np.float64)
            apart = (apart.astype(np.float64) + products).astype(np.float32)
        np.testing.assert_array_equal(tile(found, i, j, height, np.float32), apart[..., 0] + apart[..., 1])


def test_small_numbers_count_as_zero() -> None:
    left, right = (np.full((2, 1, 16, 2), value, np.float32).astype(BF16) for value in (2.0**-130, 2.0**100))
    found = computed(PRODUCTS["bf16", "bf16"], left, np.repeat(right, 16, axis=1)[:, :1], 1, 1)
    assert not np.frombuffer(found, np.float32).any()


def test_a_kernel_that_keeps_tiles_is_noticed() -> None:
    emulator = emulate_tiles()
    if emulator is None:
        pytest.skip("this processor has tiles")
    left, right = np.zeros((2, 1, 4), np.uint8), np.zeros((2, 1, 16, 4), np.int8)
    counts = []
    for releases in (True, False, True):
        before = emulator.count_products()
        computed(PRODUCTS["u8", "s8"], left, right, 1, 1, releases)
        assert emulator.count_products() == before + 4
        counts.append(emulator.count_unreleased())
    # The last one found the tiles as the one before left them, and gave them back.
    assert [counts[1] - counts[0], counts[2] - counts[0]] == [1, 0]


@pytest.mark.parametrize(
    ("height", "groups", "why"),
    [
        (17, 1, "#GP, a tile is too large"),
        (16, 17, "#GP, a tile is too large"),
        (0, 1, "#GP, a tile has rows or columns only"),
    ],
)
@pytest.mark.one_in(3)
def test_a_configuration_that_a_processor_refuses_ends_the_process(height: int, groups: int, why: str) -> None:
    if emulate_tiles() is None:
        pytest.skip("this processor has tiles")
    program = f"""
import numpy as np
from tests.workers.kernels.native.test_tile_emulator import PRODUCTS, computed
from tests.workers.kernels.native.tile_emulator import emulate_tiles
emulate_tiles()
computed(PRODUCTS["u8", "s8"], np.zeros(65536, np.uint8), np.zeros(65536, np.int8), {height}, {groups})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode < 0
    assert f"tile_emulator: ldtilecfg: {why}" in done.stderr


@pytest.fixture(autouse=True)
def emulator() -> None:
    emulate_tiles()
