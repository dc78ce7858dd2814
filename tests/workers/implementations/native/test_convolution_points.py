"""Convolution of row-major planes by windows of one element: groups of any size, rows in tiles and parts of them."""

from __future__ import annotations

import re
import shutil
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
from tests.workers.kernels.native.test_conv import loops_with_multiplications
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

#: Source, outputs, groups, strides.
PROBLEMS = (
    ((1, 6, 9, 15), 9, 3, (1, 1)),
    ((2, 3, 70), 7, 1, (1,)),
    ((1, 1, 2100), 2, 1, (1,)),
    ((2, 4, 7, 131), 12, 2, (2, 2)),
    ((1, 2, 33), 2, 2, (2,)),
    ((1, 5, 3, 5, 64), 5, 1, (2, 3, 1)),
    ((1, 2, 3, 5, 40), 6, 1, (1, 1, 2)),
)


def convolution(src: tuple[int, ...], outputs: int, groups: int, strides: tuple[int, ...], biased: bool) -> Convolution:
    sizes = [(size - 1) // stride + 1 for size, stride in zip(src[2:], strides, strict=True)]
    dims = len(sizes)
    weights = MemoryDesc((outputs, src[1] // groups, *(1,) * dims), "f32")
    bias, dst = MemoryDesc((outputs,), "f32"), MemoryDesc((src[0], outputs, *sizes), "f32")
    zeros = (0,) * dims
    return Convolution(
        MemoryDesc(src, "f32"), weights, bias if biased else None, dst, strides, zeros, zeros, zeros, groups
    )


@pytest.mark.parametrize("chain", ["", "relu", "add relu", "relu add"])
@pytest.mark.one_in(3)
def test_points_are_convolved_by_definition(chain: str, isa: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for src, outputs, groups, strides in PROBLEMS:
        op = convolution(src, outputs, groups, strides, bool(chain))
        known = {"add": PostOp("binary", "add", src1=op.dst), "relu": PostOp("eltwise", "relu")}
        steps = tuple(known[name] for name in chain.split())
        # Whole numbers, whose sums are exact.
        args = {
            int(Arg.SRC): rng.integers(-8, 9, op.src.dims).astype(np.float32),
            int(Arg.WEIGHTS): rng.integers(-8, 9, op.weights.dims).astype(np.float32),
        }
        if chain:
            args[int(Arg.BIAS)] = rng.integers(-8, 9, op.dst.dims[1]).astype(np.float32)
        for number, step in enumerate(steps):
            if step.kind == "binary":
                args[post_op_src(number)] = rng.integers(-99, 100, op.dst.dims).astype(np.float32)
        case = Case(str(op), op, args, PrimitiveAttr(steps), rtol=0.0)
        assert primitive_desc(op, case.attr, target_of(isa)).impl_name() == "native:points"
        native.check(case, isa)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("stride", [1, 2])
def test_sums_of_a_tile_stay_in_registers(stride: int, isa: str, tmp_path: Path) -> None:
    found = loops_with_multiplications(
        compile_kernel(KernelSpec.of("conv_points", rows={"x86-64-v3": 6}.get(isa, 4), stride=stride), isa), tmp_path
    )
    assert found
    for body in found:
        assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line], body


def test_graphs_convolve_points_of_few_inputs_without_reorders() -> None:
    for inputs, groups, size, found in (
        (16, 1, 8, True),
        (64, 4, 8, True),
        (144, 2, 8, True),
        (128, 1, 8, True),
        (129, 1, 8, False),
        (24, 1, 32, True),
        (25, 1, 32, False),
        (16, 1, 3, False),
    ):
        graph = Graph("g")
        weights = graph.constant(np.ones((16, inputs // groups, 1, 1), np.float32))
        graph.output("y", graph.convolution(graph.input("x", (1, inputs, size, size)), weights, groups=groups))
        lowered = lower(graph.to_ir(), {"cpu": target_of("x86-64-v3")})
        names = [
            lowered.primitives[step.primitive].impl_name() for step in lowered.plan.steps if isinstance(step, Step)
        ]
        assert (names == ["native:points"]) == found, names
