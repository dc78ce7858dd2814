"""Depthwise deconvolution by long strides, on values whose sums are exact."""

from __future__ import annotations

import pytest

from poolrt.workers.desc import Arg, Deconvolution, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.native.deconvolution_wide import NativeWideDeconvolution
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.cases import Case, integers
from tests.workers.desc.windows import Channels, Window
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

from .test_deconvolution import case

NONE = (0, 0)
#: Kernels shorter than the stride, of whole strides and of parts of one; edges cut inside of a stride and of a kernel; strides of
#: whole vectors and of others, one longer than any that other kernels have; several outputs of an input; one to three dimensions.
PROBLEMS = (
    (Window((200, 331), (64, 64), (32, 32), NONE, (16, 16), (8, 5)), Channels(2, 3, 1, 1)),
    (Window((37, 70), (5, 23), (3, 17), NONE, (4, 20), (1, 3)), Channels(1, 2, 1, 3)),
    (Window((10, 90), (4, 2), (4, 19), NONE, (1, 0), NONE), Channels(1, 2, 1, 2)),
    (Window((201,), (150,), (100,), (0,), (120,), (7,)), Channels(3, 2, 1, 2)),
    (Window((6, 10, 75), (3, 4, 33), (2, 2, 16), (0, 0, 0), (1, 1, 5), (0, 1, 2)), Channels(1, 2, 1, 1)),
)


@pytest.mark.parametrize(("window", "channels"), PROBLEMS, ids=str)
@pytest.mark.one_in(3)
def test_vectors_are_neighbouring_taps(native: NativeRunner, isa: str, window: Window, channels: Channels) -> None:
    problem = case(window, channels)
    assert primitive_desc(problem.op, problem.attr, target_of(isa)).impl_name() == "native:wide"
    native.check(problem, isa)
    md = problem.op.memories()[Arg.DST]
    steps = (PostOp("binary", "add", src1=md), PostOp("eltwise", "relu"))
    args = {**problem.args, post_op_src(0): integers(md.dims, "added")}
    native.check(Case("chain", problem.op, args, PrimitiveAttr(steps)), isa)


@pytest.mark.parametrize(
    ("window", "channels", "why"),
    [
        (Window((9, 40), (3, 16), (2, 16), NONE, NONE, NONE), Channels(1, 1, 2, 2), "input channels a group"),
        (Window((9, 46), (3, 16), (2, 16), (0, 1), NONE, NONE), Channels(1, 2, 1, 1), "dense"),
        (Window((9, 40), (3, 15), (3, 15), NONE, NONE, NONE), Channels(1, 2, 1, 1), "at least 16"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_problems_are_refused(window: Window, channels: Channels, why: str) -> None:
    problem = case(window, channels)
    assert isinstance(problem.op, Deconvolution)
    assert why in str(NativeWideDeconvolution().reject(problem.op, problem.attr, cpu_target()))
