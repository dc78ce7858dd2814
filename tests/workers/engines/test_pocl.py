"""PoCL's private cache folder, and the name of a processor that its LLVM does not know."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.workers.engines.pocl import find_names, is_wrong, processor_name
from tests.other_user import OTHER, needs_root

from ..own_process import ROOT, python

V3 = frozenset(
    {"sse2", "sse4_1", "ssse3", "cx16", "popcnt", "avx", "f16c", "fma", "avx2", "bmi1", "bmi2", "movbe", "abm"}
)
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
MAKE = "from poolrt.workers.engines.pocl import private_cache; import sys; print(private_cache(), flush=True); "


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (V4, "skylake-avx512"),
        (V3, "haswell"),
        (V3 - {"avx2", "fma"}, "sandybridge"),
        (frozenset({"sse2", "cx16", "ssse3", "sse4_1"}), "penryn"),
        (frozenset({"sse2"}), "x86-64"),
        (V4 - {"avx512vl"}, None),
        (frozenset[str](), None),
    ],
)
def test_the_processor_has_the_features_of_the_library_that_pocl_picks(flags: frozenset[str], name: str | None) -> None:
    assert processor_name(flags) == name


@pytest.mark.parametrize(
    ("name", "flags", "wrong"),
    [
        ("generic", V3, True),
        ("znver3", V4, True),
        ("znver3", V3, False),
        ("haswell", V3, False),
        ("skylake-avx512", V4, False),
        ("znver4", V4, False),
    ],
)
def test_a_name_is_wrong_that_is_none_or_an_older_processor_s(name: str, flags: frozenset[str], wrong: bool) -> None:
    assert is_wrong(name, flags) == wrong


def test_the_name_is_found_beside_the_triple_and_nowhere_else() -> None:
    memory = {100: b"x86_64-unknown-linux-gnu\0", 200: b"generic\0", 300: b"generic-device\0"}
    record = struct.pack("<6Q", 200, 300, 100, 200, 100, 300)
    assert find_names(record, "generic", lambda address, size: memory.get(address, b"")[:size]) == [24]


def test_a_record_without_the_name_is_left_alone() -> None:
    memory = {100: b"x86_64-unknown-linux-gnu\0", 200: b"znver3\0"}
    record = struct.pack("<3Q", 100, 200, 1 << 63)
    assert find_names(record, "generic", lambda address, size: memory.get(address, b"")[:size]) == []


def test_each_process_has_its_own_folder_and_removes_it(tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path)}
    first, second = (Path(python(MAKE, env).strip()) for _ in range(2))
    assert first != second
    assert first.parent == tmp_path
    assert not list(tmp_path.iterdir())


@needs_root
def test_a_folder_of_another_user_is_not_swept(tmp_path: Path) -> None:
    folder = tmp_path / f"poolrt-pocl-{os.getuid()}-x"
    folder.mkdir()
    (folder / "alive").touch()
    os.chown(folder, OTHER, OTHER)
    python(MAKE, {"TMPDIR": str(tmp_path)})
    assert (folder / "alive").exists()


def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    # Given a process that holds a folder and one that was killed
    command = [sys.executable, "-c", MAKE + "sys.stdin.read()"]
    with (
        subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as alive,
        subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dead,
    ):
        assert alive.stdout is not None
        assert dead.stdout is not None
        kept, left = Path(alive.stdout.readline().strip()), Path(dead.stdout.readline().strip())
        dead.send_signal(signal.SIGKILL)
        dead.wait(20)
        assert kept.exists()
        assert left.exists()
        # When another process starts
        python(MAKE, {"TMPDIR": str(tmp_path)})
        # Then only the dead one's folder is gone
        assert kept.exists()
        assert not left.exists()
        alive.communicate("", timeout=20)
    assert not list(tmp_path.iterdir())
