"""Depthwise convolution in blocks of channels with rows in pieces, whose taps are written out."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from poolrt import Graph
from poolrt.graph.lower import lower
from poolrt.workers.desc import Arg, Convolution, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.implementations.primitive_desc import primitive_descs
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.native.row_pieces import columns_of_piece, pieces_of
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.plans.execution_plan import Step
from tests.workers.cases import Case
from tests.workers.kernels.native.test_conv import loops_with_multiplications
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

#: ISA levels whose kernels have taps written out.
LEVELS = ("x86-64-v3", "x86-64-v4")
#: Height and width, window, strides, distance of taps, padding.
PROBLEMS = [
    pytest.param((3, 45), (3, 5), (1, 1), 1, 2, id="pieces of two lengths"),
    pytest.param((5, 60), (3, 3), (2, 2), 1, 1, id="every second column"),
    pytest.param((9, 33), (3, 3), (1, 1), 6, 6, id="dilated"),
    pytest.param((2, 20), (7, 3), (1, 1), 1, 3, id="rows of padding only"),
    pytest.param((3, 29), (1, 2), (1, 3), 30, 31, id="pieces of padding only"),
    pytest.param((70,), (11,), (1,), 1, 5, id="one row"),
]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("size", "kernel", "strides", "apart", "pad"), PROBLEMS)
@pytest.mark.parametrize("channels", [32, 23, 7])
@pytest.mark.parametrize("chain", ["", "relu", "add relu", "relu add"])
def test_pieces_of_rows_are_convolved_by_definition(
    native: NativeRunner, size: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], apart: int, pad: int,
    channels: int, chain: str, level: str,
) -> None:  # fmt: skip
    draw = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    out = [(n + 2 * pad - (k - 1) * apart - 1) // step + 1 for n, k, step in zip(size, kernel, strides, strict=True)]
    tag = f"aB{'cd'[: len(size)]}16b"
    src, dst = MemoryDesc((2, channels, *size), "f32", tag), MemoryDesc((2, channels, *out), "f32", tag)
    weights, bias = MemoryDesc((channels, 1, *kernel), "f32", "any"), MemoryDesc((channels,), "f32")
    gaps, pads = (apart - 1,) * len(size), (pad,) * len(size)
    op = Convolution(src, weights, bias, dst, strides, gaps, pads, pads, channels)
    known = {"relu": PostOp("eltwise", "relu"), "add": PostOp("binary", "add", src1=dst)}
    steps = tuple(known[name] for name in chain.split())
    dims = {int(Arg.SRC): src.dims, int(Arg.WEIGHTS): weights.dims, int(Arg.BIAS): bias.dims}
    dims |= {post_op_src(at): dst.dims for at, step in enumerate(steps) if step.src1}
    args = {arg: draw.integers(-8, 9, each).astype(np.float32) for arg, each in dims.items()}
    found = primitive_descs(op, PrimitiveAttr(steps), target_of(level))
    (pd,) = (pd for pd in found if pd.impl_name() == "native:depthwise")
    assert ("flat", True) in pd.program().kernels[0].params
    native.check(Case("pieces", pd.op, args, PrimitiveAttr(steps), rtol=0), level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "row", [(28, 28, 7, 1, 1, 3), (56, 28, 3, 2, 1, 1), (33, 33, 3, 1, 6, 6), (3, 40, 2, 1, 30, 31), (5, 1, 3, 1, 1, 0)]
)
def test_pieces_have_each_output_and_each_tap_inside_once(row: tuple[int, ...], level: str) -> None:
    width, out_width, kernel, stride, dilation, left = row
    columns, seen = 0, []
    for piece in pieces_of(level, *row):
        assert piece.first == columns
        assert piece.columns <= columns_of_piece(level, kernel)
        for first in range(piece.first, piece.first + piece.number * piece.columns, piece.columns):
            seen += [(first * stride - left + x, first + column, tap) for x, column, tap in piece.taps]
        columns += piece.number * piece.columns
    assert columns == out_width
    places = [(at * stride - left + tap * dilation, at, tap) for at in range(out_width) for tap in range(kernel)]
    assert sorted(seen) == sorted(place for place in places if 0 <= place[0] < width)


@pytest.mark.one_in(3)
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "row", [
        (28, 28, 7, 1, 1, 3), (112, 56, 3, 2, 1, 1), (33, 33, 3, 1, 6, 6), (64, 64, 11, 1, 1, 5), (14, 14, 27, 1, 1, 13),
        (7, 7, 3, 1, 1, 1), (14, 14, 5, 1, 1, 2),
    ],
)  # fmt: skip
def test_the_sums_of_pieces_stay_in_registers(row: tuple[int, ...], level: str, tmp_path: Path) -> None:
    spec = KernelSpec.of("conv_depthwise", ragged=False, row=row, flat=True)
    loops = loops_with_multiplications(compile_kernel(spec, level), tmp_path)
    found = [sum("fmadd" in line for line in body) for body in loops]
    halves = 1 if level == "x86-64-v4" else 2
    assert sum(count for count in found if count > 8) >= halves * sum(
        len(piece.taps) for piece in pieces_of(level, *row)
    )
    for body in loops:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line]


def planned(channels: int, width: int, window: int, level: str) -> list[str]:
    """Return the implementations of a depthwise convolution of an input."""
    graph = Graph("g")
    weights = graph.constant(np.ones((channels, 1, window, window), np.float32))
    value = graph.convolution(graph.input("x", (1, channels, 16, width)), weights, padding=window // 2, groups=channels)
    graph.output("y", value)
    lowered = lower(graph.to_ir(), {"cpu": target_of(level)})
    return [lowered.primitives[step.primitive].impl_name() for step in lowered.plan.steps if isinstance(step, Step)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("channels", "width", "window", "name"),
    [
        pytest.param(64, 28, 3, "planes", id="vectors of planes are nearly full"),
        pytest.param(64, 20, 3, "depthwise on AVX-512", id="vectors of planes are half empty"),
        pytest.param(20, 20, 3, "planes", id="and so are blocks"),
        pytest.param(64, 28, 7, "depthwise", id="larger windows"),
        pytest.param(64, 32, 7, "planes", id="vectors of planes are full"),
        pytest.param(64, 32, 9, "depthwise", id="taps of planes are not written out"),
        pytest.param(64, 56, 31, "planes", id="and neither are those of blocks"),
    ],
)
def test_graphs_reorder_planes_into_blocks_if_that_takes_less_time(
    channels: int, width: int, window: int, name: str, level: str
) -> None:
    blocks = ["native:nest", "native:depthwise", "native:nest"]
    in_blocks = name == "depthwise" or (name == "depthwise on AVX-512" and level == "x86-64-v4")
    assert planned(channels, width, window, level) == (blocks if in_blocks else ["native:planes"])
