"""The reference implementations of reorder, concat and shuffle, against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import Arg, Concat, MemoryDesc, PrimitiveAttr, Reorder, Shuffle, multiple_src
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc, primitive_descs
from tests.references import converted

from .drawing import TYPES, Runner, attributes, check, described, examples, reference_of, shapes

#: Numbers around the limits of every type, and halfway between what small types can hold.
BORDERS = np.array(
    [s * (2.0**b + d) for b in (0, 3, 7, 8, 15, 16, 31, 32, 63) for s in (1, -1) for d in (-1, -0.5, 0, 0.5, 1)]
    + [2049.0, 2051.0, 257.0, 259.0, 65519.0, 65520.0, 1e300, 2.0**-140, 3 * 2.0**-25, np.inf, -np.inf, np.nan, 0.0]
)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(TYPES, TYPES)))
@pytest.mark.one_in(4)
def test_every_type_becomes_every_other(runner: Runner, source: str, target: str) -> None:
    src, dst = MemoryDesc((BORDERS.size,), source), MemoryDesc((BORDERS.size,), target, strides=(3,))
    check(runner, Reorder(src, dst), args={Arg.SRC: converted(BORDERS, source)}, threshold=0.0)


@examples(40)
@given(data=st.data())
def test_reorders_between_any_types_and_layouts_with_any_attributes(runner: Runner, data: st.DataObject) -> None:
    dims = data.draw(shapes(0, 5, 5))
    op = Reorder(data.draw(described(dims)), data.draw(described(dims)))
    check(runner, op, data.draw(attributes(op)), data.draw(st.integers(0, 99)))


def test_a_reorder_within_one_type_copies_every_bit(runner: Runner) -> None:
    large = np.array([[2**53 + 1, -(2**62) - 3, 5]], np.int64)
    payload = np.array([[0x7F800001, 0xFFC12345, 1]], np.uint32).view(np.float32)
    for values, dtype in ((large, "s64"), (payload, "f32")):
        op = Reorder(MemoryDesc((1, 3), dtype), MemoryDesc((1, 3), dtype, "aB2b"))
        pd = reference_of(op, PrimitiveAttr(), runner.target)
        assert runner.results(pd, {Arg.SRC: values})[Arg.DST].tobytes() == values.tobytes()


def test_the_fast_reorder_comes_first() -> None:
    md = MemoryDesc((3, 20), "s8")
    found = primitive_descs(Reorder(md, md.with_tag("aB16b")), PrimitiveAttr(), cpu_target())
    assert [pd.impl_name() for pd in found] == ["native:nest", "ref:reorder"]


def test_a_reorder_to_another_engine_nests_the_one_within_the_engine() -> None:
    src, dst = MemoryDesc((3,), "f32"), MemoryDesc((3,), "s8")
    pd = primitive_desc(Reorder(src, dst, "cpu", "opencl"), PrimitiveAttr(), cpu_target())
    assert (pd.impl_name(), [nested.impl_name() for nested in pd.nested()]) == ("native:cross_engine", ["native:nest"])
    # Nothing is computed where bytes remain as they are
    assert primitive_desc(Reorder(src, src, "cpu", "opencl"), PrimitiveAttr(), cpu_target()).nested() == ()


def test_the_engines_of_a_reorder_are_none_or_two() -> None:
    md = MemoryDesc((3,), "f32")
    for engines in (("cpu", "cpu"), ("", "opencl"), ("opencl", ""), ("cpu", "")):
        with pytest.raises(ValueError, match="dst_engine: expect none for a reorder within one engine, else two"):
            Reorder(md, md, *engines)
    with pytest.raises(ValueError, match="src_engine: unknown 'gpu'"):
        Reorder(md, md, "gpu", "cpu")


@examples(25)
@given(data=st.data())
def test_concat_of_any_types_and_layouts(runner: Runner, data: st.DataObject) -> None:
    dims = data.draw(shapes())
    axis = data.draw(st.integers(0, len(dims) - 1))
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))

    def sized(size: int) -> MemoryDesc:
        return data.draw(described((*dims[:axis], size, *dims[axis + 1 :])))

    op = Concat(tuple(sized(size) for size in sizes), sized(sum(sizes)), axis)
    check(runner, op, data.draw(attributes(op, (multiple_src(0),))), data.draw(st.integers(0, 99)))


@examples(25)
@given(data=st.data())
def test_shuffles_of_any_axis(runner: Runner, data: st.DataObject) -> None:
    dims = list(data.draw(shapes()))
    axis = data.draw(st.integers(0, len(dims) - 1))
    group = data.draw(st.integers(1, 5))
    dims[axis] *= group
    op = Shuffle(data.draw(described(tuple(dims))), data.draw(described(tuple(dims))), axis, group)
    check(runner, op, data.draw(attributes(op)), data.draw(st.integers(0, 99)))
