"""Views as strides: what NumPy does without a copy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from poolrt.graph.ir import Node
from poolrt.graph.views import describe_view
from poolrt.workers.desc import MemoryDesc


def read(memory: Any, desc: MemoryDesc, start: int) -> Any:
    """Return the tensor that a descriptor finds in a row of numbers, ``start`` bytes from its beginning."""
    assert start % 4 == 0
    if not desc.ndims:
        return memory[start // 4]
    strides = [stride * memory.itemsize for stride in desc.outer_strides()]
    return np.lib.stride_tricks.as_strided(memory[start // 4 :], desc.dims, strides, writeable=False)


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, dict[str, Any], tuple[int, ...]]]]:
    """Draw a shape and views one after the other: kind, attributes, shape of the result."""
    dims = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    found, now = [], dims
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["reshape", "transpose", "slice", "expand"]))
        attrs: dict[str, Any] = {}
        if kind == "reshape":
            total = math.prod(now)
            first = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
            rest = total // first
            second = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
            now = (first, second, rest // second)
        elif kind == "transpose":
            attrs["perm"] = draw(st.permutations(range(len(now))))
            now = tuple(now[axis] for axis in attrs["perm"])
        elif kind == "slice":
            cuts = [(draw(st.integers(0, size - 1)), draw(st.integers(1, 3))) for size in now]
            attrs["starts"], attrs["steps"] = [start for start, _ in cuts], [step for _, step in cuts]
            attrs["ends"] = list(now)
            now = tuple(-(-(size - start) // step) for size, (start, step) in zip(now, cuts, strict=True))
        else:
            now = (*(2,) * draw(st.integers(0, 1)), *(draw(st.integers(1, 3)) if size == 1 else size for size in now))
        found.append((kind, attrs, now))
    return dims, found


def tuples(attrs: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) for name, value in attrs.items()}


def in_numpy(kind: str, array: Any, attrs: dict[str, Any], dims: tuple[int, ...]) -> Any:
    if kind == "reshape":
        return array.reshape(dims)
    if kind == "transpose":
        return array.transpose(attrs["perm"])
    if kind == "slice":
        return array[tuple(slice(a, None, s) for a, s in zip(attrs["starts"], attrs["steps"], strict=True))]
    return np.broadcast_to(array, dims)


@given(chains())
def test_a_chain_of_views_reads_what_numpy_reads(
    drawn: tuple[tuple[int, ...], list[tuple[str, dict[str, Any], tuple[int, ...]]]],
) -> None:
    dims, views = drawn
    memory = np.arange(math.prod(dims), dtype=np.float32)
    expected: Any = memory.reshape(dims)
    desc, start = MemoryDesc(dims, "f32"), 0
    for kind, attrs, wanted in views:
        expected = in_numpy(kind, expected, attrs, wanted)
        found = describe_view(Node(kind, "", (0,), (1,), tuples(attrs)), desc, wanted)
        if found is None:
            # Only what NumPy would copy too has no view.
            assert kind == "reshape"
            assert not np.shares_memory(expected, memory)
            return
        desc, start = found[0], start + found[1]
        np.testing.assert_array_equal(read(memory, desc, start), expected)
        assert start + desc.nbytes <= memory.nbytes
    assert desc.dims == expected.shape


def test_blocks_have_no_view() -> None:
    node = Node("transpose", "", (0,), (1,), {"perm": (1, 0, 2, 3)})
    assert describe_view(node, MemoryDesc((1, 16, 2, 2), "f32", "nChw16c"), (16, 1, 2, 2)) is None
