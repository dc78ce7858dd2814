"""Kernels do not compute with what they find in scratch memory and on the stack: small numbers there take 150 cycles each."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Convolution, MemoryDesc, PrimitiveAttr
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.cases.case import integers
from tests.workers.levels import target_of
from tests.workers.native_runner import GuardedBuffer, NativeRunner

SOURCE = Path(__file__).parents[2] / "kernels/native/found_numbers.c"
#: A float32 below 2**-126, as an integer.
SMALL = 0x00012345


class SmallNumbersRunner(NativeRunner):
    """Gives scratch memory full of small numbers."""

    def scratchpad(self, nbytes: int) -> GuardedBuffer:
        found = super().scratchpad(nbytes)
        found.content[: nbytes // 4 * 4].view(np.uint32)[:] = SMALL
        return found


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the functions of `found_numbers.c`."""
    made = tmp_path_factory.mktemp("found") / "found_numbers.so"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(made), str(SOURCE)], check=True)
    return ctypes.CDLL(str(made))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("dims", [(1, 8, 28, 28), (1, 8, 6, 28, 28), (1, 3, 90, 150)], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_lanes_behind_the_columns_of_planes_are_zeros(
    processor: ctypes.CDLL, dims: tuple[int, ...], stride: int, isa: str
) -> None:
    channels, spatial = dims[1], dims[2:]
    out = [(size - 1) // stride + 1 for size in spatial]
    src, dst = MemoryDesc(dims, "f32"), MemoryDesc((1, channels, *out), "f32")
    weights, bias = MemoryDesc((channels, 1, *[3] * len(spatial)), "f32"), MemoryDesc((channels,), "f32")
    strides, zeros, ones = ((number,) * len(spatial) for number in (stride, 0, 1))
    op = Convolution(src, weights, bias, dst, strides, zeros, ones, ones, channels)
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:planes"
    args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
    runner = SmallNumbersRunner()
    runner.run(pd, args)  # compiles
    processor.leave_small_numbers()
    processor.forget_flags()
    runner.run(pd, args)
    assert not processor.has_met_small_numbers()
