"""A warm hit of a program binary: no pickle is read or written on its way."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore

from ..own_process import ROOT

LIMIT_S = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a home folder whose server is stopped at the end."""
    yield tmp_path
    CacheStore.connect(home=str(tmp_path)).down()


def source_of_hit(home: Path, *options: str) -> str:
    command = [sys.executable, "-m", "tests.workers.primitives.opencl_warm_hit", str(home), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_pickle_is_used_on_the_way_from_files_and_redis_to_a_program(device: str, home: Path) -> None:
    assert source_of_hit(home) == "created"
    assert source_of_hit(home, "block") == "files"
    shutil.rmtree(home / "default" / "entries")
    assert source_of_hit(home, "block") == "redis"
