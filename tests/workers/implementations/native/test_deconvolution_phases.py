"""Deconvolution by a product for each phase, on values whose sums are exact."""

from __future__ import annotations

import pytest

from poolrt.workers.desc import Arg, Deconvolution, Matmul, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.native.deconvolution_phases import NativePhasesDeconvolution, even_lines
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.implementations.program import NestedLaunch
from tests.workers.cases import Case, integers
from tests.workers.desc.windows import Channels, Window
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

from .test_deconvolution import NONE, case

#: Kernels of one and of several strides in each dimension, the last in steps of 1 to 8 and others; rows shorter and longer
#: than vectors; edges cut inside of a phase and of a kernel; dst longer than src reaches.
PROBLEMS = (
    (Window((14, 70), (2, 2), (2, 2), NONE, NONE, NONE), Channels(2, 1, 5, 6)),
    (Window((13, 69), (2, 2), (2, 2), NONE, (1, 1), NONE), Channels(1, 2, 3, 7)),
    (Window((29, 76), (2, 8), (2, 4), NONE, (1, 3), (0, 2)), Channels(2, 1, 3, 4)),
    (Window((37, 41), (4, 4), (2, 2), NONE, (1, 1), (1, 1)), Channels(1, 3, 2, 3)),
    (Window((97, 113), (16, 16), (8, 8), NONE, (12, 3), (11, 4)), Channels(1, 1, 2, 3)),
    (Window((6, 129), (2, 8), (1, 8), NONE, (1, 0), (1, 0)), Channels(2, 1, 3, 5)),
    (Window((16, 22), (6, 2), (3, 1), NONE, (3, 0), (2, 1)), Channels(3, 1, 4, 9)),
    (Window((43,), (4,), (4,), (0,), (3,), (2,)), Channels(3, 2, 2, 5)),
    (Window((7, 10, 23), (2, 2, 2), (2, 2, 2), (0, 0, 0), (0, 1, 1), (1, 1, 0)), Channels(2, 1, 3, 4)),
    (Window((34, 7, 9), (4, 1, 2), (2, 1, 2), (0, 0, 0), (1, 0, 1), (1, 0, 0)), Channels(1, 1, 3, 4)),
    (Window((3, 5), (3, 5), (1, 2), NONE, NONE, NONE), Channels(3, 2, 7, 4)),
    (Window((28, 58), (4, 6), (2, 3), NONE, (1, 2), (1, 1)), Channels(2, 2, 3, 4)),
    (Window((10, 95), (2, 5), (2, 5), NONE, NONE, (0, 2)), Channels(1, 2, 3, 4)),
    (Window((60,), (6,), (6,), (0,), (1,), (2,)), Channels(2, 1, 5, 3)),
    (Window((9, 160), (3, 14), (3, 7), NONE, (0, 5), (0, 3)), Channels(1, 1, 4, 3)),
    # Steps for which nothing is interleaved: shorter and longer than vectors, and edges inside of a run
    (Window((14, 61), (2, 18), (2, 9), NONE, (0, 4), NONE), Channels(2, 1, 5, 3)),
    (Window((14, 171), (2, 19), (2, 19), NONE, NONE, NONE), Channels(2, 1, 5, 3)),
    (Window((200, 331), (64, 64), (32, 32), NONE, (16, 16), (8, 5)), Channels(1, 1, 2, 3)),
    (Window((6, 10, 15), (2, 4, 10), (2, 2, 5), (0, 0, 0), (0, 1, 5), (0, 1, 0)), Channels(1, 1, 3, 4)),
    # Kernels shorter than a step in some or all dimensions, whose other phases are the bias; edges among these, too
    (Window((13, 69), (1, 1), (2, 2), NONE, NONE, NONE), Channels(2, 1, 5, 6)),
    (Window((14, 70), (1, 1), (2, 2), NONE, NONE, NONE), Channels(1, 2, 3, 7)),
    (Window((29, 77), (2, 2), (3, 3), NONE, (1, 1), (0, 1)), Channels(2, 1, 3, 4)),
    (Window((29, 139), (2, 3), (4, 4), NONE, (0, 2), (1, 0)), Channels(1, 3, 2, 3)),
    (Window((26, 79), (4, 1), (2, 3), NONE, (1, 0), (1, 0)), Channels(2, 1, 3, 5)),
    (Window((15, 260), (2, 16), (3, 8), NONE, (1, 4), (0, 4)), Channels(1, 1, 5, 3)),
    (Window((4,), (1,), (4,), (0,), (0,), (0,)), Channels(2, 1, 7, 4)),
    (Window((57,), (2,), (7,), (0,), (1,), (0,)), Channels(3, 2, 2, 5)),
    (Window((8, 11, 50), (1, 2, 2), (2, 3, 3), (0, 0, 0), (0, 1, 0), (0, 0, 1)), Channels(2, 1, 3, 4)),
    (Window((20, 19, 25), (2, 4, 1), (3, 2, 1), (0, 0, 0), (0, 0, 0), (0, 1, 0)), Channels(1, 1, 3, 4)),
)


@pytest.mark.parametrize(("window", "channels"), PROBLEMS, ids=str)
@pytest.mark.one_in(3)
def test_each_element_is_in_one_product(native: NativeRunner, isa: str, window: Window, channels: Channels) -> None:
    problem = case(window, channels)
    assert primitive_desc(problem.op, problem.attr, target_of(isa)).impl_name() == "nested:phases"
    native.check(problem, isa)
    md = problem.op.memories()[Arg.DST]
    steps = (PostOp("binary", "add", src1=md), PostOp("eltwise", "relu"))
    args = {**problem.args, post_op_src(0): integers(md.dims, "added")}
    native.check(Case("chain", problem.op, args, PrimitiveAttr(steps)), isa)


@pytest.mark.parametrize(
    ("window", "channels", "products"),
    [
        # Two parts of the rows, each with three parts of the outputs
        (Window((160, 96), (2, 2), (2, 2), NONE, NONE, NONE), Channels(1, 1, 40, 25), 6),
        # A copy of windows for the whole image, two parts of the outputs
        (Window((120, 120), (16, 16), (8, 8), NONE, (4, 4), (4, 4)), Channels(1, 1, 3, 11), 2),
        # Three images at once, and then two
        (Window((64, 64), (2, 2), (2, 2), NONE, NONE, NONE), Channels(5, 1, 8, 7), 2),
    ],
    ids=("rows", "outputs", "images"),
)
def test_products_are_cut_until_they_stay_in_the_cache(
    native: NativeRunner, window: Window, channels: Channels, products: int
) -> None:
    problem = case(window, channels)
    pd = primitive_desc(problem.op, problem.attr, cpu_target())
    assert pd.impl_name() == "nested:phases"
    # The first nested launch reorders the weights.
    assert sum(isinstance(launch, NestedLaunch) for launch in pd.program().launches) == 1 + products
    assert pd.program().scratchpad < 1 << 20
    native.check(problem, host_isa())


def test_rows_that_fill_no_lines_are_not_cut_if_a_large_cache_has_all_of_src(native: NativeRunner, isa: str) -> None:
    # Parts of 10 rows of 28 pixels would begin inside of lines; parts of 4 rows of 80 do not, and 50 of 51 are more than 1 MiB.
    for (height, width), inputs, outputs, cut in (
        ((28, 28), 256, 30, isa != "x86-64-v4"), ((20, 80), 160, 20, True), ((50, 51), 110, 20, True),
    ):  # fmt: skip
        window = Window((2 * height, 2 * width), (2, 2), (2, 2), NONE, NONE, NONE)
        problem = case(window, Channels(1, 1, inputs, outputs))
        pd = primitive_desc(problem.op, problem.attr, target_of(isa))
        assert pd.impl_name() == "nested:phases"
        positions = {inner.op.dst.dims[-1] for inner in pd.nested() if isinstance(inner.op, Matmul)}
        assert (positions != {height * width}) == cut
        native.check(problem, isa)


@pytest.mark.parametrize(
    ("row", "length", "most", "rows"),
    [
        pytest.param(56, 56, 27, 20, id="19 rows begin in the middle of a line"),
        pytest.param(28, 28, 13, 10, id="the last of three parts would have 4 rows instead of 12"),
        pytest.param(64, 50, 20, 17, id="every row is whole lines"),
        pytest.param(7, 7, 9, 7, id="one part"),
    ],
)
def test_parts_have_whole_lines_unless_the_last_one_were_short(row: int, length: int, most: int, rows: int) -> None:
    assert even_lines(row, length, most) == rows


@pytest.mark.parametrize(
    ("window", "channels", "why"),
    [
        (Window((9, 40), (3, 3), (2, 2), NONE, NONE, NONE), Channels(1, 1, 2, 2), "only dense ones"),
        (Window((9, 41), (2, 2), (2, 2), (0, 1), NONE, NONE), Channels(1, 1, 2, 2), "only dense ones"),
        (Window((40, 1), (2, 2), (3, 12), NONE, NONE, (0, 2)), Channels(1, 1, 2, 2), "interleaved"),
        (Window((9, 40), (2, 2), (1, 1), NONE, NONE, NONE), Channels(1, 1, 2, 2), "a longer one"),
        (Window((6, 40), (4, 4), (2, 2), NONE, NONE, NONE), Channels(1, 1, 2, 2), "too many"),
        (Window((80, 80), (4, 4), (2, 2), NONE, (1, 1), (1, 1)), Channels(1, 1, 9, 8), "copies of src"),
        (Window((80, 80), (4, 4), (2, 2), NONE, (1, 1), (1, 1)), Channels(1, 1, 128, 128), "compete"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_problems_are_left_to_sums_of_all_taps(window: Window, channels: Channels, why: str) -> None:
    problem = case(window, channels)
    assert isinstance(problem.op, Deconvolution)
    assert why in str(NativePhasesDeconvolution().reject(problem.op, problem.attr, cpu_target()))
    assert primitive_desc(problem.op, problem.attr, cpu_target()).impl_name() == "nested:matmul"
