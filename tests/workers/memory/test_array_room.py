"""Arrays that kernels read in place, and the beginning of large arrays made here, where reads do not wait for writes."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from poolrt.workers.memory.array_address import address_in_order
from poolrt.workers.memory.array_room import ArrayRoom, copy_with_room, has_room_behind, in_order, readable_in_place

PAGE = mmap.PAGESIZE


def on_a_page(nbytes: int, place: int = 0) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return bytes that begin at a place of a page."""
    room = np.zeros(nbytes + 2 * PAGE, np.uint8)
    start = (place - room.ctypes.data) % PAGE
    return room[start : start + nbytes]


def test_only_arrays_in_order_have_an_address() -> None:
    whole = on_a_page(24 * 4).view(np.float32).reshape(4, 6)
    frozen = whole[1:3]
    frozen.flags.writeable = False
    for array in (whole, frozen, whole[2], whole[:, :1][:1], whole.view(">f4")):
        assert address_in_order(array) == array.ctypes.data
        assert readable_in_place(array)
        assert in_order(array) is array
    unaligned = on_a_page(24 * 4, 1).view(np.float32)
    for array in (whole.T, whole[:, 1:], whole[::2], whole[::-1], unaligned):
        assert address_in_order(array) == 0
        assert not readable_in_place(array)
        copy = in_order(array)
        assert address_in_order(copy) == copy.ctypes.data
        assert np.array_equal(copy, array)


def test_only_arrays_with_room_behind_them_are_read_in_place_by_all_kernels() -> None:
    last = on_a_page(PAGE)
    assert not has_room_behind(last.ctypes.data + last.nbytes)
    assert address_in_order(last) == last.ctypes.data
    assert not readable_in_place(last)
    assert readable_in_place(last[:-64])
    assert in_order(last) is last


@pytest.mark.parametrize("nbytes", [1, 1 << 15, 1 << 16, 3 << 20])
def test_large_rooms_begin_in_the_middle_of_a_page_and_all_on_a_cache_line(nbytes: int) -> None:
    room = ArrayRoom(nbytes)
    assert room.address % 64 == 0
    assert room.address == room.bytes.ctypes.data + room.start
    assert room.start + nbytes + 64 <= len(room.bytes)
    if nbytes >= 1 << 16:
        # NumPy's own large arrays begin 16 bytes behind the beginning of a page, with glibc.
        assert PAGE // 4 < room.address % PAGE < 3 * PAGE // 4


@pytest.mark.parametrize("nbytes", [1, 21, 64, 1000, 70_000])
def test_a_copy_can_be_read_where_it_is_wherever_it_is(nbytes: int) -> None:
    values = np.arange(nbytes).astype(np.uint8)
    kept = [copy_with_room(values) for _ in range(300)]
    for copy in kept:
        assert readable_in_place(copy)
        assert copy.ctypes.data % 64 == 0
        np.testing.assert_array_equal(copy, values)
