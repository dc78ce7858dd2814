"""Convolutions of 8-bit integers: sums exact on every ISA level, results within the rounding of float64's."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    Convolution,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    post_op_src,
    scales_of,
    zero_points_of,
)
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]
LIMITS = {"u8": (0, 255), "s8": (-128, 127), "s32": (-(2**31), 2**31 - 1)}

#: Levels without the dot-product instruction are for the thorough tier: tests of cells compute on one of them by default.
INSTRUCTIONS = [
    *(pytest.param(level, marks=pytest.mark.slow) for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")),
    "x86-64-v4+avx512_vnni",
    "x86-64-v4+avx512_vnni+amx_int8",
    "x86-64-v3+avx_vnni",
]


@dataclass(frozen=True)
class Shape:
    """Inputs and outputs of a group, groups; kernel, strides, dilation (1: dense) and padding; height and width."""

    inputs: int
    outputs: int
    groups: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: int
    pad: tuple[int, int]
    size: tuple[int, int]


SHAPES = (
    Shape(64, 64, 1, (1, 1), (1, 1), 1, (0, 0), (5, 9)),
    Shape(16, 40, 1, (3, 3), (1, 1), 1, (1, 1), (7, 7)),
    Shape(3, 17, 1, (7, 7), (2, 2), 1, (3, 3), (15, 13)),
    Shape(20, 5, 1, (3, 2), (2, 1), 2, (1, 0), (9, 8)),
    Shape(33, 48, 1, (1, 1), (2, 2), 1, (0, 0), (6, 16)),
    Shape(6, 16, 3, (3, 3), (1, 2), 1, (1, 1), (6, 9)),
    # One input, whose copy has no room between the numbers of a row
    Shape(1, 20, 1, (5, 5), (1, 2), 1, (2, 2), (9, 40)),
    # Blocks of 16 outputs that have those of two groups, or of three
    Shape(10, 24, 5, (3, 3), (1, 1), 1, (1, 1), (5, 7)),
    Shape(116, 100, 2, (1, 1), (1, 1), 1, (0, 0), (5, 7)),
    Shape(3, 9, 5, (2, 3), (2, 1), 1, (1, 1), (5, 7)),
    # Blocks that have those of two or four whole groups
    Shape(8, 8, 6, (3, 3), (1, 1), 1, (1, 1), (5, 7)),
    Shape(4, 4, 8, (3, 3), (2, 2), 1, (1, 1), (7, 7)),
    Shape(5, 4, 4, (1, 1), (1, 1), 1, (0, 0), (5, 7)),
    Shape(12, 8, 2, (3, 1), (1, 1), 2, (1, 0), (7, 9)),
)

#: What tiles of AMX do not compute.
WITHOUT_AMX = SHAPES[7:]

#: One input and one output a group, the last block of channels not full.
DEPTHWISE = Shape(1, 1, 35, (3, 3), (1, 2), 1, (1, 1), (6, 19))
#: All of them, for the thorough tier but one.
EACH = [pytest.param(shape, marks=[pytest.mark.slow] * (shape != SHAPES[1])) for shape in (*SHAPES, DEPTHWISE)]


def sums(shape: Shape, src: Array, weights: Array, point: int) -> Array:
    """Return the convolution of integers in 64 bits."""
    top, left = shape.pad
    src = np.pad(src.astype(np.int64) - point, ((0, 0), (0, 0), (top, top), (left, left)))
    rows, columns = (
        (length - (kernel - 1) * shape.dilation - 1) // stride + 1
        for length, kernel, stride in zip(src.shape[2:], shape.kernel, shape.strides, strict=True)
    )
    parts = []
    for group, kernels in enumerate(np.split(weights.astype(np.int64), shape.groups)):
        found = np.zeros((len(src), len(kernels), rows, columns), np.int64)
        channels = src[:, group * shape.inputs : (group + 1) * shape.inputs]
        for i, j in np.ndindex(shape.kernel):
            down, across = i * shape.dilation, j * shape.dilation
            seen = channels[:, :, down :: shape.strides[0], across :: shape.strides[1]][:, :, :rows, :columns]
            found += np.einsum("nchw,oc->nohw", seen, kernels[:, :, i, j])
        parts.append(found)
    return np.concatenate(parts, 1)


def how_of(instructions: str) -> str:
    """Return how numbers are multiplied with some instructions."""
    if "amx" in instructions:
        return "amx"
    return "vnni" if "+" in instructions else "pairs"


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("shape", EACH, ids=str)
def test_sums_are_exact(native: NativeRunner, shape: Shape, instructions: str) -> None:
    for dtype in ("u8", "s8"):
        rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
        # Given numbers of any size, a zero point of src that padding stands for, a bias and a zero point of dst
        src, weights = drawn(rng, shape, dtype)
        point, added = int(rng.integers(*LIMITS[dtype])), int(rng.integers(-1000, 1000))
        bias = rng.integers(-100000, 100000, len(weights))
        points = [Quantisation(Arg.SRC), Quantisation(Arg.DST, 0, (added,))]
        if dtype == "s8" and shape == DEPTHWISE:
            point, points = 0, points[1:]
        attr = PrimitiveAttr((), (), tuple(points))
        want = sums(shape, src, weights, point) + bias[:, None, None] + added
        # When it is computed
        pd = primitive_desc(described(shape, src, dtype, "s32", "s32"), attr, target_of(instructions))
        args: dict[int, Array] = {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.BIAS: bias}
        args |= {zero_points_of(item.arg): np.array([point]) for item in points if not item.values}
        got = native.results(pd, args)[Arg.DST]
        # Then it is what 64-bit arithmetic gives
        how = how_of(instructions.replace("+amx_int8", "") if shape in WITHOUT_AMX else instructions)
        how = "winograd" if (shape, instructions) == (SHAPES[1], "x86-64-v3") else how
        assert pd.impl_name() == ("native:depthwise_integer" if shape == DEPTHWISE else f"native:integer_{how}")
        np.testing.assert_array_equal(got, want, f"{dtype} {point}")


@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_pictures_of_few_channels_are_widened_in_vectors_and_one_by_one(native: NativeRunner, dtype: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for inputs in (3, 4):
        # Given planes whose rows are longer than a vector
        shape = Shape(inputs, 16, 1, (2, 3), (1, 2), 1, (0, 2), (4, 37))
        src, weights = drawn(rng, shape, dtype)
        point = int(rng.integers(*LIMITS[dtype]))
        # When they are convolved
        attr = PrimitiveAttr((), (), (Quantisation(Arg.SRC),))
        pd = primitive_desc(described(shape, src, dtype, None, "s32"), attr, target_of("x86-64-v3"))
        args: dict[int, Array] = {Arg.SRC: src, Arg.WEIGHTS: weights, zero_points_of(Arg.SRC): np.array([point])}
        # Then sums are exact
        assert (pd.impl_name(), pd.memories()[Arg.SRC].tag) == ("native:integer_pairs", "abcd")
        np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], sums(shape, src, weights, point))


@pytest.mark.parametrize("instructions", [INSTRUCTIONS[1], *INSTRUCTIONS[3:]])
@pytest.mark.parametrize(
    ("dtype", "result", "added", "bound"),
    [
        ("u8", "u8", "u8", "relu"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("s8", "s8", "sum", ""), ("u8", "s8", "", "clip"), ("s8", "f32", "f32", "relu"),
                ("u8", "s32", "s32", ""), ("u8", "u8", "sum", "relu"),
            ]
        ),
    ],
)  # fmt: skip
def test_requantized_results_are_those_of_float64_up_to_rounding(
    native: NativeRunner, dtype: str, result: str, added: str, bound: str, instructions: str
) -> None:
    target = target_of(instructions)
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    for shape in (SHAPES[1], SHAPES[4], SHAPES[7], SHAPES[10], *(() if added else (DEPTHWISE,))):
        # Given scales of each argument, of weights one an output, zero points, a float bias, an addition and a bound
        src, weights = drawn(rng, shape, dtype)
        bias = rng.normal(size=len(weights)).astype(np.float32)
        scales: dict[Arg, Array] = {
            Arg.SRC: np.array([0.02], np.float32),
            Arg.WEIGHTS: rng.uniform(0.002, 0.01, len(weights)).astype(np.float32),
            Arg.DST: np.array([0.11], np.float32),
        }
        points = {Arg.SRC: 3, Arg.DST: 7}
        value = sums(shape, src, weights, points[Arg.SRC]) * float(scales[Arg.SRC][0])
        value = value * scales[Arg.WEIGHTS].astype(np.float64)[:, None, None] + bias[:, None, None]
        former = rng.integers(0, 100, value.shape)
        op = described(shape, src, dtype, "f32", result)
        args: dict[int, Array] = {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.BIAS: bias}
        args |= {scales_of(arg): given for arg, given in scales.items()}
        args |= {zero_points_of(arg): np.array([given]) for arg, given in points.items()}
        steps = []
        if added == "sum":
            steps.append(PostOp.accumulate(0.5, 3))
            args[Arg.DST], value = former, value + 0.5 * (former - 3)
        elif added:
            layout = primitive_desc(op, PrimitiveAttr(), target).memories()[Arg.DST].tag
            steps.append(PostOp("binary", "add", src1=MemoryDesc(value.shape, added, layout)))
            args[post_op_src(0)], value = former, value + former
        if bound:
            steps.append(PostOp("eltwise", bound, 0.0, 0.0 if bound == "relu" else 6.0))
            value = np.clip(value, 0.0, None if bound == "relu" else 6.0)
        attr = PrimitiveAttr(
            tuple(steps), tuple(Quantisation(arg, int(arg == Arg.WEIGHTS)) for arg in scales),
            tuple(Quantisation(arg) for arg in points),
        )  # fmt: skip
        value = value / float(scales[Arg.DST][0]) + points[Arg.DST]
        # When it is computed
        pd = primitive_desc(op, attr, target)
        got = native.results(pd, args)[Arg.DST].astype(np.float64)
        # Then floats are near, and integers are others only if the value is nearly half-way between two
        assert "integer" in pd.impl_name()
        if result == "f32":
            np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-4)
            continue
        want = np.clip(np.rint(value), *LIMITS[result])
        halfway = np.abs(value - np.floor(value) - 0.5) < 1e-3 + np.abs(value) * 1e-6
        assert np.array_equal(np.where(halfway, got, want), got)
        assert np.abs(got - want).max() <= 1


def test_weights_are_packed_in_groups_and_activations_have_their_channels_last() -> None:
    op = described(SHAPES[1], np.zeros((1, 16, 7, 7)), "u8", None, "u8")
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target("x86-64-v3"))
    assert [pd.memories()[arg].tag for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST)] == ["acdb", "AcdB16a2b", "acdb"]


def drawn(rng: np.random.Generator, shape: Shape, dtype: str) -> tuple[Array, Array]:
    """Return src of two images and weights, of any numbers that their types hold."""
    low, high = LIMITS[dtype]
    src = rng.integers(low, high + 1, (2, shape.groups * shape.inputs, *shape.size))
    return src, rng.integers(-128, 128, (shape.groups * shape.outputs, shape.inputs, *shape.kernel))


def described(shape: Shape, src: Array, dtype: str, bias: str | None, result: str) -> Convolution:
    """Return the descriptor with all layouts left open."""
    outputs = shape.groups * shape.outputs
    sizes = (
        (length + 2 * pad - (kernel - 1) * shape.dilation - 1) // stride + 1
        for length, pad, kernel, stride in zip(shape.size, shape.pad, shape.kernel, shape.strides, strict=True)
    )
    return Convolution(
        MemoryDesc(src.shape, dtype, "any"),
        MemoryDesc((outputs, shape.inputs, *shape.kernel), "s8", "any"),
        None if bias is None else MemoryDesc((outputs,), bias),
        MemoryDesc((len(src), outputs, *sizes), result, "any"),
        shape.strides, (shape.dilation - 1,) * 2, shape.pad, shape.pad, shape.groups,
    )  # fmt: skip
