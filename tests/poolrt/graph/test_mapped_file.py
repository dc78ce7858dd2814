"""Arrays that are parts of mapped files: found again, read where they are, and given back."""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from poolrt.graph.constant import Constant
from poolrt.graph.mapped_file import FileIdentity, MappedFile, file_of, resolution_ns
from tests.poolrt.pool.processes import wait_until

#: Lines of a mapping in smaps after which no second size of it comes.
_LINES: Final = 10


def _resident(path: Path) -> int:
    """Return the bytes of a file's mappings that this process has in memory."""
    with open("/proc/self/smaps", encoding="utf-8") as file:
        lines = file.read().splitlines()
    starts = [number for number, line in enumerate(lines) if line.endswith(str(path))]
    return sum(
        int(line.split()[1]) << 10 for at in starts for line in lines[at : at + _LINES] if line.startswith("Rss:")
    )


def _mapped(path: Path, content: bytes) -> MappedFile:
    path.write_bytes(content)
    with path.open("rb") as file:
        return MappedFile(file, path)


def test_the_file_of_an_array_is_found_through_views_and_buffers(tmp_path: Path) -> None:
    file = _mapped(tmp_path / "a", bytes(range(240)))
    part = file.part(8, 96)
    assert file_of(part) is file
    assert file_of(part.view("<f4").reshape(4, 6).T[1:3]) is file
    assert file_of(np.frombuffer(file.data[3:9], np.uint8)) is file
    assert file_of(part.copy()) is None
    assert not part.flags.writeable
    assert part.tolist() == list(range(8, 104))


def test_a_file_is_another_one_after_every_change(tmp_path: Path) -> None:
    first = _mapped(tmp_path / "a", bytes(64)).identity
    with (tmp_path / "a").open("rb") as file:
        assert MappedFile(file, tmp_path / "a").identity == first
    assert _mapped(tmp_path / "b", bytes(64)).identity != first
    assert _mapped(tmp_path / "a", bytes(63)).identity != first


def test_a_file_is_settled_once_its_times_show_the_next_change(tmp_path: Path) -> None:
    file = _mapped(tmp_path / "a", bytes(64))
    assert file.identity is not None
    wait_until(file.is_settled, "the file is settled")
    assert time.time_ns() - file.identity.changed_ns > resolution_ns(file.identity, file.is_local)
    (tmp_path / "a").write_bytes(bytes(64))
    assert not file.is_settled()
    again = _mapped(tmp_path / "a", bytes(64))
    assert again.identity != file.identity
    wait_until(again.is_settled, "the file is settled again")


@pytest.mark.parametrize("step_ns", [10_000_000, 1_000_000_000, 2_000_000_000])
def test_files_settle_late_if_their_times_are_coarse_or_of_another_host(step_ns: int) -> None:
    now = 1_800_000_000_123_456_789
    fine, coarse = (FileIdentity(1, 2, 3, changed, changed) for changed in (now, now // step_ns * step_ns))
    for identity, local in ((fine, False), (coarse, False), (coarse, True)):
        assert resolution_ns(identity, local) >= 2_000_000_000
    assert resolution_ns(fine, True) < resolution_ns(fine, False)


def test_arrays_without_room_behind_them_in_the_mapping_are_not_read_in_place(tmp_path: Path) -> None:
    file = _mapped(tmp_path / "a", bytes(2 * mmap.PAGESIZE))
    assert file.holds(file.part(0, mmap.PAGESIZE))
    assert file.holds(file.part(0, mmap.PAGESIZE).view("<f4").reshape(32, 32))
    assert not file.holds(file.part(mmap.PAGESIZE, mmap.PAGESIZE))
    assert not file.holds(file.part(1, 8).view("<f4"))
    assert not file.holds(file.part(0, 64).view("<f4").reshape(4, 4)[:, :2])


def test_pages_that_are_left_are_read_again(tmp_path: Path) -> None:
    content = np.random.default_rng(1).integers(0, 256, 4 << 20, np.uint8)
    file = _mapped(tmp_path / "a", content.tobytes())
    part = file.part(100, len(file) - 200)
    total = int(part.sum())
    assert _resident(tmp_path / "a") >= 4 << 20
    file.leave(part)
    assert _resident(tmp_path / "a") <= 64 << 10
    assert int(part.sum()) == total


def test_the_order_of_elements_in_memory_describes_a_constant() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axes, tag in (((0, 1, 2), "abc"), ((2, 0, 1), "bca"), ((1, 0, 2), "bac")):
        constant = Constant(values.transpose(axes))
        found = constant.in_order()
        assert found is not None
        array, desc = found
        assert (desc.tag, desc.dims) == (tag, constant.dims)
        assert array.reshape(-1).tolist() == values.reshape(-1).tolist()
    assert Constant(values[:, ::2]).in_order() is None
    assert Constant(values[::-1]).in_order() is None
    assert Constant(values, np.array([1.0, 2.0])).in_order() is None
    assert Constant(values, None, "bf16").in_order() is None
    assert Constant(values, None, "f64").in_order() is None
