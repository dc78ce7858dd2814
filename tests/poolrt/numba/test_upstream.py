"""Numba's own tests of its cache, with poolrt's in its place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_numbas_tests_of_its_cache_pass_but_for_those_of_its_files() -> None:
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "tests.poolrt.numba.upstream", "numba.tests.test_caching"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=500)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == [], done.stderr[-4000:]
    assert found["run"] >= 25
    assert found["counts"]["created"] > 10
    assert found["counts"]["fallbacks"] == 0
