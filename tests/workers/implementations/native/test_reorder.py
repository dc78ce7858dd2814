"""Reorder on the CPU engine: any layout to any other, exact, padding zeroed, the same for any cut of the work."""

from __future__ import annotations

import itertools
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, Quantisation, Reorder
from poolrt.workers.desc.memory_desc import plain_tag
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.native.loop_nest import copies, pieces, steps
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.implementations.program import Launch
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec
from tests.references.data_types import rounded
from tests.workers.cases import Case, cases, normals
from tests.workers.kernels.native.test_conv import loops
from tests.workers.levels import LEVELS
from tests.workers.native_runner import NativeRunner

#: Layouts of weights that convolutions ask for, and blocks that do not divide one another.
MORE = [
    ((70, 3, 7, 7), "abcd", "Acdb16a"),
    ((37, 1, 3, 3), "abcd", "Abcd16a"),
    ((272, 24, 1, 1), "abcd", "ABcd16b68a"),
    ((2, 40, 5, 5), "aBcd16b", "aBcd32b"),
    ((1, 40, 5, 5), "aBcd16b", "aBcd24b"),
    ((3, 4, 5, 6, 7, 2), "fadcbe", "cdefab"),
    ((1, 200, 1, 1), "abcd", "aBcd16b"),
    ((1, 3, 130, 130), "abcd", "acdb"),
    ((20000,), "a", "a"),
    ((1, 1), "Ab2a", "AB2a2b"),
    ((5, 3), "Ab4a", "AB4a2b"),
    ((), "", ""),
]


def case(dims: tuple[int, ...], source: str, target: str) -> Case:
    op = Reorder(MemoryDesc(dims, "f32", source), MemoryDesc(dims, "f32", target))
    return Case(f"{dims} {source} to {target}", op, {Arg.SRC: normals(dims)}, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("problem", [*cases("reorder"), *(case(*m) for m in MORE)], ids=str)
def test_a_reorder_is_exact(native: NativeRunner, problem: Case, isa: str) -> None:
    native.check(problem, isa)


@pytest.mark.parametrize("dst", ["f32", "f64"])
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
@pytest.mark.one_in(4)
def test_one_element_of_each_few_is_copied(native: NativeRunner, isa: str, dtype: str, dst: str) -> None:
    for step in range(2, 6):
        for length in (2, 15, 16, 17, 18, 32, 33, 50, 9000):
            src = MemoryDesc((2, length), dtype, strides=(step * length, step))
            values = np.arange(2 * length).reshape(2, length) % 251
            for kind in dict.fromkeys((dtype, dst)):
                op = Reorder(src, MemoryDesc((2, length), kind))
                native.check(Case(f"{length}, each {step}th", op, {Arg.SRC: values}, rtol=0.0, atol=0.0), isa)


@pytest.mark.parametrize("dtype", ["u8", pytest.param("f16", marks=pytest.mark.slow), "f32"])
def test_rows_of_any_length_are_copied_and_small_groups_moved_as_one(native: NativeRunner, dtype: str) -> None:
    for length in (*range(1, 20), 31, 33, 47, 63, 66):
        for dims, tag in (((3, 5, length), "bac"), ((2, 19, 3, length), "acbd"), ((2, 3, 2, 2, length), "abdce")):
            src, dst = MemoryDesc(dims, dtype), MemoryDesc(dims, dtype, tag)
            values = np.arange(math.prod(dims)).reshape(dims) % 251
            problem = Case(f"{dims} to {tag}", Reorder(src, dst), {Arg.SRC: values}, rtol=0.0, atol=0.0)
            native.check(problem, cpu_target().isa)


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
@pytest.mark.one_in(4)
def test_single_columns_are_taken_from_rows(native: NativeRunner, isa: str, dtype: str) -> None:
    for rows in (1, 3, 4, 15, 17, 33, 130):
        for step in (5, 7, 85):
            values = np.broadcast_to(np.arange(1, 2 * rows + 1).reshape(2, rows) % 251, (2, rows))
            for kind in dict.fromkeys((dtype, "f32")):
                op = Reorder(MemoryDesc((2, rows), dtype, strides=(rows * step, step)), MemoryDesc((2, rows), kind))
                native.check(Case(f"{rows} rows, {step} apart", op, {Arg.SRC: values}, rtol=0.0, atol=0.0), isa)


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
@pytest.mark.one_in(4)
def test_elements_are_repeated(native: NativeRunner, isa: str, dtype: str) -> None:
    for length in (2, 7, 8, 9, 16, 31, 32, 33, 64, 65, 130, 9001):
        for dims, strides in (
            ((length,), (0,)),
            ((3, length), (1, 0)),
            ((2, 70, length), (0, 2, 0)),
            ((3, length, 2), (2, 0, 1)),
        ):
            given = [1 if stride == 0 else size for size, stride in zip(dims, strides, strict=True)]
            values = np.broadcast_to(np.arange(1, math.prod(given) + 1).reshape(given) % 251, dims)
            for kind in dict.fromkeys((dtype, "f32")):
                op = Reorder(MemoryDesc(dims, dtype, strides=strides), MemoryDesc(dims, kind))
                native.check(Case(f"{dims}, {strides}", op, {Arg.SRC: values}, rtol=0.0, atol=0.0), isa)


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
@pytest.mark.one_in(4)
def test_short_rows_are_repeated(native: NativeRunner, isa: str, dtype: str) -> None:
    for length in (2, 3, 5, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64):
        for times in (1, 2, 5, 9, 22, 64, 130):
            dims = (3, times, length)
            values = np.broadcast_to(np.arange(1, 3 * length + 1).reshape(3, 1, length) % 251, dims)
            for kind in dict.fromkeys((dtype, "f32")):
                op = Reorder(MemoryDesc(dims, dtype, strides=(length, 0, 1)), MemoryDesc(dims, kind))
                native.check(Case(f"{times} times {length}", op, {Arg.SRC: values}, rtol=0.0, atol=0.0), isa)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], str, str]:
    dims = tuple(draw(st.lists(st.integers(1, 21), min_size=1, max_size=4)))
    letters = plain_tag(len(dims))

    def tag() -> str:
        order = list(draw(st.permutations(letters)))
        blocks = draw(st.lists(st.tuples(st.sampled_from(letters), st.sampled_from([2, 3, 4, 16])), max_size=2))
        named = {letter for letter, _ in blocks}
        outer = "".join(letter.upper() if letter in named else letter for letter in order)
        return outer + "".join(f"{size}{letter}" for letter, size in blocks)

    return dims, tag(), tag()


@settings(max_examples=80, deadline=None, database=None)
@given(layouts())
def test_any_layout_reorders_to_any_other(native: NativeRunner, drawn: tuple[tuple[int, ...], str, str]) -> None:
    native.check(case(*drawn), cpu_target().isa)


@st.composite
def strided(draw: st.DrawFn, repeats: bool) -> MemoryDesc:
    """Draw a descriptor with gaps between its elements, or with elements that are read again and again."""
    dims = tuple(draw(st.lists(st.integers(1, 21), min_size=1, max_size=4)))
    strides, reach = [0] * len(dims), 0
    for dim in draw(st.permutations(range(len(dims)))):
        if repeats and draw(st.integers(0, 3)) == 0:
            continue
        strides[dim] = reach + draw(st.integers(1, 3))
        reach += strides[dim] * (dims[dim] - 1)
    return MemoryDesc(dims, "f32", strides=tuple(strides))


@settings(max_examples=80, deadline=None, database=None)
@given(data=st.data())
def test_strides_reorder_to_any_layout_and_back(native: NativeRunner, data: st.DataObject) -> None:
    # Given a tensor with gaps, or one that repeats elements, which can only be read
    source, gaps = data.draw(strided(repeats=data.draw(st.booleans()))), data.draw(strided(repeats=False))
    given = [1 if stride == 0 else size for size, stride in zip(source.dims, source.outer_strides(), strict=True)]
    values = np.broadcast_to(normals(tuple(given)), source.dims)
    letters = plain_tag(source.ndims)
    dense = "".join(data.draw(st.permutations(letters)))
    blocked = letters[0].upper() + letters[1:] + f"{data.draw(st.sampled_from([2, 16]))}a"
    # When it is reordered, then the values are the same
    for target in (source.with_tag(dense), source.with_tag(blocked)):
        problem = Case(f"{source} to {target}", Reorder(source, target), {Arg.SRC: values}, rtol=0.0, atol=0.0)
        native.check(problem, cpu_target().isa)
    back = Reorder(gaps.with_tag(""), gaps)
    native.check(Case(f"to {gaps}", back, {Arg.SRC: normals(gaps.dims)}, rtol=0.0, atol=0.0), cpu_target().isa)


def common(dims: tuple[int, ...], source: str, target: str) -> NDArray[Any]:
    """Return random values that both types have."""
    return rounded(rounded(np.rint(np.clip(60.0 * normals(dims), -250, 250)), source), target)


TYPES = ("f64", "f32", "f16", "bf16", "s64", "u64", "s32", "u32", "s16", "u16", "s8", "u8", "bool")


@settings(max_examples=2, deadline=None, database=None, phases=[Phase.generate])
@given(layouts(), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_any_type_is_converted_to_any_other(
    native: NativeRunner, drawn: tuple[tuple[int, ...], str, str], source: str, target: str
) -> None:
    dims, given, wanted = drawn
    op = Reorder(MemoryDesc(dims, source, given), MemoryDesc(dims, target, wanted))
    assert primitive_desc(op, PrimitiveAttr(), cpu_target()).impl_name() == "native:nest"
    problem = Case(str(op), op, {Arg.SRC: common(dims, source, target)}, rtol=0.0, atol=0.0)
    native.check(problem, cpu_target().isa)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=60, deadline=None, database=None)
@given(layouts(), st.sampled_from(TYPES), st.sampled_from(TYPES), st.sampled_from(LEVELS))
def test_every_type_is_converted_to_every_other(
    native: NativeRunner, drawn: tuple[tuple[int, ...], str, str], source: str, target: str, level: str
) -> None:
    dims, given, wanted = drawn
    op = Reorder(MemoryDesc(dims, source, given), MemoryDesc(dims, target, wanted))
    problem = Case(str(op), op, {Arg.SRC: common(dims, source, target)}, rtol=0.0, atol=0.0)
    native.check(problem, level)


def test_attributes_are_left_to_the_reference() -> None:
    attr = PrimitiveAttr(scales=(Quantisation(Arg.DST, 0, (0.5,)),))
    op = Reorder(MemoryDesc((3, 4), "f32"), MemoryDesc((3, 4), "s8", "ba"))
    assert primitive_desc(op, attr, cpu_target()).impl_name() == "ref:reorder"
    with pytest.raises(UnsupportedPrimitive, match="scales"):
        primitive_desc(op, attr, cpu_target(), references=False)


def test_two_kernels_serve_every_reorder_of_a_width_with_transposition_and_without() -> None:
    problems = [*cases("reorder"), *(case(*m) for m in MORE)]
    specs = {spec for p in problems for spec in primitive_desc(p.op, PrimitiveAttr(), cpu_target()).program().kernels}
    assert {dict(spec.params)["turns"] for spec in specs} == {False, True}
    assert len(specs) == 2


@pytest.mark.parametrize(
    "kinds", [("u8", "u8"), ("f16", "f16"), ("f32", "f32"), ("f64", "f64"), ("u8", "f32")], ids=str
)
@pytest.mark.one_in(3)
def test_channels_beside_one_another_are_taken_apart_and_joined(native: NativeRunner, kinds: tuple[str, str]) -> None:
    rng = np.random.default_rng()
    for channels, tags in itertools.product((2, 3, 4, 5, 8, 15, 18, 19), (("acb", "abc"), ("abc", "acb"))):
        for places in (15, 16, 17, 31, 48, int(rng.integers(50, 400))):
            dims = (2, channels, places)
            src, dst = (MemoryDesc(dims, kind, tag) for kind, tag in zip(kinds, tags, strict=True))
            values = rng.integers(0, 250, dims)
            problem = Case(f"{dims} {kinds} {tags}", Reorder(src, dst), {Arg.SRC: values}, rtol=0.0, atol=0.0)
            native.check(problem, cpu_target().isa)


@pytest.mark.parametrize("kinds", [("f32", "f32"), ("u8", "u8"), ("s64", "s64"), ("s32", "s16")], ids=str)
@pytest.mark.one_in(3)
def test_halves_of_short_rows_are_taken_apart(native: NativeRunner, kinds: tuple[str, str]) -> None:
    """Rows of less than a vector, many of them as one loop, of which some are taken within an item of work."""
    for columns, width in itertools.product((2, 3, 4, 5), (3, 4, 5, 7, 14, 15, 17)):
        dims = (2, columns, 3, 23, width)
        src, dst = MemoryDesc(dims, kinds[0], "acdeb"), MemoryDesc(dims, kinds[1])
        values = np.arange(math.prod(dims)).reshape(dims) % 251
        problem = Case(f"{dims}", Reorder(src, dst), {Arg.SRC: values}, rtol=0.0, atol=0.0)
        native.check(problem, cpu_target().isa)


@pytest.mark.parametrize(
    "kinds", [("f32", "f32"), ("f16", "f16"), ("u8", "u8"), ("f64", "f64"), ("f32", "f16")], ids=str
)
@pytest.mark.one_in(3)
def test_transpositions_are_exact_in_pieces(native: NativeRunner, isa: str, kinds: tuple[str, str]) -> None:
    """Rows of dst that compete for places of a cache or do not, more columns than a piece, and rest of it."""
    rng = np.random.default_rng()
    for batch, rows, columns in (
        (1, 256, 65),
        (3, 512, 43),
        (1, 1024, 37),
        (1, 1000, 300),
        (1, 70, 3000),
        (2, 18, 9000),
    ):
        dims = (batch, rows, columns + int(rng.integers(20)))
        src, dst = MemoryDesc(dims, kinds[0]), MemoryDesc(dims, kinds[1], "acb")
        values = rng.integers(0, 250, dims)
        native.check(Case(f"{dims} {kinds}", Reorder(src, dst), {Arg.SRC: values}, rtol=0.0, atol=0.0), isa)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])
def test_transpositions_of_bytes_interleave_them(isa: str, tmp_path: Path) -> None:
    spec = KernelSpec.of("reorder", src="bits8", dst="bits8", turns=True, wraps=False)
    counts = [
        tuple(sum(bool(re.search(name, line)) for line in body) for name in ("punpck", "pblend|pshufb|vpermt2|vpermi2"))
        for body in loops(compile_kernel(spec, isa), tmp_path, "punpck")
    ]
    # Four rounds of 16, and no other instruction between a row that is loaded and a column that is stored.
    assert (64, 0) in counts, counts


def test_rows_of_dst_that_compete_are_written_few_at_a_time() -> None:
    for rows, columns, most in ((1024, 1024, 31), (256, 3136, 63), (512, 47, 31), (1000, 1000, 255), (64, 3136, 783)):
        dims = (rows, columns)
        (nest,) = copies(MemoryDesc(dims, "f32"), MemoryDesc(dims, "f32", "ba"))
        found = [loop.extent for piece in pieces(nest) for loop in piece.loops if loop.src == 1]
        assert max(found) <= most
        assert sum(steps(piece.loops) for piece in pieces(nest)) == rows * columns


def test_a_large_transposition_has_work_for_several_threads_and_a_small_one_is_whole() -> None:
    for dims, least, most in (((64, 3136), 7, 9), ((1000, 1000), 7, 9), ((1024, 1024), 64, 64), ((128, 768), 1, 1)):
        op = Reorder(MemoryDesc(dims, "f32"), MemoryDesc(dims, "f32", "ba"))
        (launch,) = primitive_desc(op, PrimitiveAttr(), cpu_target()).program().launches
        assert isinstance(launch, Launch)
        assert least <= launch.work <= most


def test_an_item_of_work_has_many_steps_of_a_long_loop() -> None:
    """The halves of 3584 rows are two loops outside, and 64 items or a few more are enough."""
    dims = (1, 2, 2, 256, 14, 14)
    op = Reorder(MemoryDesc(dims, "f32", "adebfc"), MemoryDesc(dims, "f32"))
    (launch,) = primitive_desc(op, PrimitiveAttr(), cpu_target()).program().launches
    assert isinstance(launch, Launch)
    assert 64 <= launch.work <= 128


def test_an_item_of_work_has_many_steps_of_a_loop_whose_number_no_other_one_divides(native: NativeRunner) -> None:
    for dims, strides, most in (((2257, 40), (161, 1), 96), ((100_003, 5), (7, 1), 160)):
        op = Reorder(MemoryDesc(dims, "f32", strides=strides), MemoryDesc(dims, "f32"))
        (launch,) = primitive_desc(op, PrimitiveAttr(), cpu_target()).program().launches
        assert isinstance(launch, Launch)
        assert 64 <= launch.work <= most
        native.check(Case(str(op), op, {Arg.SRC: normals(dims)}, rtol=0.0, atol=0.0), cpu_target().isa)
