"""Convolution to few outputs a group, of row-major planes: parts of outputs, bands, pieces, inputs at once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from poolrt import Graph
from poolrt.graph.lower import lower
from poolrt.workers.desc import Arg, Convolution, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.implementations.native.convolution_few_outputs import NativeFewOutputsConvolution
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.plans.execution_plan import Step
from tests.workers.cases import Case
from tests.workers.kernels.native.test_conv import loops_with_multiplications
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

#: Source, outputs, groups, window, strides, dilations (0 is dense), padding before and behind.
PROBLEMS = [
    pytest.param((2, 6, 9, 37), 1, 1, (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), id="one output"),
    pytest.param((1, 40, 21, 150), 3, 1, (3, 5), (1, 1), (0, 0), (1, 2), (0, 2), id="pieces, and some inputs at once"),
    pytest.param((2, 15, 13, 9), 14, 2, (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), id="two parts of outputs of each group"),
    pytest.param((1, 5, 12, 33), 8, 1, (5, 2), (2, 2), (0, 1), (2, 0), (1, 1), id="every second place"),
    pytest.param((1, 3, 20, 41), 5, 1, (3, 2), (3, 4), (1, 2), (1, 2), (2, 1), id="every fourth column"),
    pytest.param((1, 7, 18, 160), 2, 1, (5, 5), (4, 4), (0, 0), (2, 2), (2, 1), id="every fourth place"),
    pytest.param((2, 6, 22, 170), 3, 1, (1, 2), (3, 3), (0, 0), (0, 1), (1, 0), id="rows and columns that no tap reads"),
    pytest.param((1, 8, 19, 220), 4, 2, (2, 3), (4, 5), (1, 4), (1, 2), (0, 6), id="one phase of every fifth column"),
    pytest.param((2, 300, 90), 2, 1, (7,), (1,), (0,), (3,), (3,), id="a row"),
    pytest.param((1, 9, 1400), 6, 3, (4,), (2,), (2,), (0,), (5,), id="a row in pieces"),
    pytest.param((2, 4, 5, 6, 18), 3, 1, (3, 2, 3), (2, 1, 1), (0, 1, 0), (1, 1, 1), (1, 1, 1), id="slabs"),
    pytest.param((1, 4, 40, 16), 4, 1, (11, 3), (1, 1), (2, 0), (15, 1), (15, 1), id="a tall window"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "outputs", "name"), [(7, 7, "gathered"), (8, 7, "few_outputs"), (1, 1, "few_outputs")]
)
def test_rows_of_fewer_columns_than_outputs_are_for_blocks_of_outputs(columns: int, outputs: int, name: str) -> None:
    g = Graph("g")
    weights = np.ones((outputs, 40, 3, 3), np.float32)
    g.output("y", g.convolution(g.input("x", (1, 40, 9, columns + 2)), weights))
    lowered = lower(g.to_ir(), {"cpu": target_of("x86-64-v3")})
    assert f"native:{name}" in [pd.impl_name() for pd in lowered.primitives]


@pytest.mark.parametrize(("src", "outputs", "groups", "window", "strides", "dilations", "before", "behind"), PROBLEMS)
@pytest.mark.one_in(3)
def test_few_outputs_are_convolved_by_definition(
    src: tuple[int, ...], outputs: int, groups: int, window: tuple[int, ...], strides: tuple[int, ...],
    dilations: tuple[int, ...], before: tuple[int, ...], behind: tuple[int, ...], isa: str, native: NativeRunner,
) -> None:  # fmt: skip
    src = (src[0], src[1] - src[1] % groups, *src[2:])
    ends = zip(src[2:], window, strides, dilations, before, behind, strict=True)
    sizes = [(size + first + last - (k - 1) * (gap + 1) - 1) // s + 1 for size, k, s, gap, first, last in ends]
    dst, bias = MemoryDesc((src[0], outputs, *sizes), "f32"), MemoryDesc((outputs,), "f32")
    rng = np.random.default_rng()
    for chain in ("", "relu", "add relu", "relu add"):
        weights = MemoryDesc((outputs, src[1] // groups, *window), "f32", "any" if chain else "")
        op = Convolution(
            MemoryDesc(src, "f32"), weights, bias if chain else None, dst, strides, dilations, before, behind, groups
        )
        known = {"add": PostOp("binary", "add", src1=dst), "relu": PostOp("eltwise", "relu")}
        steps = tuple(known[name] for name in chain.split())
        # Whole numbers, whose sums are exact.
        args = {
            int(Arg.SRC): rng.integers(-8, 9, src).astype(np.float32),
            int(Arg.WEIGHTS): rng.integers(-8, 9, weights.dims).astype(np.float32),
        }
        if chain:
            args[int(Arg.BIAS)] = rng.integers(-8, 9, outputs).astype(np.float32)
        for number, step in enumerate(steps):
            if step.kind == "binary":
                args[post_op_src(number)] = rng.integers(-99, 100, dst.dims).astype(np.float32)
        pd = primitive_desc(op, PrimitiveAttr(steps), target_of(isa))
        assert pd.impl_name() == "native:few_outputs"
        native.check(Case(chain, pd.op, args, PrimitiveAttr(steps), rtol=0.0), isa)


def test_a_source_that_the_stack_does_not_hold_is_refused() -> None:
    plane = MemoryDesc((1, 2, 400, 400), "f32")
    weights = MemoryDesc((2, 2, 31, 31), "f32", "any")
    op = Convolution(plane, weights, None, plane, (1, 1), (9, 9), (150, 150), (150, 150), 1)
    refused = NativeFewOutputsConvolution().reject(op, PrimitiveAttr(), target_of("x86-64-v4"))
    assert refused is not None
    assert "copy of a tile's source" in refused


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(
    ("isa", "outputs", "rows", "vectors"),
    [("x86-64-v4", 4, 3, 1), ("x86-64-v4", 1, 4, 2), ("x86-64-v4", 1, 1, 8), ("x86-64-v3", 1, 4, 1), ("x86-64-v3", 4, 1, 1)],
)  # fmt: skip
def test_sums_of_a_tile_stay_in_registers(isa: str, outputs: int, rows: int, vectors: int, tmp_path: Path) -> None:
    kernel = KernelSpec.of(
        "conv_few_outputs", outputs=(outputs,), rows=rows, vectors=vectors, height=3, stride=(1, 1), dilation=1
    )
    found = loops_with_multiplications(compile_kernel(kernel, isa), tmp_path)
    assert found
    for body in found:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line], body


def planned(
    inputs: int, outputs: int, groups: int = 1, window: int = 3, before: bool = False, width: int = 20
) -> list[str]:
    """Return the implementations of a convolution of an input, or behind another convolution."""
    graph = Graph("g")
    value = graph.input("x", (1, inputs, 14, width))
    if before:
        value = graph.convolution(value, graph.constant(np.ones((inputs, inputs, 3, 3), np.float32)), padding=1)
    weights = graph.constant(np.ones((outputs, inputs // groups, window, window), np.float32))
    graph.output("y", graph.convolution(value, weights, padding=window // 2, groups=groups))
    lowered = lower(graph.to_ir(), {"cpu": target_of("x86-64-v4")})
    return [lowered.primitives[step.primitive].impl_name() for step in lowered.plan.steps if isinstance(step, Step)]


def test_graphs_convolve_planes_to_few_outputs_unless_groups_are_in_blocks() -> None:
    assert planned(64, 8) == ["native:few_outputs"]
    assert planned(64, 1, before=True)[-2:] == ["native:nest", "native:few_outputs"]
    assert planned(64, 32, groups=8) == ["native:few_outputs"]
    assert "native:few_outputs" not in planned(64, 32, groups=8, before=True)
    assert "native:few_outputs" not in planned(64, 9)
    assert planned(64, 8, window=1) == ["native:points"]
    assert planned(64, 8, window=1, before=True)[-2:] == ["native:blocked", "native:nest"]


def test_groups_that_fill_blocks_are_convolved_there_if_rows_leave_vectors_half_empty() -> None:
    assert planned(64, 64, groups=8, width=7) == ["native:nest", "native:grouped", "native:nest"]
    assert "native:grouped" in planned(64, 64, groups=8, width=20)
    assert planned(64, 64, groups=8, width=28) == ["native:few_outputs"]
    assert planned(60, 60, groups=10, width=7) == ["native:few_outputs"]
