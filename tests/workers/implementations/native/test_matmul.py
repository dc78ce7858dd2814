"""Matmul on the CPU engine: every layout of src and weights, odd and empty sizes, broadcast batches."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Matmul, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.implementations.program import Launch
from tests.workers.cases import Case, cases
from tests.workers.cases.case import RELU, chains, integers, plain, post_op_args, residual
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

TRANSPOSED = {2: "ba", 3: "acb", 4: "dabc"}


def with_weights(case: Case, tag: str) -> Case:
    assert isinstance(case.op, Matmul)
    op = dataclasses.replace(case.op, weights=case.op.weights.with_tag(tag))
    return dataclasses.replace(case, name=f"{case.name} weights {tag}", op=op)


@pytest.mark.parametrize("case", cases("matmul"), ids=str)
def test_row_major_packed_and_transposed_weights_give_the_same(native: NativeRunner, case: Case, isa: str) -> None:
    assert isinstance(case.op, Matmul)
    for tag in ("", "any", TRANSPOSED[case.op.weights.ndims]):
        opened = with_weights(case, tag)
        pd = primitive_desc(opened.op, case.attr, target_of(isa))
        native.check(dataclasses.replace(opened, op=pd.op), isa)


def with_gaps(md: MemoryDesc, row: int, column: int) -> MemoryDesc:
    """Return a descriptor whose last two dimensions have these strides."""
    *outer, rows, columns = md.dims
    room = (rows + 2) * (columns + 3)
    steps = (math.prod(outer[number + 1 :]) * room for number in range(len(outer)))
    return MemoryDesc(md.dims, md.dtype, strides=(*steps, row, column))


def check_row(native: NativeRunner, isa: str, outer: int, weights: MemoryDesc) -> None:
    """Check products of ``outer`` rows, one each, by a matrix, which one kernel computes: alone and with post-ops."""
    _, depth, columns = weights.dims
    dst = plain(outer, 1, columns)
    for steps in ((), (RELU, residual(dst))):
        op = Matmul(plain(outer, 1, depth), weights, plain(1, 1, columns), dst)
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        attr = PrimitiveAttr(steps)
        pd = primitive_desc(op, attr, target_of(isa))
        assert [spec.generator for spec in pd.program().kernels] == ["gemv"]
        native.check(Case(f"{outer} x {depth}x{columns}", pd.op, {**args, **post_op_args(steps)}, attr), isa)


def test_a_row_is_multiplied_by_any_number_of_blocks_of_packed_columns(native: NativeRunner, isa: str) -> None:
    # Levels sum four blocks of 16 columns together, or one; an item of work has eight.
    generator = np.random.default_rng()
    for columns in (16, 64, 80, 128, *(int(n) for n in generator.integers(49, 300, 4))):
        depth, outer = int(generator.integers(1, 70)), int(generator.integers(1, 4))
        check_row(native, isa, outer, MemoryDesc((1, depth, columns), "f32").with_tag("aCb16c"))


def test_a_long_row_has_sums_of_parts(native: NativeRunner, isa: str) -> None:
    # Errors of one sum of so many numbers above 0 are 8e-6 of it. Columns: four blocks together, and two, one by one.
    generator = np.random.default_rng()
    for depth, columns in ((25_088, 64), (20_001, 32)):
        op = Matmul(plain(1, depth), MemoryDesc((depth, columns), "f32", "Ba16b"), None, plain(1, columns))
        args = {int(arg): generator.random(md.dims, np.float32) for arg, md in op.memories().items() if arg != Arg.DST}
        pd = native.describe(Case(f"{depth} inputs", op, args), isa)
        found = native.run(pd, args)[int(Arg.DST)].reshape(columns)
        wanted = args[int(Arg.SRC)].astype(np.float64) @ args[int(Arg.WEIGHTS)].astype(np.float64)
        np.testing.assert_allclose(found, wanted[0], rtol=5e-6)


def test_a_row_whose_inputs_are_apart_is_multiplied_by_packed_columns_near_and_far(
    native: NativeRunner, isa: str
) -> None:
    for depth, columns, lane in ((40, 33, 3), (517, 530, 2), (517, 530, 1)):
        src = MemoryDesc((1, depth), "f32", strides=(1, lane) if lane > 1 else (depth, 1))
        op = Matmul(src, MemoryDesc((depth, columns), "f32", "Ba16b"), None, MemoryDesc((1, columns), "f32"))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        case = Case(f"{depth} inputs {lane} apart", op, args)
        assert "gemv" in {spec.generator for spec in native.describe(case, isa).program().kernels}
        native.check(case, isa)


@pytest.mark.parametrize("case", [cases("matmul")[number] for number in (5, 8, 9, 12, 15, 17, 18)], ids=str)
def test_sources_in_columns_and_with_gaps_give_the_same(native: NativeRunner, case: Case, isa: str) -> None:
    assert isinstance(case.op, Matmul)
    rows, depth = case.op.src.dims[-2:]
    columns = case.op.dst.dims[-1]
    for src, weights in (
        ((1, rows), (columns, 1)),
        ((1, rows + 1), (columns + 3, 1)),
        ((depth + 2, 1), (1, depth + 1)),
    ):
        op = dataclasses.replace(
            case.op, src=with_gaps(case.op.src, *src), weights=with_gaps(case.op.weights, *weights)
        )
        pd = primitive_desc(op, case.attr, target_of(isa))
        assert pd.impl_name() == "native:tiles"
        native.check(dataclasses.replace(case, op=pd.op), isa)


def test_constant_weights_are_packed_by_a_reorder_and_not_at_every_run() -> None:
    case = with_weights(cases("matmul")[1], "any")
    pd = primitive_desc(case.op, PrimitiveAttr(), cpu_target())
    assert pd.memories()[Arg.WEIGHTS].tag == "Ba16b"
    # The rows of src may be packed, by gemm_pack.
    assert {spec.generator for spec in pd.program().kernels} - {"gemm_pack"} == {"gemm"}


def test_rows_are_packed_only_if_they_are_cut(isa: str) -> None:
    for depth in (1024, 760, 700, 1000, 1040):
        op = Matmul(MemoryDesc((64, depth), "f32"), MemoryDesc((depth, 64), "f32"), None, MemoryDesc((64, 64), "f32"))
        program = primitive_desc(op, PrimitiveAttr(), target_of(isa)).program()
        # Rows of 4 KiB compete for the cache, and are read in place by tiles with few enough of them.
        is_packed = isa != "x86-64-v4" and depth in (1000, 1040)
        assert ("gemm_pack" in {spec.generator for spec in program.kernels}) == is_packed


@pytest.mark.parametrize("depth", [1024, 1030])
def test_rows_beyond_the_cache_are_summed_in_slices(native: NativeRunner, depth: int, isa: str) -> None:
    dst = plain(2, 150, 50)
    for title, steps in (*chains(dst), (" +relu+add", (RELU, residual(dst)))):
        op = Matmul(plain(2, 150, depth), plain(1, depth, 50), plain(1, 1, 50), dst)
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        whole = Case(f"{depth}{title}", op, {**args, **post_op_args(steps)}, PrimitiveAttr(steps))
        for tag in ("", "acb"):
            case = with_weights(whole, tag)
            program = primitive_desc(case.op, case.attr, target_of(isa)).program()
            launched = [program.kernels[run.kernel].generator for run in program.launches if isinstance(run, Launch)]
            # A relu before an addition bounds sums that are complete.
            slices = 1 if steps[:1] == (RELU,) and len(steps) > 1 else -(-depth // (512 if isa == "x86-64-v4" else 768))
            assert launched.count("gemm") == slices
            native.check(case, isa)


def test_rows_beyond_the_cache_by_a_packed_matrix_beyond_it_are_summed_in_slices(
    native: NativeRunner, isa: str
) -> None:
    # Given rows and a matrix of more than 512 KiB each, a smaller matrix, fewer rows; then few rows, in two tiles and in one
    for depth, rows, columns, slices in (
        (1030, 150, 130, 2), (1030, 150, 120, 1), (1030, 120, 130, 1), (2050, 20, 70, 3), (2050, 14, 70, 1),
    ):  # fmt: skip
        op = Matmul(plain(1, rows, depth), plain(1, depth, columns), plain(1, 1, columns), plain(1, rows, columns))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        case = with_weights(Case("packed", op, args, PrimitiveAttr()), "any")
        pd = primitive_desc(case.op, case.attr, target_of(isa))
        launched = [pd.program().kernels[run.kernel] for run in pd.program().launches if isinstance(run, Launch)]
        # Fewer inputs of any matrix fit in smaller caches.
        wanted = slices if isa == "x86-64-v4" else -(-depth // 1024)
        assert [spec.generator for spec in launched].count("gemm") == wanted
        native.check(dataclasses.replace(case, op=pd.op), isa)


def test_elements_that_compete_for_the_second_level_cache_are_packed(native: NativeRunner, isa: str) -> None:
    # Given rows of weights 4 and 3 KiB apart, and inputs of src 4 KiB or an odd number of lines apart
    for rows, depth, columns, packs in ((20, 300, 1024, "rows"), (20, 360, 768, ""), (50, 360, 768, "rows")):
        op = Matmul(plain(1, rows, depth), plain(1, depth, columns), plain(1, 1, columns), plain(1, rows, columns))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        case = Case("far", op, args, PrimitiveAttr())
        kernels = primitive_desc(op, case.attr, target_of(isa)).program().kernels
        # Smaller caches take packed columns of a whole slice.
        wanted = packs if isa == "x86-64-v4" else ""
        assert [dict(spec.params)["packs"] for spec in kernels if spec.generator == "gemm"] == [wanted]
        native.check(case, isa)
    for rows, competes in ((1024, True), (1040, False)):
        src = MemoryDesc((rows, 300), "f32", strides=(1, rows))
        op = Matmul(src, MemoryDesc((300, 150), "f32"), None, MemoryDesc((rows, 150), "f32"))
        program = primitive_desc(op, PrimitiveAttr(), target_of(isa)).program()
        assert ("gemm_pack" in {spec.generator for spec in program.kernels}) == (competes or isa != "x86-64-v4")


@pytest.mark.parametrize(("columns", "gap", "begins"), [(128, 0, True), (128, 4, True), (100, 0, False)])
def test_columns_of_wide_tiles_are_packed_unless_they_begin_with_a_line(
    native: NativeRunner, columns: int, gap: int, begins: bool, isa: str
) -> None:
    # With a gap of four floats, only the first matrix begins with a line.
    rows, depth = 52, 100
    matrix = depth * columns + gap
    weights = MemoryDesc((3, depth, columns), "f32", strides=(matrix, columns, 1))
    op = Matmul(plain(3, rows, depth), weights, plain(1, 1, columns), plain(3, rows, columns))
    args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
    for steps in ((), (RELU, residual(op.dst))):
        attr = PrimitiveAttr(steps)
        pd = primitive_desc(op, attr, target_of(isa))
        if isa == "x86-64-v4":
            program = pd.program()
            (launch,) = (run for run in program.launches if isinstance(run, Launch))
            assert dict(program.kernels[launch.kernel].params)["packs"] == "rows"
            assert launch.args[-3] == ("i", int(begins))
        native.check(Case(f"{columns} columns, gap {gap} {steps}", pd.op, {**args, **post_op_args(steps)}, attr), isa)


def test_few_items_of_many_tiles_are_cut_for_threads(native: NativeRunner, isa: str) -> None:
    # Of 150 columns there would be three items, of 20 rows there are too few tiles.
    for rows, is_cut in ((300, True), (20, False)):
        op = Matmul(plain(1, rows, 40), plain(1, 40, 150), plain(1, 1, 150), plain(1, rows, 150))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        case = Case(f"{rows} rows", op, args, PrimitiveAttr())
        program = primitive_desc(op, case.attr, target_of(isa)).program()
        (items,) = (
            run.work
            for run in program.launches
            if isinstance(run, Launch) and program.kernels[run.kernel].generator == "gemm"
        )
        assert (items >= 9) == is_cut or isa != "x86-64-v4"
        native.check(case, isa)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("depth", [3, 24])
def test_results_beyond_the_caches_are_written_in_the_order_of_memory(
    native: NativeRunner, depth: int, isa: str
) -> None:
    for rows, is_ordered in ((2100, True), (300, False)):
        op = Matmul(plain(2, rows, depth), plain(2, depth, 784), plain(1, 1, 784), plain(2, rows, 784))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        case = Case(f"{rows} rows", op, args, PrimitiveAttr())
        program = primitive_desc(op, case.attr, target_of(isa)).program()
        ((items, params),) = (
            (run.work, dict(program.kernels[run.kernel].params))
            for run in program.launches
            if isinstance(run, Launch) and program.kernels[run.kernel].generator == "gemm"
        )
        blocks = params["blocks"]
        assert isinstance(blocks, int)
        # An item has a strip of rows, which are written before the next ones: 64 KiB and at most a tile of 12 rows more
        strip = rows / (items / 2 / -(-784 // (16 * blocks)))
        assert (strip * 784 * 4 < (64 << 10) + 12 * 784 * 4) == is_ordered or isa != "x86-64-v4"
        native.check(case, isa)


@pytest.mark.parametrize("rows", [2, 4])
def test_a_few_rows_by_a_far_matrix_are_summed_in_slices(native: NativeRunner, rows: int, isa: str) -> None:
    depth, columns = 1030, 1030
    op = Matmul(plain(1, rows, depth), plain(1, depth, columns), plain(1, 1, columns), plain(1, rows, columns))
    args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
    # Given a matrix of 4 MiB, then the same as a constant, which is packed
    case = Case("far", op, args, PrimitiveAttr())
    for given, slices in ((case, 1 if isa == "x86-64-v4" or rows == 2 else 3), (with_weights(case, "any"), 1)):
        pd = primitive_desc(given.op, given.attr, target_of(isa))
        program = pd.program()
        launched = [program.kernels[run.kernel].generator for run in program.launches if isinstance(run, Launch)]
        assert launched.count("gemm") == slices
        native.check(dataclasses.replace(given, op=pd.op), isa)


def test_columns_that_compete_for_the_first_level_cache_are_packed_for_two_tiles(
    native: NativeRunner, isa: str
) -> None:
    # Given rows of 4 KiB, then a vector more, then few of them, and then one tile of rows
    for rows, depth, columns, packs in (
        (7, 40, 1024, True),
        (7, 40, 1040, False),
        (7, 20, 1024, False),
        (6, 40, 1024, False),
    ):
        op = Matmul(plain(1, rows, depth), plain(1, depth, columns), plain(1, 1, columns), plain(1, rows, columns))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        case = Case("rivals", op, args, PrimitiveAttr())
        kernels = primitive_desc(op, case.attr, target_of(isa)).program().kernels
        packed = any(spec.generator == "gemm_columns" or dict(spec.params).get("packs") for spec in kernels)
        # Tiles of two rows are more than two.
        assert packed is (packs and isa != "x86-64-v4") or isa == "x86-64-v2"
        native.check(case, isa)


#: Limits of depth and columns -> which elements items of work pack of the right factor, and whether they share a packed copy.
PLACES = {
    "where it is": ((2, 20), (49, 200), "", False),
    "by each item": ((100, 170), (49, 190), "rows", False),
    "for all items": ((300, 900), (120, 200), "", True),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.one_in(3)
def test_columns_in_rows_are_packed_by_their_bytes_for_small_caches(
    native: NativeRunner, place: str, transposed: bool, isa: str
) -> None:
    generator = np.random.default_rng()
    depths, widths, packs, is_shared = PLACES[place]
    for _ in range(3):
        rows, depth, columns = (int(generator.integers(*limits)) for limits in ((19, 70), depths, widths))
        dst = plain(2, rows, columns)
        src = with_gaps(plain(2, rows, depth), 1, rows + 1) if transposed else plain(2, rows, depth)
        op = Matmul(src, plain(1, depth, columns), plain(1, 1, columns), dst)
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        for steps in ((), (RELU, residual(dst))):
            attr = PrimitiveAttr(steps)
            pd = primitive_desc(op, attr, target_of(isa))
            kernels = {spec.generator: dict(spec.params) for spec in pd.program().kernels}
            if isa != "x86-64-v4":
                assert ("gemm_pack" in kernels, "gemm_columns" in kernels) == (
                    transposed or (depth > 768 and not steps),
                    is_shared,
                )
                assert kernels["gemm"]["packs"] == packs
            case = Case(f"{rows}x{depth}x{columns} {steps}", pd.op, {**args, **post_op_args(steps)}, attr)
            native.check(case, isa)


@pytest.mark.parametrize("tag", ["", "acb"])
def test_several_right_factors_that_many_tiles_read_are_packed_for_all_items(
    native: NativeRunner, tag: str, isa: str
) -> None:
    generator = np.random.default_rng()
    rows, depth, columns = (int(generator.integers(*limits)) for limits in ((300, 320), (50, 60), (100, 130)))
    op = Matmul(plain(3, rows, depth), plain(3, depth, columns).with_tag(tag), None, plain(3, rows, columns))
    args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    if isa != "x86-64-v4":
        expected = {"gemm", "gemm_columns"} if tag == "" else {"gemm", "reorder"}
        assert {spec.generator for spec in pd.program().kernels} == expected
    native.check(Case(f"3 times {rows}x{depth}x{columns} {tag}", pd.op, args, PrimitiveAttr()), isa)


@pytest.mark.parametrize("columns", [200, 50, 17])
def test_rows_that_compete_for_the_cache_are_packed_for_many_columns_and_small_caches(
    native: NativeRunner, columns: int, isa: str
) -> None:
    generator = np.random.default_rng()
    rows, depth = int(generator.integers(17, 60)), int(generator.integers(1, 1024))
    dst = plain(2, rows, columns)
    src = MemoryDesc((2, rows, depth), "f32", strides=(rows * 1024, 1024, 1))
    op = Matmul(src, plain(2, depth, columns), None, dst)
    args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    is_packed = columns == 200 and isa != "x86-64-v4"
    assert ("gemm_pack" in {spec.generator for spec in pd.program().kernels}) == is_packed
    native.check(Case(f"{rows}x{depth}x{columns}", pd.op, args, PrimitiveAttr()), isa)


def with_post_ops(native: NativeRunner, op: Matmul, isa: str, generators: set[str]) -> None:
    """Check a product with and without a bound and an addition; its kernels come from these generators."""
    args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
    for steps in ((), (RELU, residual(op.dst)), (residual(op.dst), RELU)):
        attr = PrimitiveAttr(steps)
        pd = primitive_desc(op, attr, target_of(isa))
        found = {spec.generator for spec in pd.program().kernels}
        assert found == generators, (str(op), found)
        native.check(Case(f"{op} {steps}", pd.op, {**args, **post_op_args(steps)}, attr), isa)


def test_each_number_of_last_columns_is_stored_and_nothing_behind_them(native: NativeRunner, isa: str) -> None:
    for columns in range(17, 48):
        # Seven rows are tiles of several heights; four inputs are a turn of a loop, some are left over.
        op = Matmul(plain(2, 7, 6), plain(2, 6, columns), None, plain(2, 7, columns))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        steps = (residual(op.dst),) if columns % 2 else ()
        native.check(Case(str(op), op, {**args, **post_op_args(steps)}, PrimitiveAttr(steps)), isa)
        row = Matmul(plain(1, 6), plain(6, columns), None, plain(1, columns))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in row.memories().items() if arg != Arg.DST}
        native.check(Case(str(row), row, args, PrimitiveAttr()), isa)


def test_few_columns_and_few_rows_are_summed_over_lanes(native: NativeRunner, isa: str) -> None:
    generator = np.random.default_rng()

    def between(least: int, most: int) -> int:
        return int(generator.integers(least, most))

    for _ in range(4):
        outer, depth, few, many = between(1, 4), between(64, 150), between(2, 5), between(30, 80)
        bias = generator.integers(2) == 1
        # Few columns, whose inputs are put side by side unless they are.
        for tag, more in (("", {"reorder"}), ("acb", set[str]()), ("any", set[str]())):
            weights = plain(1, depth, few).with_tag(tag)
            op = Matmul(plain(outer, many, depth), weights, plain(1, 1, few) if bias else None, plain(outer, many, few))
            with_post_ops(native, op, isa, {"gemm_few", *more})
        # Few rows by columns whose inputs are adjacent, as far as they go.
        few, weights = between(2, 17 if isa == "x86-64-v4" else 9), plain(outer, depth, many).with_tag("acb")
        for src, more in (
            (plain(1, few, depth), set[str]()),
            (with_gaps(plain(1, few, depth), 1, few + 1), {"reorder"}),
            (with_gaps(plain(1, few, depth), depth + 3, 1), set[str]()),
        ):
            op = Matmul(src, weights, plain(1, 1, many) if bias else None, plain(outer, few, many))
            with_post_ops(native, op, isa, {"gemm_few", *more})


def test_a_few_columns_behind_whole_vectors_are_summed_over_lanes(native: NativeRunner, isa: str) -> None:
    generator = np.random.default_rng()
    # Columns, of which some are worth it, and those of 16 that are not; in rows and in columns.
    for outer, many, few, pays in (
        (1, 3, 1, True),
        (1, 1, 4, True),
        (2, 2, 2, True),
        (1, 1, 12, False),
        (1, 12, 7, False),
    ):
        rows, depth = int(generator.integers(330, 360)), int(generator.integers(140, 150))
        columns = 16 * many + few
        bias = plain(1, 1, columns) if generator.integers(2) == 1 else None
        for tag, more in (("", {"gemm_few", "reorder"}), ("acb", {"gemm_few"})):
            op = Matmul(
                plain(outer, rows, depth), plain(1, depth, columns).with_tag(tag), bias, plain(outer, rows, columns)
            )
            found = {spec.generator for spec in primitive_desc(op, PrimitiveAttr(), target_of(isa)).program().kernels}
            assert ("gemm" in found, "gemm_few" in found) == (True, pays)
            if pays:
                assert found >= more
            args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
            for steps in ((), (RELU, residual(op.dst)), (residual(op.dst), RELU)):
                case = Case(f"{op} {steps}", op, {**args, **post_op_args(steps)}, PrimitiveAttr(steps))
                native.check(case, isa)


def test_parts_of_columns_are_even_and_the_last_one_has_a_tile_of_its_own(native: NativeRunner, isa: str) -> None:
    # Rows and columns, then vectors of a tile, of one of the last part, and the largest tile on AVX-512.
    for rows, columns, blocks, rest, height in (
        (20, 40, 3, 1, 6), (20, 72, 3, 2, 6), (20, 100, 4, 3, 6), (20, 147, 4, 2, 6), (3, 129, 3, 1, 6), (2, 100, 7, 1, 2),
        (2, 135, 5, 4, 2), (20, 17, 2, 1, 10), (14, 16, 2, 1, 14),
    ):  # fmt: skip
        op = Matmul(plain(1, rows, 37), plain(1, 37, columns), plain(1, 1, columns), plain(1, rows, columns))
        args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
        for steps in ((), (residual(op.dst), RELU)):
            case = Case(f"{op}", op, {**args, **post_op_args(steps)}, PrimitiveAttr(steps))
            native.check(case, isa)
        if isa == "x86-64-v4":
            (spec,) = primitive_desc(op, PrimitiveAttr(), target_of(isa)).program().kernels
            found = dict(spec.params)
            assert (found["blocks"], found["rest"]) == (blocks, rest)
            assert isinstance(found["heights"], tuple)
            assert found["heights"][0] == height


def test_one_column_is_multiplied_as_one_row_is(native: NativeRunner, isa: str) -> None:
    generator = np.random.default_rng()
    for _ in range(3):
        outer, depth, rows = (int(generator.integers(*limits)) for limits in ((1, 4), (3, 150), (2, 150)))
        src = plain(outer, rows, depth)
        for given in (src, with_gaps(src, 1, rows + 1), with_gaps(src, depth + 3, 1)):
            with_post_ops(native, Matmul(given, plain(1, depth, 1), None, plain(outer, rows, 1)), isa, {"gemv"})
        weights = plain(1, depth + 20, 1).with_tag("any")
        for bias, kernel in ((None, "gemv"), (plain(1, 1, 1), "gemm_few")):
            op = Matmul(plain(outer, rows, depth + 20), weights, bias, plain(outer, rows, 1))
            with_post_ops(native, op, isa, {kernel})


def test_one_row_by_near_rows_and_by_distant_ones_gives_the_same(native: NativeRunner, isa: str) -> None:
    generator = np.random.default_rng()
    # Rows that are 32 KiB apart are not within 256 KiB.
    for columns, gap in (
        (int(generator.integers(1, 16)), 3),
        (int(generator.integers(17, 64)), 0),
        (16, 0),
        (int(generator.integers(65, 300)), 0),
        (64, 1 << 13),
        (64, 0),
        (128, 5),
    ):
        depth, outer = int(generator.integers(1, 70)), int(generator.integers(1, 4))
        if (columns, gap) == (64, 1 << 13):
            depth += 20
        strides = (depth * (columns + gap), columns + gap, 1)
        check_row(native, isa, outer, MemoryDesc((1, depth, columns), "f32", strides=strides))


@pytest.mark.parametrize(
    ("depth", "columns", "halves"), [(520, 1003, 2), (402, 1000, 2), (521, 1003, 1), (96, 4097, 1)]
)
def test_halves_of_far_rows_are_multiplied_apart(
    native: NativeRunner, depth: int, columns: int, halves: int, isa: str
) -> None:
    op = Matmul(plain(1, depth), plain(depth, columns), plain(1, columns), plain(1, columns))
    launches = primitive_desc(op, PrimitiveAttr(), target_of(isa)).program().launches
    assert len(launches) == halves
    with_post_ops(native, op, isa, {"gemv"})
    # Columns of weights in columns, and matrices whose product is one column
    args = {int(arg): integers(md.dims, int(arg)) for arg, md in op.memories().items() if arg != Arg.DST}
    given = Matmul(op.src, MemoryDesc((depth, columns), "f32", "ba"), op.bias, op.dst)
    native.check(Case("columns", given, args, PrimitiveAttr()), isa)
    one = Matmul(MemoryDesc((columns, depth), "f32", "ba"), plain(depth, 1), None, plain(columns, 1))
    with_post_ops(native, one, isa, {"gemv"})


def test_a_source_without_adjacent_elements_is_refused() -> None:
    src = MemoryDesc((3, 4), "f32", strides=(9, 2))
    op = Matmul(src, MemoryDesc((4, 5), "f32"), None, MemoryDesc((3, 5), "f32"))
    with pytest.raises(UnsupportedPrimitive, match="expect rows or columns"):
        primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)
    assert primitive_desc(op, PrimitiveAttr(), cpu_target()).impl_name() == "ref:matmul"
