"""Every benchmark runs, in its shortest form; how fast anything is on this machine is not asked here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Modules of the others: no programs.
MODULES = {"measure.py", "onednn.py", "rivals.py"}
PROGRAMS = sorted(path.name for path in (ROOT / "benchmarks").glob("*.py") if path.name not in MODULES)
#: The rivals that only `make bench` and `make test-all` install.
RIVALS = ("cachetools", "diskcache", "dogpile", "openvino")


def _run(program: str, home: Path, *words: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("POOLRT_", "XDG_"))}
    env["HOME"] = str(home)
    command = [sys.executable, str(ROOT / "benchmarks" / program), *words]
    try:
        done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=540, check=False)
    finally:
        # The embedded server outlives the programs that use it.
        down = [sys.executable, "-m", "poolrt", "cache", "down"]
        subprocess.run(down, cwd=home, env=env, capture_output=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not all(map(find_spec, RIVALS)), reason="the rivals are not installed: make bench installs them")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_benchmark_runs_and_prints_ratios(program: str, tmp_path: Path) -> None:
    assert re.search(r"\bratio \d", _run(program, tmp_path, "--short"))


@pytest.mark.slow
@pytest.mark.skipif(not all(map(find_spec, RIVALS)), reason="the rivals are not installed: make bench installs them")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_benchmark_explains_its_short_form(program: str, tmp_path: Path) -> None:
    assert "--short" in _run(program, tmp_path, "--help")
