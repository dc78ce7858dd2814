"""The first lanes of vectors: each number of them is stored, of each size, and memory behind them is not touched."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from poolrt.workers.desc import item_size
from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.engines.target import ISA_LEVELS
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import compile_function
from poolrt.workers.kernels.native.elements import elements
from tests.references import numpy_type

from .lacking_instructions import function_for_this_host

INT = types.int64
TYPES = ("f64", "f32", "f16", "s64", "s32", "s16", "u8", "bool")


@pytest.mark.parametrize("isa", tuple(ISA_LEVELS))
@pytest.mark.parametrize("dtype", TYPES)
def test_each_number_of_first_lanes_is_stored_and_nothing_behind_them(dtype: str, isa: str) -> None:
    of = elements(dtype)
    load, store_part = of.load, of.store_part

    def kernel(begin: int, end: int, src: int, dst: int, count: int) -> None:
        store_part(dst, load(src), count)

    loaded = load_object(function_for_this_host("kernel", kernel, types.void(*[INT] * 5), isa))
    size, draw = item_size(dtype), np.random.default_rng()
    src = draw.integers(0, 2 if dtype == "bool" else 100, 16).astype(numpy_type(dtype))
    for count in range(17):
        room = np.full(20 * size + 1, 0xA5, np.uint8)
        # An address that no element is aligned to
        blob = (ctypes.c_int64 * 5)(0, 1, src.ctypes.data, room.ctypes.data + 1, count)
        ret, exc = ctypes.c_int64(), ctypes.c_void_p()
        assert loaded.function(ctypes.addressof(ret), ctypes.addressof(exc), ctypes.addressof(blob)) == 0
        assert room[1 : 1 + count * size].tobytes() == src[:count].tobytes()
        assert (room[1 + count * size :] == 0xA5).all()
        assert room[0] == 0xA5


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("dtype", TYPES)
def test_parts_are_stored_without_masks_on_avx2(dtype: str, tmp_path: Path) -> None:
    """A store by a mask takes as long as ten others, and a later load waits for it."""
    of = elements(dtype)
    load, store_part = of.load, of.store_part

    def kernel(begin: int, end: int, src: int, dst: int, count: int) -> None:
        store_part(dst, load(src), count)

    made = tmp_path / "k.o"
    made.write_bytes(compile_function("kernel", kernel, types.void(*[INT] * 5), "x86-64-v3"))
    listing = subprocess.run(["objdump", "-d", str(made)], capture_output=True, text=True, check=True).stdout
    assert "vmov" in listing
    assert "maskmov" not in listing
