"""A view of the arena: shared between processes, bounded, and gone with the last buffer taken from it."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from poolrt.memory.arena import make_arena
from poolrt.workers.memory.arena_view import ArenaView

_BYTES = 1 << 20


@pytest.fixture
def arena() -> Iterator[int]:
    """The descriptor of an arena."""
    fd = make_arena(_BYTES)
    yield fd
    os.close(fd)


def _mappings() -> int:
    return Path("/proc/self/maps").read_text(encoding="ascii").count("poolrt-arena")


def _descriptors() -> int:
    return sum("poolrt-arena" in os.readlink(fd.path) for fd in os.scandir("/proc/self/fd") if os.path.islink(fd.path))


def test_what_is_written_through_one_view_is_read_through_another(arena: int) -> None:
    first, second = ArenaView(arena), ArenaView(arena)
    assert first.nbytes == _BYTES
    np.frombuffer(first.buffer(4096, 16), np.float32)[:] = [1, 2, 3, 4]
    assert list(np.frombuffer(second.buffer(4096, 16), np.float32)) == [1, 2, 3, 4]
    assert second.at(4096, 16) == second.address + 4096


def test_the_mapping_lasts_as_long_as_any_array_in_it_and_no_longer(arena: int) -> None:
    before = _mappings()
    view = ArenaView(arena)
    assert _mappings() == before + 1
    buffer = view.buffer(0, 64)
    ended = weakref.ref(buffer)
    array = np.frombuffer(buffer, np.uint8)[3:5]
    del view, buffer
    gc.collect()
    assert ended() is not None
    array[:] = 7
    del array
    gc.collect()
    assert ended() is None
    assert _mappings() == before


def test_a_view_holds_no_descriptor(arena: int) -> None:
    before = _descriptors()
    view = ArenaView(arena)
    assert _descriptors() == before
    assert view.nbytes == _BYTES


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 8), (_BYTES - 7, 8), (_BYTES, 1), (1 << 62, 1)])
def test_bytes_outside_of_the_arena_are_refused(arena: int, offset: int, nbytes: int) -> None:
    view = ArenaView(arena)
    with pytest.raises(ValueError, match="outside of an arena"):
        view.at(offset, nbytes)
    with pytest.raises(ValueError, match="outside of an arena"):
        view.buffer(offset, nbytes)


def test_what_cannot_be_mapped_is_an_error_that_says_so() -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(OSError, match="cannot be mapped"):
            ArenaView(read)
    finally:
        os.close(read)
        os.close(write)


def test_a_view_that_is_kept_from_forks_is_not_in_them(arena: int) -> None:
    shared, kept = ArenaView(arena), ArenaView(arena)
    kept.keep_from_forks()
    before = _mappings()
    assert shared.nbytes == kept.nbytes
    pid = os.fork()
    if pid == 0:
        os._exit(_mappings())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == before - 1
