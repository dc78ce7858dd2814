"""Native gradients on fresh random values, odd shapes and every level, beside float64."""

from __future__ import annotations

import random
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Eltwise,
    LayerNormalization,
    MemoryDesc,
    OpDesc,
    Pooling,
    PrimitiveAttr,
    Softmax,
)
from poolrt.workers.desc.attributes import ELTWISE_ALGORITHMS, STEP_ALGORITHMS
from poolrt.workers.desc.operations.eltwise import FROM_DST
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import assert_close, reference, results
from tests.references.magnitudes import gradient_magnitudes
from tests.references.pooling import pooling_winners
from tests.workers.desc.windows import Channels, Window, pooling
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.support.problems import FAST

Array = NDArray[Any]
#: Parameters of functions that have any.
PARAMETERS: Final = {
    "relu": (0.1, 0.0), "elu": (0.7, 0.0), "linear": (1.5, -0.5), "clip": (-0.5, 1.2), "clip_v2": (-0.5, 1.2),
    "hardswish": (1 / 6, 0.5), "hardsigmoid": (0.2, 0.5), "softplus": (1.3, 0.0), "swish": (1.7, 0.0), "pow": (0.7, 1.3),
}  # fmt: skip
POSITIVE: Final = ("sqrt", "log", "pow")
ALGORITHMS: Final = [(a, False) for a in ELTWISE_ALGORITHMS if a not in STEP_ALGORITHMS] + [(a, True) for a in FROM_DST]
WINDOWS: Final = (
    (Channels(2, 1, 19, 19), Window((9, 8), (3, 3), (2, 2), (0, 0), (1, 1), (1, 1))),
    (Channels(1, 1, 33, 33), Window((7, 18), (3, 2), (1, 1), (1, 0), (2, 1), (2, 0))),
    (Channels(1, 1, 5, 5), Window((4, 5, 6), (2, 3, 2), (2, 1, 3), (0, 1, 0), (0, 2, 1), (1, 2, 0))),
    (Channels(3, 1, 16, 16), Window((17,), (4,), (3,), (0,), (1,), (2,))),
)


def drawn(seed: int, md: MemoryDesc) -> Array:
    """Return normally distributed values as float32 has them."""
    return np.random.default_rng(seed).standard_normal(md.dims).astype(np.float32).astype(np.float64)


def verify(native: NativeRunner, op: OpDesc, args: dict[int, Array], isa: str = "") -> None:
    """Raise AssertionError unless the native implementation is chosen and right."""
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa) if isa else cpu_target())
    assert pd.impl_name().startswith("native:"), pd.impl_name()
    got = native.results(pd, args)
    wanted = results(op, PrimitiveAttr(), args)
    assert set(got) == {int(arg) for arg in wanted}
    for arg, want in wanted.items():
        magnitude = gradient_magnitudes(op, args, arg)
        assert_close(got[arg], want, "f32", FAST[op.kind], f"{op} argument {arg}", magnitude)


def tagged(dims: tuple[int, ...], layout: str) -> MemoryDesc:
    """Return a tensor, row-major or in blocks of 16 channels."""
    md = MemoryDesc(dims, "f32")
    return md.with_tag(f"aB{'cdef'[: len(dims) - 2]}16b") if layout == "blocked" else md


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "from_result"), ALGORITHMS)
def test_a_gradient_is_multiplied_by_the_slope(
    native: NativeRunner, algorithm: str, from_result: bool, isa: str
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    md = MemoryDesc((3, 37, 21), "f32")
    alpha, beta = PARAMETERS.get(algorithm, (0.0, 0.0))
    alpha, beta = float(np.float32(alpha)), float(np.float32(beta))
    data = drawn(seed, md) * 3.0
    data = np.abs(data) + 0.01 if algorithm in POSITIVE else data
    # Kernels get float32: near their zeros, sin and cos show how the argument was rounded.
    data = data.astype(np.float32).astype(np.float64)
    if from_result:
        src = MemoryDesc(md.dims, "f32")
        forward = Eltwise(src, src, algorithm, alpha, beta)
        data = reference(forward, PrimitiveAttr(), {Arg.SRC: data}).astype(np.float32).astype(np.float64)
    op = Eltwise(md, md, algorithm, alpha, beta, "backward_data", use_dst=from_result)
    verify(native, op, {Arg.DST if from_result else Arg.SRC: data, Arg.DIFF_DST: drawn(seed + 1, md)}, isa)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["plain", "blocked"])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("algorithm", ["accurate", "log"])
def test_gradients_of_softmax(native: NativeRunner, algorithm: str, axis: int, layout: str, isa: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    md = tagged((2, 83, 7, 19), layout)
    plain = MemoryDesc(md.dims, "f32")
    result = reference(Softmax(plain, plain, axis, algorithm), PrimitiveAttr(), {Arg.SRC: 3.0 * drawn(seed, md)})
    op = Softmax(md, md, axis, algorithm, "backward_data")
    args: dict[int, Array] = {Arg.DST: result.astype(np.float32).astype(np.float64), Arg.DIFF_DST: drawn(seed + 1, md)}
    verify(native, op, args, isa)


@pytest.mark.slow
def test_gradients_of_a_long_softmax(native: NativeRunner) -> None:
    md = MemoryDesc((2, 3001), "f32")
    result = reference(Softmax(md, md, 1), PrimitiveAttr(), {Arg.SRC: drawn(1, md)})
    args: dict[int, Array] = {Arg.DST: result.astype(np.float32).astype(np.float64), Arg.DIFF_DST: drawn(2, md)}
    verify(native, Softmax(md, md, 1, "accurate", "backward_data"), args)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["plain", "blocked"])
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_gradients_of_pooling(native: NativeRunner, number: int, algorithm: str, layout: str, isa: str) -> None:
    channels, window = WINDOWS[number]
    plain = pooling(window, channels.batch, channels.inputs, algorithm, "backward_data", "f32")
    op = Pooling(
        tagged(plain.src.dims, layout), tagged(plain.dst.dims, layout), algorithm, plain.kernel, plain.strides,
        plain.dilations, plain.padding_l, plain.padding_r, "backward_data",
    )  # fmt: skip
    seed = random.SystemRandom().randrange(1 << 32)
    # Sums of few whole numbers, whose quotients are rounded before they are added.
    rng = np.random.default_rng(seed)
    args: dict[int, Array] = {Arg.DIFF_DST: rng.integers(1, 9, op.dst.dims).astype(np.float64)}
    if algorithm == "max":
        args[Arg.WORKSPACE] = pooling_winners(op, rng.standard_normal(op.src.dims))
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:pooling_backward"
    got = native.results(pd, args)
    wanted = results(op, PrimitiveAttr(), args)
    assert_close(got[Arg.DIFF_SRC], wanted[Arg.DIFF_SRC], "f32", FAST["pooling"], str(op))


@pytest.mark.parametrize("layout", ["plain", "blocked"])
def test_winners_outside_of_a_window_add_to_nothing(native: NativeRunner, layout: str) -> None:
    window = Window((4, 4), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1))
    plain = pooling(window, 1, 3, "max", "backward_data", "f32")
    op = Pooling(
        tagged(plain.src.dims, layout), tagged(plain.dst.dims, layout), "max", plain.kernel, plain.strides,
        plain.dilations, plain.padding_l, plain.padding_r, "backward_data",
    )  # fmt: skip
    winners = np.random.default_rng(3).choice([-1, 0, 2, 9, 1 << 30, -(1 << 31)], op.dst.dims).astype(np.float64)
    args: dict[int, Array] = {Arg.DIFF_DST: np.ones(op.dst.dims), Arg.WORKSPACE: winners}
    verify(native, op, args)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ("use_scale", "use_shift"),
        (),
        ("use_global_stats", "use_scale"),
        ("use_shift",),
        ("rms_norm", "use_scale", "use_shift"),
    ],
)
@pytest.mark.parametrize("dims", [(5, 30, 37), (700, 16), (3, 2051), (1, 1)])
@pytest.mark.parametrize("prop", ["backward_data", "backward"])
def test_gradients_of_layer_normalization(
    native: NativeRunner, prop: str, dims: tuple[int, ...], flags: tuple[str, ...], isa: str
) -> None:
    md = MemoryDesc(dims, "f32")
    op = LayerNormalization(md, md, 1e-5, flags, prop)
    verify(native, op, _normalized(op, tuple(range(len(dims) - 1, len(dims)))), isa)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["plain", "blocked"])
@pytest.mark.parametrize(
    "flags", [("use_scale", "use_shift"), (), ("use_global_stats", "use_scale"), ("fuse_norm_relu", "use_scale")]
)
@pytest.mark.parametrize("dims", [(3, 19, 7, 9), (37, 35), (2, 16, 40, 40), (1, 3, 5)])
@pytest.mark.parametrize("prop", ["backward_data", "backward"])
def test_gradients_of_batch_normalization(
    native: NativeRunner, prop: str, dims: tuple[int, ...], flags: tuple[str, ...], layout: str, isa: str
) -> None:
    md = tagged(dims, layout)
    op = BatchNormalization(md, md, 1e-5, flags, prop)
    verify(native, op, _normalized(op, (0, *range(2, len(dims)))), isa)


def _normalized(op: OpDesc, axes: tuple[int, ...]) -> dict[int, Array]:
    """Return values of everything that the gradients of a normalisation are computed from."""
    seed = random.SystemRandom().randrange(1 << 32)
    memories = op.memories()
    args = {arg: drawn(seed + arg, md) for arg, md in memories.items() if arg not in op.outputs()}
    src = args[Arg.SRC]
    variance = (src**2).mean(axis=axes)
    if Arg.MEAN in args:
        args[Arg.MEAN] = src.mean(axis=axes).astype(np.float32).astype(np.float64)
        variance = src.var(axis=axes)
    args[Arg.VARIANCE] = variance.astype(np.float32).astype(np.float64)
    if Arg.WORKSPACE in args:
        args[Arg.WORKSPACE] = (src > 0).astype(np.float64)
    return args
