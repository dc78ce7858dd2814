"""Every benchmark runs, in its shortest form; how fast anything is on this machine is not asked here."""

from __future__ import annotations

import os
import re
import signal
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_benchmark_that_is_stopped_cleans_up(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import os, tempfile, time\n"
        "from measure import arguments\n"
        "def wait():\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "arguments('')\n"
        "with tempfile.TemporaryDirectory(dir=os.environ['FOLDER']):\n"
        "    begun, begins = os.pipe()\n"
        "    if not (child := os.fork()):\n"
        "        os.write(begins, b'.')\n"
        "        wait()\n"
        "    os.read(begun, 1)\n"
        f"    os.kill(child, {number:d})\n"
        "    print(os.waitpid(child, 0)[1], os.listdir(os.environ['FOLDER']), flush=True)\n"
        "    wait()\n"
    )
    command = [sys.executable, "-c", code]
    env = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks"), "FOLDER": str(tmp_path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            status, _, folders = program.stdout.readline().partition(" ")
            program.send_signal(number)
            assert program.wait(30) == 128 + number
        finally:
            program.kill()
    # The forked process ended by the signal, and left the folder to the program.
    assert int(status) == number
    assert folders != "[]\n"
    assert not list(tmp_path.iterdir())
