"""Constants in files that processes of a node share: written once, mapped by all, checked, bounded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from poolrt.cachestore.constant_files import ConstantFiles

NAME = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
CONTENT = bytes(range(256)) * 40 + b"end"


def given(content: bytes = CONTENT) -> Callable[[], memoryview]:
    return lambda: memoryview(content)


def refused() -> memoryview:
    raise AssertionError("the constant is there and must not be made")


def read(files: ConstantFiles, make: Callable[[], memoryview], content: bytes = CONTENT, name: str = NAME) -> bytes:
    found = files.find_or_write(name, len(content), make)
    assert found is not None
    assert found.address % 4096 == 0
    assert found.nbytes >= len(content) + 64  # kernels read behind it
    return bytes(found.view[: len(content)])


def the_file(folder: Path, name: str = NAME) -> Path:
    (found,) = folder.glob(f"*/{name}")
    return found


def test_a_constant_is_written_once_and_found_by_others(tmp_path: Path) -> None:
    first, second = (ConstantFiles(str(tmp_path / "c"), 1 << 20) for _ in range(2))
    assert read(first, given()) == CONTENT
    assert read(second, refused) == CONTENT
    assert read(first, refused) == CONTENT
    assert first.counts == {"missed": 1, "written": 1, "found": 1}
    assert second.counts == {"found": 1}
    assert (the_file(tmp_path / "c").stat().st_mode & 0o777, (tmp_path / "c").stat().st_mode & 0o777) == (0o600, 0o700)
    with pytest.raises(TypeError, match="read-only"):
        found = first.find_or_write(NAME, len(CONTENT), refused)
        assert found is not None
        found.view[0] = 1


@pytest.mark.parametrize(
    "damage", ["cut", "longer", "no description", "another's", "writable", "link", "pipe", "empty"]
)
def test_a_damaged_file_is_a_miss_that_is_counted_and_written_again(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    read(ConstantFiles(str(folder), 1 << 20), given())
    read(ConstantFiles(str(folder), 1 << 20), given(CONTENT[::-1]), name=OTHER)
    path, whole = the_file(folder), the_file(folder).read_bytes()
    path.unlink()
    match damage:
        case "cut":
            path.write_bytes(whole[:-4096])
        case "longer":
            path.write_bytes(whole + bytes(4096))
        case "no description":
            path.write_bytes(whole[:-4096] + bytes(4096))
        case "another's":
            path.write_bytes(the_file(folder, OTHER).read_bytes())
        case "empty":
            path.write_bytes(b"")
        case "writable":
            path.write_bytes(whole)
            path.chmod(0o622)
        case "link":
            path.symlink_to(the_file(folder, OTHER))
        case "pipe":
            os.mkfifo(path)
    files = ConstantFiles(str(folder), 1 << 20)
    made = files.find_or_write(NAME, len(CONTENT), given())
    if damage == "link":  # it cannot be opened, so what it names is neither read nor removed
        assert made is None
        assert files.counts == {"failed": 1}
        return
    assert made is not None
    assert bytes(made.view[: len(CONTENT)]) == CONTENT
    assert files.counts == {"refused": 1, "missed": 1, "written": 1}
    assert read(ConstantFiles(str(folder), 1 << 20), refused) == CONTENT


@pytest.mark.parametrize("torn", [False, True])
def test_files_of_an_earlier_start_of_the_machine_are_compared_with_their_checksums(torn: bool, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    read(ConstantFiles(str(folder), 1 << 20), given())
    path = the_file(folder)
    earlier = folder / "an-earlier-start"
    path.parent.rename(earlier)
    if torn:
        whole = (earlier / NAME).read_bytes()
        (earlier / NAME).write_bytes(whole[:4096] + bytes(4096) + whole[8192:])
    files = ConstantFiles(str(folder), 1 << 20)
    assert read(files, given() if torn else refused) == CONTENT
    assert files.counts == ({"refused": 1, "missed": 1, "written": 1} if torn else {"found": 1})
    assert the_file(folder) == path
    files.sweep()
    assert not earlier.exists()


def test_the_least_recently_used_are_removed_and_stay_for_those_who_map_them(tmp_path: Path) -> None:
    size = 10_000
    files = ConstantFiles(str(tmp_path / "c"), 60_000)
    names = [f"{number:064x}" for number in range(3)]
    mapped = []
    for number, name in enumerate(names):
        mapped.append(files.find_or_write(name, size, given(bytes([number]) * size)))
        os.utime(the_file(tmp_path / "c", name), (number, number))
    assert read(files, refused, bytes(size), names[0]) == bytes(size)  # the oldest is used, and so the latest
    files.find_or_write(OTHER, size, given(bytes(size)))
    files.sweep()
    assert {path.name for path in (tmp_path / "c").glob("*/*")} == {names[0], names[2], OTHER}
    assert [bytes(each.view[:size]) for each in mapped if each] == [bytes([n]) * size for n in range(3)]
    assert files.counts["evicted"] == 1
    assert files.find_or_write(NAME, 70_000, refused) is None


def test_threads_that_need_one_constant_write_it_once(tmp_path: Path) -> None:
    made, results, begin = [], [], threading.Barrier(8)

    def make() -> memoryview:
        made.append(1)
        return memoryview(CONTENT)

    def use() -> None:
        files = ConstantFiles(str(tmp_path / "c"), 1 << 20)
        begin.wait(20)
        results.append(read(files, make))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [CONTENT] * 8
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "c").glob("*/*")] == [NAME]


_KILLED = """
import sys, time
from poolrt.cachestore.constant_files import ConstantFiles
def make():
    print("making", flush=True)
    time.sleep(600)
ConstantFiles(sys.argv[1], 1 << 20).find_or_write(sys.argv[2], 100, make)
"""

_LIMITED = """
import resource, sys
from poolrt.cachestore.constant_files import ConstantFiles
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
files = ConstantFiles(sys.argv[1], 1 << 20)
print(files.find_or_write(sys.argv[2], 10_000, lambda: memoryview(bytes(10_000))), dict(files.counts))
"""


def test_a_writer_that_is_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    folder = str(tmp_path / "c")
    with subprocess.Popen([sys.executable, "-c", _KILLED, folder, NAME], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"making\n"
        finally:
            child.kill()
    files = ConstantFiles(folder, 1 << 20)
    assert read(files, given()) == CONTENT
    assert [path.name for path in (tmp_path / "c").glob("*/*")] == [NAME]


def test_a_full_disk_costs_a_count_and_leaves_no_part(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _LIMITED, str(tmp_path / "c"), NAME]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "None {'missed': 1, 'failed': 1}\n"
    assert not list((tmp_path / "c").glob("*/*"))


def test_a_folder_that_others_can_change_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    folder.chmod(0o777)
    files = ConstantFiles(str(folder), 1 << 20)
    assert files.find_or_write(NAME, 3, refused) is None
    assert files.counts == {"refused": 1}


def test_reading_only_writes_and_removes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    files = ConstantFiles(str(folder), 1 << 20, read_only=True)
    assert files.find_or_write(NAME, len(CONTENT), refused) is None
    assert not folder.exists()
    read(ConstantFiles(str(folder), 1 << 20), given())
    assert read(files, refused) == CONTENT
    path = the_file(folder)
    path.write_bytes(b"damaged")
    assert files.find_or_write(NAME, len(CONTENT), refused) is None
    assert path.read_bytes() == b"damaged"
