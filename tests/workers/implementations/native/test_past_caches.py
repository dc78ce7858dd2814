"""Large results, which kernels for AVX2 write past the caches: whole lines, wherever rows and the result begin.

Kernels for AVX-512 ask for the rows of their sources instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from poolrt.workers.desc import (
    Arg,
    Binary,
    Eltwise,
    Gather,
    LayerNormalization,
    MemoryDesc,
    OpDesc,
    Pad,
    PrimitiveAttr,
    Scatter,
    Softmax,
)
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import numpy_type, results
from tests.workers.levels import of_level, target_of
from tests.workers.native_runner import GuardedBuffer, NativeRunner

LARGE: Final = 8 << 20


class MisplacedBuffer(GuardedBuffer):
    """Memory that begins within a cache line."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes + 12)
        self.content, self.address = self.content[12:], self.address + 12


class MisplacedRunner(NativeRunner):
    """Runs primitives whose arguments all begin within a cache line."""

    def memory(self, nbytes: int, is_written: bool) -> GuardedBuffer:
        return MisplacedBuffer(nbytes)


def large(row: int, dtype: str = "f32") -> MemoryDesc:
    """Return rows of elements that are large together."""
    return MemoryDesc((LARGE // (row * numpy_type(dtype).itemsize) + 2, row), dtype)


def softmax(md: MemoryDesc) -> OpDesc:
    """Return a softmax of rows."""
    return Softmax(md, md, 1)


def layer_normalization(md: MemoryDesc) -> OpDesc:
    """Return a layer normalization of rows."""
    return LayerNormalization(md, md, 1e-5)


def problems() -> dict[str, OpDesc]:
    odd, even, tall = large(1003), large(1000), MemoryDesc((2100, 1000), "f32")
    one = MemoryDesc((1, 1000), "f32")
    return {
        "softmax": softmax(odd),
        "softmax of short rows": Softmax(large(64), large(64), 1),
        "softmax of f16": Softmax(large(1001, "f16"), large(1001, "f16"), 1),
        "log softmax": Softmax(even, even, 1, "log"),
        "layer normalization": layer_normalization(odd),
        "root mean square": LayerNormalization(large(4096), large(4096), 1e-5, ("rms_norm", "use_scale")),
        "eltwise": Eltwise(odd, odd, "relu"),
        "eltwise of f16": Eltwise(large(1001, "f16"), large(1001, "f16"), "abs"),
        "eltwise of f64": Eltwise(large(1001, "f64"), large(1001, "f64"), "abs"),
        "binary": Binary(odd, odd, odd, "add"),
        "binary of a row": Binary(even, one, even, "mul"),
        "pad": Pad(tall, MemoryDesc((2103, 1000), "f32"), (1, 0), (2, 0)),
        "scatter": Scatter(
            tall, MemoryDesc((9, 1), "s64"), MemoryDesc((9, 1000), "f32"), tall, "nd"
        ),
        "gather": Gather(
            MemoryDesc((9, 1003), "f32"), MemoryDesc((2100,), "s64"), MemoryDesc((2100, 1003), "f32"), "rows", 0
        ),
        "gather of pairs": Gather(
            MemoryDesc((9, 2, 1003), "f32"), MemoryDesc((2100, 2), "s64"), MemoryDesc((2100, 1003), "f32"), "nd"
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", problems())
@pytest.mark.one_in(4)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_large_results_are_right(name: str, level: str, native: NativeRunner) -> None:
    op, rng = problems()[name], np.random.default_rng()
    runner: NativeRunner = native if rng.integers(2) else MisplacedRunner()
    pd = primitive_desc(op, PrimitiveAttr(), target_of(level))
    args: dict[int, Any] = {}
    for arg, md in pd.memories().items():
        if arg not in pd.op.outputs():
            values, most = rng.standard_normal(md.dims), 2 if md.dims[1:] == (2,) else 9
            args[arg] = (
                values if md.dtype != "s64" else rng.integers(-most if name.startswith("gather") else 0, most, md.dims)
            ).astype(numpy_type(md.dtype))
    got = runner.results(pd, args)[Arg.DST]
    near = 2e-3 if op.memories()[Arg.DST].dtype == "f16" else 2e-6
    np.testing.assert_allclose(got, results(op, PrimitiveAttr(), args)[Arg.DST], near, near)


@pytest.mark.parametrize("name", problems())
def test_large_results_are_written_past_the_caches_of_avx2_only(name: str) -> None:
    op = problems()[name]
    for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        kernels = primitive_desc(op, PrimitiveAttr(), of_level(level)).program().kernels
        assert any(dict(spec.params).get("streams") for spec in kernels) is (level == "x86-64-v3"), kernels


@pytest.mark.parametrize("kind", [softmax, layer_normalization])
def test_kernels_for_avx512_alone_ask_for_far_rows(kind: Callable[[MemoryDesc], OpDesc]) -> None:
    # Rows of 2 KiB and less, results of 2 MiB and less.
    for rows, length, is_far in ((1024, 512, True), (1024, 511, False), (1023, 512, False), (16, 1 << 15, True)):
        for level in ("x86-64-v3", "x86-64-v4"):
            pd = primitive_desc(kind(MemoryDesc((rows, length), "f32")), PrimitiveAttr(), of_level(level))
            (kernel,) = pd.program().kernels
            assert dict(kernel.params)["asks"] is (is_far and level == "x86-64-v4")
