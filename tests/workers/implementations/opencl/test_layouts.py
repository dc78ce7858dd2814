"""Merging neighbouring dimensions changes how a tensor is walked, never which elements are met."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.implementations.opencl.copies import copy_fits
from poolrt.workers.implementations.opencl.grid import WIDTH, launch
from poolrt.workers.implementations.opencl.layouts import contiguous_strides, merged

sizes = st.lists(st.integers(1, 4), min_size=0, max_size=5)


def walk(counts: list[int], strides: list[list[int]]) -> list[tuple[int, ...]]:
    """Return the offsets met, one for each set of strides, in order."""
    return [
        tuple(sum(i * s for i, s in zip(index, steps, strict=True)) for steps in strides)
        for index in itertools.product(*map(range, counts))
    ]


@given(counts=sizes, data=st.data())
def test_merged_dimensions_meet_the_same_elements_in_the_same_order(counts: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(counts))))
    permuted = contiguous_strides([counts[i] for i in order])
    first = [permuted[order.index(i)] for i in range(len(counts))]
    second = [0 if data.draw(st.booleans()) else s for s in contiguous_strides(counts)]
    fewer, strides = merged(counts, first, second)
    assert len(fewer) <= max(1, len(counts))
    assert walk(fewer, strides) == walk(counts, [first, second])


def test_equal_layouts_merge_into_one_row() -> None:
    steps = contiguous_strides((2, 3, 4))
    assert merged((2, 3, 4), steps, steps) == ([24], [[1], [1]])


def test_a_copy_of_too_many_dimensions_is_refused_not_cut() -> None:
    counts = [2] * 8
    steps = contiguous_strides(counts)
    assert copy_fits(counts, steps, steps)
    assert not copy_fits(counts, steps[::-1], steps)


@given(items=st.integers(1, 10**9), local=st.sampled_from([(64, 1), (8, 1)]))
def test_a_grid_numbers_every_item_and_stays_small(items: int, local: tuple[int, int]) -> None:
    width, height = launch(0, items, local).global_size
    assert items <= width * height
    assert width % local[0] == 0
    assert width <= WIDTH < 65472
    assert height < 65472
    assert (height - 1) * width < items
