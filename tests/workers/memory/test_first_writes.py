"""First writes to pages of an arena: the bytes are right, whatever was written before, here or in another mapping."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from poolrt.workers.memory.arena_view import ArenaView
from poolrt.workers.memory.first_writes import FirstWrites

_NBYTES = 24 << 20


@pytest.fixture
def fd() -> Iterator[int]:
    found = os.memfd_create("poolrt-test", os.MFD_CLOEXEC)
    os.ftruncate(found, _NBYTES)
    yield found
    os.close(found)


def _bytes(view: ArenaView, offset: int, nbytes: int) -> bytes:
    return bytes(memoryview(view.buffer(offset, nbytes)).cast("B"))


def test_random_writes_of_two_mappings_leave_what_was_written_last(fd: int) -> None:
    drawn = random.Random(3)
    views = [ArenaView(fd), ArenaView(fd)]
    writers = [FirstWrites(view, fd) for view in views]
    expected = bytearray(_NBYTES)
    new = 0
    for _ in range(60):
        nbytes = drawn.choice([1, 5000, (1 << 20) - 1, 1 << 20, (2 << 20) + 12345, 5 << 20])
        offset = drawn.randrange(0, (_NBYTES - nbytes) // 128 + 1) * 128
        offset = min(offset, _NBYTES - nbytes)
        data = drawn.randbytes(nbytes)
        which = drawn.randrange(2)
        if writers[which].write_new(memoryview(data), offset):
            new += 1
        else:
            writers[which].prepare(offset, nbytes)
            memoryview(views[which].buffer(offset, nbytes)).cast("B")[:] = data
        expected[offset : offset + nbytes] = data
    assert new
    for view in views:
        assert _bytes(view, 0, _NBYTES) == expected


def test_pages_that_something_has_written_to_are_not_new(fd: int) -> None:
    view = ArenaView(fd)
    writes = FirstWrites(view, fd)
    data = memoryview(bytes(2 << 20))
    view.buffer(3 << 20, 1)[0] = b"x"
    assert not writes.write_new(data, 2 << 20)
    assert _bytes(view, 3 << 20, 1) == b"x"
    assert writes.write_new(data, 8 << 20)
    assert not writes.write_new(data, 8 << 20)
    assert not writes.write_new(data[: 1 << 19], 16 << 20)  # short


def test_without_the_memory_nothing_is_written(fd: int) -> None:
    view = ArenaView(fd)
    assert not FirstWrites(view).write_new(memoryview(bytes(2 << 20)), 0)


def test_a_write_that_fails_is_left_to_the_mapping(fd: int) -> None:
    view = ArenaView(fd)
    copy = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        assert not FirstWrites(view, copy).write_new(memoryview(bytes(2 << 20)), 0)
    finally:
        os.close(copy)


def test_pages_are_prepared_that_are_written_in_full(fd: int) -> None:
    view = ArenaView(fd)
    FirstWrites(view).prepare(_NBYTES // 2, 1000)  # short
    FirstWrites(view).prepare((1 << 20) + 100, 3 << 20)
    if not view.populate(_NBYTES - 4096, 4096):
        pytest.skip("this kernel has no call that maps pages for writing")
    begin = os.lseek(fd, 0, os.SEEK_DATA)
    assert (begin, os.lseek(fd, begin, os.SEEK_HOLE)) == ((1 << 20) + (256 << 10), 4 << 20)
    assert _bytes(view, 0, _NBYTES) == bytes(_NBYTES)
