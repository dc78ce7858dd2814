"""What people see of the files of constants: their number and bytes, who maps them, and which are of no use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cachestore.constant_files import ConstantFiles
from poolrt.cachestore.constant_inspection import ConstantsFound, clear_constants, find_constants
from poolrt.cachestore.errors import PathRefused

NAMES = [f"{number:064x}" for number in range(5)]
SIZE = 10_000

_WRITING = """
import sys
from poolrt.cachestore.constant_files import ConstantFiles
def make():
    print("making", flush=True)
    sys.stdin.read()
    return memoryview(bytes(100))
ConstantFiles(sys.argv[1], 1 << 20).find_or_write(sys.argv[2], 100, make)
"""


def written(folder: Path, *names: str) -> ConstantFiles:
    files = ConstantFiles(str(folder), 1 << 20)
    for name in names:
        files.open_or_write(name, SIZE, lambda: memoryview(bytes(SIZE)))
    return files


def test_files_are_counted_with_the_processes_that_map_them(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    assert find_constants(str(folder)) == ConstantsFound()
    files = written(folder, *NAMES[:2])
    found = find_constants(str(folder))
    assert (found.files, found.bytes, found.processes, found.problems) == (2, 2 * 16384, (), ())
    mapped = files.find_or_write(NAMES[0], SIZE, lambda: memoryview(b""))
    assert find_constants(str(folder)).processes == (os.getpid(),)
    del mapped
    assert find_constants(str(folder)).processes == ()


@pytest.mark.parametrize("damage", ["cut", "empty", "another's name", "writable", "link", "half-written"])
def test_a_file_of_no_use_is_named_with_the_reason_and_cleared(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    written(folder, NAMES[0], NAMES[1])
    path = next(folder.glob(f"*/{NAMES[0]}"))
    match damage:
        case "cut":
            os.truncate(path, 5000)
        case "empty":
            os.truncate(path, 0)
        case "another's name":
            path = path.rename(path.with_name(NAMES[2]))
        case "writable":
            path.chmod(0o622)
        case "link":
            path.unlink()
            path.symlink_to(NAMES[1])
        case "half-written":
            path = path.rename(f"{path}.part")
    found = find_constants(str(folder))
    assert (found.files, [each for each, _ in found.problems]) == (1, [str(path)])
    assert found.problems[0][1].startswith(
        {"writable": "other users", "link": "cannot be opened", "half-written": "half-written"}.get(damage, "damaged")
    )
    assert clear_constants(str(folder)) == 2
    assert find_constants(str(folder)) == ConstantsFound()


def test_what_another_user_owns_is_of_no_use(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    folder = tmp_path / "c"
    written(folder, NAMES[0])
    os.chown(next(folder.glob("*/*")), 4242, 4242)
    assert find_constants(str(folder)).problems[0][1] == "belongs to user 4242"


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    folder = str(tmp_path / "c")
    command = [sys.executable, "-c", _WRITING, folder, NAMES[0]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"making\n"
        assert find_constants(folder) == ConstantsFound(unfinished=1)
        assert clear_constants(folder) == 0
        child.communicate(timeout=60)
    assert find_constants(folder).files == 1


def test_a_folder_that_others_can_change_is_a_problem_and_is_not_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    written(folder, NAMES[0])
    folder.chmod(0o777)
    assert find_constants(str(folder)).problems[0][0] == str(folder)
    with pytest.raises(PathRefused):
        clear_constants(str(folder))
    assert len(list(folder.glob("*/*"))) == 1
