"""Depthwise deconvolution of row-major planes, on values whose sums are exact."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from poolrt.workers.desc import Arg, Deconvolution, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.native.deconvolution_planes import NativePlanesDeconvolution
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from tests.workers.cases import Case, integers
from tests.workers.desc.windows import Channels, Window
from tests.workers.levels import of_level, target_of
from tests.workers.native_runner import NativeRunner

from .test_deconvolution import case

NONE = (0, 0)
#: Strides along the width of 1, 2 and 4; rows shorter and longer than vectors, of one and of several bands; kernels shorter than
#: the stride, of whole strides and of parts of one; edges cut inside of a phase and of a kernel; several outputs of an input.
PROBLEMS = (
    (Window((8, 70), (4, 4), (2, 2), NONE, (1, 1), (1, 1)), Channels(2, 3, 1, 1)),
    (Window((13, 21), (3, 3), (2, 2), NONE, (1, 1), (1, 1)), Channels(1, 2, 1, 3)),
    (Window((150, 70), (4, 3), (2, 2), NONE, (2, 0), (1, 0)), Channels(1, 2, 1, 1)),
    (Window((9, 40), (3, 5), (1, 1), NONE, (1, 4), (2, 0)), Channels(2, 2, 1, 2)),
    (Window((17, 87), (5, 7), (3, 4), NONE, (4, 2), (1, 5)), Channels(1, 3, 1, 1)),
    (Window((10, 38), (1, 2), (3, 4), NONE, NONE, NONE), Channels(1, 1, 1, 4)),
    (Window((67,), (6,), (4,), (0,), (5,), (2,)), Channels(3, 2, 1, 2)),
)


@pytest.mark.parametrize(("window", "channels"), PROBLEMS, ids=str)
@pytest.mark.one_in(3)
def test_taps_overlap_in_registers(native: NativeRunner, isa: str, window: Window, channels: Channels) -> None:
    problem = case(window, channels)
    assert primitive_desc(problem.op, problem.attr, target_of(isa)).impl_name() == "native:planes"
    native.check(problem, isa)
    md = problem.op.memories()[Arg.DST]
    steps = (PostOp("binary", "add", src1=md), PostOp("eltwise", "relu"))
    args = {**problem.args, post_op_src(0): integers(md.dims, "added")}
    native.check(Case("chain", problem.op, args, PrimitiveAttr(steps)), isa)


def test_processors_without_more_than_sse2_compute_them(native: NativeRunner) -> None:
    problem = case(*PROBLEMS[1])
    assert primitive_desc(problem.op, problem.attr, target_of("x86-64")).impl_name() == "native:planes"
    native.check(problem, "x86-64")


@pytest.mark.one_in(4)
def test_eight_phases_are_computed_at_once(native: NativeRunner, isa: str) -> None:
    problem = case(Window((29, 153), (16, 16), (8, 8), NONE, (4, 3), (4, 6)), Channels(1, 2, 1, 1))
    assert primitive_desc(problem.op, problem.attr, target_of(isa)).impl_name() == "native:planes"
    native.check(problem, isa)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize(("isa", "stride"), [("x86-64-v3", 2), ("x86-64-v4", 2), ("x86-64-v4", 4)])
def test_no_vector_lives_on_the_stack(isa: str, stride: int, tmp_path: Path) -> None:
    pad = (stride // 2, stride // 2)
    problem = case(Window((56, 56), (2 * stride,) * 2, (stride,) * 2, NONE, pad, pad), Channels(1, 32, 1, 1))
    (spec,) = primitive_desc(problem.op, problem.attr, of_level(isa)).program().kernels
    assert spec.generator == "deconvolution_planes"
    (tmp_path / "k.o").write_bytes(compile_kernel(spec, isa))
    command = ["objdump", "-d", "--no-show-raw-insn", str(tmp_path / "k.o")]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert any("vfmadd" in line for line in listing)
    assert not [line for line in listing if re.search(r"[yz]mm", line) and "(%rsp" in line]


@pytest.mark.parametrize(
    ("window", "channels", "why"),
    [
        (Window((9, 40), (3, 3), (2, 2), NONE, NONE, NONE), Channels(1, 1, 2, 2), "input channels a group"),
        (Window((9, 40), (3, 3), (2, 2), (0, 1), NONE, NONE), Channels(1, 2, 1, 1), "dense"),
        (Window((4, 4, 4), (2, 2, 2), (2, 2, 2), (0, 0, 0), (0, 0, 0), (0, 0, 0)), Channels(1, 2, 1, 1), "spatial"),
        (Window((9, 40), (3, 3), (3, 3), NONE, NONE, NONE), Channels(1, 2, 1, 1), "along the width"),
        (Window((40, 40), (17, 16), (2, 2), NONE, NONE, NONE), Channels(1, 2, 1, 1), "256"),
        (Window((3, 20_000), (3, 3), (2, 2), NONE, NONE, NONE), Channels(1, 2, 1, 1), "longer than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_problems_are_refused(window: Window, channels: Channels, why: str) -> None:
    problem = case(window, channels)
    assert isinstance(problem.op, Deconvolution)
    assert why in str(NativePlanesDeconvolution().reject(problem.op, problem.attr, cpu_target()))
