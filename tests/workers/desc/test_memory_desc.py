"""Memory descriptors: tags, padding, strides, equality of bytes, wire form."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import MemoryDesc, PrimitiveAttr, Reorder
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.desc.equivalence import same_bytes
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc

TAGS = ("abcd", "acdb", "badc", "aBcd16b", "aBcd8b", "ABcd16b32a", "ABcd4a4b")
DIMS = st.lists(st.integers(1, 40), min_size=4, max_size=4).map(tuple)


def offset(md: MemoryDesc, index: tuple[int, ...]) -> int:
    """Walk the layout's definition one element at a time: the slow way that strides must agree with."""
    layout, padded = md.layout, md.padded_dims
    sizes = {i: [s for d, s in layout.blocks if d == i] for i in range(md.ndims)}
    inner: list[int] = []
    rest = list(index)
    for dim, size in reversed(layout.blocks):
        inner.insert(0, rest[dim] % size)
        rest[dim] //= size
    position = 0
    for dim in layout.order:
        extent = padded[dim]
        for size in sizes[dim]:
            extent //= size
        position = position * extent + rest[dim]
    for (_, size), value in zip(layout.blocks, inner, strict=True):
        position = position * size + value
    return position


@given(dims=DIMS, tag=st.sampled_from(TAGS))
def test_outer_strides_locate_the_first_element_of_each_block(dims: tuple[int, ...], tag: str) -> None:
    md = MemoryDesc(dims, "f32", tag)
    for dim in range(4):
        block = md.layout.block_of(dim)
        if md.padded_dims[dim] > block:
            index = tuple(block if d == dim else 0 for d in range(4))
            assert md.outer_strides()[dim] == offset(md, index)


@given(dims=DIMS, tag=st.sampled_from(TAGS))
def test_every_element_has_a_place_of_its_own_inside_the_padded_size(dims: tuple[int, ...], tag: str) -> None:
    md = MemoryDesc(tuple(min(d, 6) for d in dims), "f32", tag)
    places = [offset(md, index) for index in itertools.product(*(range(d) for d in md.dims))]
    assert len(set(places)) == len(places)
    assert max(places) < md.nbytes // 4


@given(dims=DIMS, a=st.sampled_from(TAGS), b=st.sampled_from(TAGS))
def test_same_bytes_holds_exactly_when_each_element_lies_at_one_place(dims: tuple[int, ...], a: str, b: str) -> None:
    small = tuple(d if d in (1, 16, 32) else 1 + d % 3 for d in dims)
    left, right = MemoryDesc(small, "f32", a), MemoryDesc(small, "f32", b)
    indices = list(itertools.product(*(range(d) for d in small)))[:4096]
    alike = left.nbytes == right.nbytes and all(offset(left, i) == offset(right, i) for i in indices)
    assert not same_bytes(left, right) or alike
    if alike and len(indices) < 4096 and left.padded_dims == right.padded_dims == small:
        assert same_bytes(left, right)


def test_a_blocked_image_of_one_pixel_is_row_major() -> None:
    assert same_bytes(MemoryDesc((1, 2048, 1, 1), "f32", "nChw16c"), MemoryDesc((1, 2048, 1, 1), "f32"))
    assert not same_bytes(MemoryDesc((1, 2040, 1, 1), "f32", "nChw16c"), MemoryDesc((1, 2040, 1, 1), "f32"))


def test_aliases_and_numpy_names_make_equal_descriptors() -> None:
    assert MemoryDesc((1, 3, 4, 5), "float32", "nchw") == MemoryDesc((1, 3, 4, 5), "f32", "abcd")


@given(dims=DIMS, tag=st.sampled_from((*TAGS, "any")), dtype=st.sampled_from(("f32", "s8", "bf16")))
def test_the_wire_form_brings_a_descriptor_back(dims: tuple[int, ...], tag: str, dtype: str) -> None:
    md = MemoryDesc(dims, dtype, tag)
    assert decode(MemoryDesc, encode(md)) == md


@pytest.mark.parametrize("tag", ["abc", "abcc", "aBcd", "abcd16b", "aBcd1b", "abcx", "Any"])
def test_a_tag_that_does_not_fit_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="format tag"):
        MemoryDesc((1, 2, 3, 4), "f32", tag)


def test_an_unknown_data_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown data type 'f8'; known: f64, f32"):
        MemoryDesc((1,), "f8")


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), steps=st.lists(st.integers(1, 3), min_size=4, max_size=4)
)
def test_every_second_or_third_element_of_a_tensor_is_a_descriptor(sizes: list[int], steps: list[int]) -> None:
    # Given a row-major tensor
    dense = MemoryDesc(tuple(sizes), "f32").outer_strides()
    # When each dimension is walked in steps, some of which do not divide its size
    taken = tuple(-(-size // step) for size, step in zip(sizes, steps, strict=False))
    md = MemoryDesc(taken, "f32", strides=tuple(s * step for s, step in zip(dense, steps, strict=False)))
    # Then every element has a place of its own inside of it
    strides = md.outer_strides()
    places = {
        sum(i * s for i, s in zip(index, strides, strict=True)) for index in itertools.product(*map(range, taken))
    }
    assert len(places) == md.elements
    assert max(places) * 4 < md.nbytes <= MemoryDesc(tuple(sizes), "f32").nbytes


def test_a_stride_of_zero_repeats_an_element_and_cannot_be_written() -> None:
    md = MemoryDesc((3, 4), "f32", strides=(0, 1))
    assert md.repeats
    assert md.nbytes == 16
    assert not MemoryDesc((1, 4), "f32", strides=(0, 1)).repeats
    target = Target("cpu", "native", (("isa", "x86-64-v3"),))
    with pytest.raises(UnsupportedPrimitive, match="argument 17 is written, but its strides"):
        primitive_desc(Reorder(MemoryDesc((3, 4), "f32"), md), PrimitiveAttr(), target)


@pytest.mark.parametrize("strides", [(1, 2), (3, 3), (-4, 1), (2,)])
def test_strides_that_overlap_or_do_not_fit_are_refused(strides: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="strides: "):
        MemoryDesc((3, 4), "f32", strides=strides)


@pytest.mark.parametrize("given", [("any", ()), ("aBcd16b", ()), ("", (400, 100, 10, 1)), ((400, 100, 10, 1), ())])
def test_a_descriptor_is_equal_to_its_copies(given: tuple[str | tuple[int, ...], tuple[int, ...]]) -> None:
    md = MemoryDesc((2, 4, 10, 10), "f32", *given)
    for twin in (copy.deepcopy(md), pickle.loads(pickle.dumps(md)), dataclasses.replace(md)):  # noqa: S301 - our own
        assert twin == md
        assert hash(twin) == hash(md)
    assert dataclasses.replace(md, dims=(2, 4, 10, 9)) != md


def test_equal_arguments_of_other_types_make_equal_descriptors() -> None:
    md = MemoryDesc((1, 4), "f32", strides=(6, 1))
    for twin in (MemoryDesc([1.0, 4], "float32", strides=[6, 1.0]), MemoryDesc((1, 4), "f32", [6, 1])):  # type: ignore[list-item]
        assert twin == md
        assert (twin.dims, twin.strides) == ((1, 4), ())
        assert {type(number) for number in twin.dims} == {int}


def test_a_descriptor_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        MemoryDesc((4,), "f32").dims = (5,)  # type: ignore[misc]
