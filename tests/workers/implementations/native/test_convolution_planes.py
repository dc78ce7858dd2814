"""Convolution of one channel a group on row-major planes: windows of any size, in bands and in pieces of rows."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from poolrt import Graph
from poolrt.graph.lower import lower
from poolrt.workers.desc import Arg, Convolution, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.plans.execution_plan import Step
from tests.workers.cases import Case
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

#: Source and window in two or three dimensions, strides, dilations (0 is dense), padding before and behind.
PROBLEMS = [
    pytest.param((2, 3, 5, 17), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), id="a row of 16 and one more"),
    pytest.param((1, 2, 9, 7), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), id="rows shorter than a vector"),
    pytest.param((1, 2, 6, 1), (3, 1), (1, 1), (0, 0), (1, 0), (1, 0), id="one column"),
    pytest.param((1, 2, 1, 300), (1, 5), (1, 1), (0, 3), (0, 6), (0, 6), id="one row, dilated"),
    pytest.param((1, 2, 21, 33), (3, 3), (2, 2), (0, 0), (0, 1), (1, 0), id="every second place"),
    pytest.param((1, 3, 14, 14), (5, 5), (2, 2), (0, 0), (2, 2), (2, 2), id="five by five, every second place"),
    pytest.param((2, 3, 9, 28), (3, 3), (2, 2), (0, 0), (1, 1), (1, 0), id="half a vector of every second place"),
    pytest.param((1, 2, 19, 112), (3, 4), (1, 2), (0, 0), (1, 2), (1, 2), id="vectors of every second place"),
    pytest.param((1, 2, 5, 20), (3, 9), (2, 2), (0, 1), (1, 16), (1, 9), id="more padding than a vector"),
    pytest.param((1, 2, 20, 41), (3, 2), (3, 3), (0, 1), (1, 2), (2, 1), id="every third place"),
    pytest.param((1, 2, 21, 150), (5, 5), (4, 4), (0, 0), (2, 2), (2, 2), id="every fourth place"),
    pytest.param((1, 2, 14, 130), (3, 2), (3, 3), (0, 3), (1, 3), (1, 2), id="every third place of one phase"),
    pytest.param(
        (2, 2, 23, 199), (2, 3), (5, 5), (1, 1), (0, 1), (2, 0), id="every fifth place, with rows that none sees"
    ),
    pytest.param((1, 2, 30, 250), (1, 1), (7, 7), (0, 0), (0, 3), (0, 5), id="every seventh place"),
    pytest.param((1, 2, 15, 210), (1, 4), (2, 6), (0, 1), (1, 2), (0, 3), id="every sixth place"),
    pytest.param((1, 2, 100, 35), (2, 2), (40, 1), (0, 0), (0, 0), (0, 0), id="rows far apart"),
    pytest.param((1, 2, 90, 40), (7, 7), (1, 1), (0, 0), (3, 3), (3, 3), id="several bands"),
    pytest.param((1, 2, 12, 600), (3, 3), (1, 1), (1, 1), (2, 2), (2, 2), id="pieces of rows"),
    pytest.param((1, 2, 30, 23), (9, 9), (1, 1), (0, 0), (4, 4), (4, 4), id="a loop over columns"),
    pytest.param((1, 2, 24, 37), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), id="tall tiles"),
    pytest.param((1, 2, 40, 23), (31, 9), (1, 1), (0, 0), (15, 4), (15, 4), id="tall tiles with a loop over columns"),
    pytest.param((1, 2, 31, 47), (11, 9), (2, 3), (1, 0), (9, 4), (7, 3), id="a loop over columns with gaps"),
    pytest.param((1, 2, 40, 21), (33, 3), (1, 1), (0, 0), (16, 1), (16, 1), id="a window with loops"),
    pytest.param((2, 3, 5, 6, 18), (3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), (1, 1, 1), id="slabs"),
    pytest.param((1, 3, 9, 7, 40), (2, 3, 4), (2, 2, 3), (2, 0, 1), (1, 0, 2), (3, 1, 1), id="slabs with gaps"),
    pytest.param(
        (1, 2, 3, 30, 300), (3, 5, 3), (1, 1, 1), (1, 0, 0), (3, 2, 1), (1, 2, 1), id="slabs in bands and pieces"
    ),
    pytest.param(
        (1, 2, 6, 9, 20), (5, 5, 5), (1, 2, 1), (0, 0, 0), (2, 2, 2), (2, 2, 2), id="slabs with a loop over columns"
    ),
    pytest.param((2, 3, 9, 7, 13), (5, 1, 1), (1, 1, 1), (0, 0, 0), (2, 0, 0), (2, 0, 0), id="slabs as rows"),
    pytest.param(
        (1, 2, 8, 20, 31), (3, 1, 1), (2, 1, 1), (1, 0, 0), (2, 0, 0), (0, 0, 0), id="slabs as rows with gaps"
    ),
    pytest.param((1, 2, 50, 300), (11, 3), (1, 2), (4, 9), (0, 9), (3, 9), id="a copy that is not on the stack"),
]
#: Each problem with each chain of post-ops; in `make test`, with two of the three.
CHAINED = [
    pytest.param(*problem.values, chain, marks=[pytest.mark.slow] * ((p + c) % 3 == 2), id=f"{problem.id}-{chain}")
    for p, problem in enumerate(PROBLEMS)
    for c, chain in enumerate(("", "relu", "add relu"))
]


@pytest.mark.parametrize(("dims", "window", "strides", "dilations", "before", "behind", "chain"), CHAINED)
@pytest.mark.one_in(4)
def test_planes_are_convolved_by_definition(
    dims: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
    before: tuple[int, ...], behind: tuple[int, ...], chain: str, isa: str, native: NativeRunner,
) -> None:  # fmt: skip
    check(dims, dims[1], window, strides, dilations, before, behind, chain, isa, native)


@pytest.mark.parametrize("chain", ["", "add relu"])
@pytest.mark.parametrize(
    ("dims", "window"),
    [
        ((2, 3, 9, 21), (3, 3)),
        ((1, 2, 12, 40), (9, 9)),
        ((2, 2, 50), (5,)),
        ((1, 2, 4, 90, 40), (3, 3, 3)),
        ((2, 1, 11, 20), (5, 3)),
    ],
)
@pytest.mark.one_in(4)
def test_several_outputs_of_one_input(
    dims: tuple[int, ...], window: tuple[int, ...], chain: str, isa: str, native: NativeRunner
) -> None:
    ones, edges = (1,) * len(window), tuple(size // 2 for size in window)
    check(dims, 3 * dims[1], window, ones, (0,) * len(window), edges, edges, chain, isa, native)


def check(
    dims: tuple[int, ...], channels: int, window: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
    before: tuple[int, ...], behind: tuple[int, ...], chain: str, isa: str, native: NativeRunner,
) -> None:  # fmt: skip
    """Compare a convolution of one input a group, and ``channels`` outputs in all, with its definition."""
    rng = np.random.default_rng()
    sizes = [
        (size + first + last - ((taps - 1) * (gap + 1) + 1)) // stride + 1
        for size, taps, stride, gap, first, last in zip(
            dims[2:], window, strides, dilations, before, behind, strict=True
        )
    ]
    dst = MemoryDesc((dims[0], channels, *sizes), "f32")
    weights, bias = MemoryDesc((channels, 1, *window), "f32"), MemoryDesc((channels,), "f32")
    op = Convolution(
        MemoryDesc(dims, "f32"), weights, bias if chain else None, dst, strides, dilations, before, behind, dims[1]
    )
    known = {"add": PostOp("binary", "add", src1=dst), "relu": PostOp("eltwise", "relu")}
    steps = tuple(known[name] for name in chain.split())
    # Whole numbers, whose sums are exact.
    args: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {
        Arg.SRC: rng.integers(-8, 9, dims).astype(np.float32),
        Arg.WEIGHTS: rng.integers(-8, 9, weights.dims).astype(np.float32),
    }
    if chain:
        args[Arg.BIAS] = rng.integers(-8, 9, channels).astype(np.float32)
    if "add" in chain:
        args[post_op_src(0)] = rng.integers(-99, 100, dst.dims).astype(np.float32)
    case = Case("planes", op, args, PrimitiveAttr(steps), rtol=0.0)
    assert primitive_desc(op, case.attr, target_of(isa)).impl_name() == "native:planes"
    native.check(case, isa)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("window", "rows"),
    [((1, 3, 3), 8), ((1, 5, 5), 4), ((1, 7, 7), 8), ((3, 3, 3), 4), ((0, 9, 0), 4), ((0, 31, 0), 8), ((0, 0, 0), 4)],
)
def test_no_vector_of_a_tile_lives_on_the_stack(window: tuple[int, int, int], rows: int, tmp_path: Path) -> None:
    spec = KernelSpec.of("conv_planes", kernel=window, stride=(1, 1), dilation=(1, 1), on_stack=True, rows=rows)
    (tmp_path / "k.o").write_bytes(compile_kernel(spec, "x86-64-v4"))
    command = ["objdump", "-d", "--no-show-raw-insn", str(tmp_path / "k.o")]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "vfmadd" in listing
    assert not [line for line in listing.splitlines() if "zmm" in line and "(%rsp)" in line]


def planned(width: int, channels: int, before: bool, slabs: tuple[int, ...] = (), several: int = 1) -> list[str]:
    """Return the implementations of a convolution of one input a group, on an input or behind another convolution."""
    graph = Graph("g")
    value = graph.input("x", (1, channels, *slabs, 14, width), "float32")
    if before:
        before_it = graph.constant(np.ones((channels, channels, *(3 for _ in slabs), 3, 3), np.float32))
        value = graph.convolution(value, before_it, padding=1)
    weights = graph.constant(np.ones((several * channels, 1, *(3 for _ in slabs), 3, 3), np.float32))
    graph.output("y", graph.convolution(value, weights, padding=1, groups=channels))
    lowered = lower(graph.to_ir(), {"cpu": target_of("x86-64-v3")})
    return [lowered.primitives[step.primitive].impl_name() for step in lowered.plan.steps if isinstance(step, Step)]


def test_row_major_planes_are_convolved_where_they_are_unless_their_rows_are_short() -> None:
    assert planned(14, 64, False) == ["native:planes"]
    assert planned(7, 3, False) == ["native:planes"]
    assert planned(7, 64, False) == ["native:nest", "native:depthwise", "native:nest"]
    assert planned(14, 64, False, (5,)) == ["native:planes"]
    assert planned(7, 64, False, (5,)) == ["native:nest", "native:depthwise", "native:nest"]
    assert planned(14, 64, True, (5,))[-2:] == ["native:depthwise", "native:nest"]
    assert planned(14, 64, True)[-2:] == ["native:depthwise", "native:nest"]


def test_several_outputs_of_one_input_are_planes_of_more_than_one_row() -> None:
    assert planned(7, 64, False, several=2) == ["native:planes"]
    assert planned(14, 64, True, several=3)[-2:] == ["native:nest", "native:planes"]


def test_few_outputs_of_a_single_channel_are_planes() -> None:
    assert planned(14, 1, False) == ["native:planes"]
    assert planned(14, 1, False, several=8) == ["native:planes"]
    assert "native:planes" not in planned(14, 1, False, several=9)
