"""A mapping shows what any process writes to the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from poolrt.cachestore.mapping import map_record


def test_a_mapping_shows_at_once_what_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"a" * 52)
    descriptor = os.open(path, os.O_RDWR)
    mapping = map_record(descriptor, 52)
    assert mapping is not None, "the tests' temporary folder should be on a local file system"
    assert mapping[:] == b"a" * 52
    code = "import os, sys; os.pwrite(os.open(sys.argv[1], os.O_RDWR), b'b' * 52, 0)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert mapping[:] == b"b" * 52
    os.pwrite(descriptor, b"c", 0)
    assert mapping[0] == ord("c")
    os.close(descriptor)


def test_what_cannot_be_mapped_is_none(tmp_path: Path) -> None:
    empty = os.open(tmp_path / "empty", os.O_RDWR | os.O_CREAT)
    reading, writing = os.pipe()
    # The file system of process information is not known to keep a mapping up to date.
    status = os.open("/proc/self/status", os.O_RDONLY)
    assert [map_record(descriptor, 52) for descriptor in (empty, reading, status, -1)] == [None] * 4
    for descriptor in (empty, reading, writing, status):
        os.close(descriptor)
