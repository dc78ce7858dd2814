"""Many processes that start with the same programs at one moment, and pyopencl's own tests with our `Program`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from poolrt.cachestore import CacheStore
from tests.workers.own_process import Server

from .test_program import MODULE

#: The folder of pyopencl's source distribution, of the version that is installed; its wheel has no tests.
SOURCES: Final = "PYOPENCL_SOURCES"
#: Its tests that build programs and need nothing that is not installed here.
FILES: Final = ("test_wrapper.py", "test_clmath.py", "test_arrays_in_structs.py")
PLUGIN: Final = """
import pyopencl
import poolrt.opencl
pyopencl.Program = poolrt.opencl.Program
def pytest_unconfigure(config):
    print(chr(10), "counts", poolrt.opencl.stats())
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("platform", ["Portable", "Intel"])
def test_a_storm_of_4_processes_and_20_programs_builds_20(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    driver = Path(sys.prefix) / "lib" / "libintelocl.so"
    if platform == "Intel":
        if not driver.exists():
            pytest.skip("Intel's driver is not installed: install poolrt[opencl-intel]")
        monkeypatch.setenv("OCL_ICD_VENDORS", str(driver))
    home = tmp_path / "home"
    monkeypatch.setenv("POOLRT_HOME", str(home))
    monkeypatch.setenv("POOLRT_TEST_PLATFORM", platform)
    monkeypatch.delenv("POOLRT_REDIS_URL", raising=False)
    servers = [Server(MODULE, str(tmp_path / f"pocl-{number}")) for number in range(4)]
    try:
        with ThreadPoolExecutor(4) as threads:
            ready = [threads.submit(server.ask, ["build", {"source": "__kernel void g() {}"}]) for server in servers]
            assert all("counts" in one.result() for one in ready)
            begin = time.time() + 0.5
            asked = [threads.submit(server.ask, ["storm", {"programs": 20, "begin": begin}]) for server in servers]
            answers = [one.result() for one in asked]
        counts: Counter[str] = Counter()
        for answer in answers:
            *built, failed = answer
            assert [one["values"][0] for one in built] == list(range(20))
            assert "undeclared identifier 'nonsense_here'" in failed["error"]
            for one in built:
                counts.update(one["counts"])
        assert counts["created"] == 20
        assert counts.total() == 80
        assert "fallbacks" not in counts
    finally:
        for server in servers:
            server.close()
        # Their exits have published what PoCL compiled at the launches. So a new process compiles nothing.
        last = Server(MODULE, str(tmp_path / "pocl-last"))
        try:
            warm = last.ask(["storm", {"programs": 20, "begin": 0.0}])[:-1]
        finally:
            last.close()
            CacheStore.connect(home=str(home)).down()
    assert all(one["counts"].keys() <= {"files", "redis"} and one["late"] == 0 for one in warm)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", FILES)
def test_the_tests_of_pyopencl_pass_with_our_program(tmp_path: Path, device: str, file: str) -> None:
    if SOURCES not in os.environ:
        pytest.skip(f"{SOURCES} does not name the folder of pyopencl's source distribution")
    folder = Path(os.environ[SOURCES]) / "test"
    (tmp_path / "our_program.py").write_text(PLUGIN)
    variables = {"POOLRT_HOME": str(tmp_path / "home"), "POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "1"}
    command = ["-m", "pytest", "-q", "-p", "our_program", "-p", "no:cacheprovider", "-W", "default", "-c", os.devnull]
    done = subprocess.run(
        [sys.executable, *command, "--rootdir", str(folder), file],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    CacheStore.connect(home=str(tmp_path / "home")).down()
    assert done.returncode == 0, done.stdout[-5000:]
    assert "'created': " in done.stdout


#: Its examples that end within seconds and need neither a screen nor a package that is not installed here.
EXAMPLES: Final = (
    "demo.py",
    "demo_array.py",
    "demo_array_svm.py",
    "svm.py",
    "narray.py",
    "n-body.py",
    "pi-monte-carlo.py",
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_examples_of_pyopencl_run_with_our_program(tmp_path: Path, device: str) -> None:
    if SOURCES not in os.environ:
        pytest.skip(f"{SOURCES} does not name the folder of pyopencl's source distribution")
    variables = {"POOLRT_HOME": str(tmp_path / "home"), "POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_CTX": "0"}
    for example in EXAMPLES:
        path = Path(os.environ[SOURCES]) / "examples" / example
        code = f"""
import runpy, pyopencl, poolrt
pyopencl.Program = poolrt.opencl.Program
runpy.run_path({str(path)!r}, run_name="__main__")
stats = poolrt.opencl.stats()
assert stats and "fallbacks" not in stats, stats
"""
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"{example}: {done.stderr}"
    CacheStore.connect(home=str(tmp_path / "home")).down()
