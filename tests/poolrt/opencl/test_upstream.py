"""pyopencl's own tests and examples with our `Program` in place of its own: what passes with pyopencl's passes with ours.

Its wheel has neither, so pip fetches the source distribution of the installed version, and Mako, the templates of its
algorithms, into a temporary folder. Without a package index the tests are skipped.

Left out, as they build no programs: ``test_enqueue_copy.py``, ``dump-performance.py``, ``dump-properties.py``. Examples that
are left out for what they need: a screen (``demo_mandelbrot.py``, ``gl_interop_demo.py``, ``gl_particle_animation.py``),
OpenGL or CUDA (``black-hole-accretion.py``), packages that nothing else needs here (``demo_meta_codepy.py``: cgen;
``image_filters_using_image2d_t.py``: Pillow; ``median-filter.py``: imageio), a notebook (``ipython-demo.ipynb``), minutes of
measuring (``transpose.py``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest

from poolrt.cachestore import CacheStore

from .drivers import PLATFORMS, choose_platform

#: The folder of pyopencl's source distribution, if it is there already.
SOURCES: Final = "PYOPENCL_SOURCES"
#: pyopencl's test file -> an expression of pytest for its tests that run here.
FILES: Final = {
    "test_wrapper.py": "",
    "test_arrays_in_structs.py": "",
    "test_clrandom.py": "",
    "test_clmath.py": "",
    # Others make the same kinds of programs by the dozen, which takes PoCL minutes each.
    "test_algorithm.py": "not segmented and not sort and not list and not bitonic and not key_value",
    "test_array.py": "basic_complex or mix_complex or fill or div_type or absrealimag or custom_type",
}
EXAMPLES: Final = (
    "demo-struct-reduce.py",
    "demo.py",
    "demo_array.py",
    "demo_array_svm.py",
    "demo_elementwise.py",
    "demo_elementwise_complex.py",
    "demo_meta_template.py",
    "n-body.py",
    "narray.py",
    "pi-monte-carlo.py",
    "svm.py",
)
#: Replaces the class, unless a variable is set, and writes the outcome of each test.
PLUGIN: Final = """
import json, os
import pyopencl
if not os.environ.get("PLAIN_PYOPENCL"):
    import poolrt.opencl
    pyopencl.Program = poolrt.opencl.Program
outcomes = {}
def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = report.outcome
def pytest_sessionfinish(session):
    plain = os.environ.get("PLAIN_PYOPENCL")
    stats = {} if plain else poolrt.opencl.stats()
    with open(os.environ["OUTCOMES"], "w") as file:
        json.dump({"outcomes": outcomes, "stats": stats}, file)
"""
#: Seconds for one file or example.
_LIMIT_S: Final = 900


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get(SOURCES):
        return Path(named)
    folder = tmp_path_factory.mktemp("pyopencl")
    wanted = f"pyopencl=={version('pyopencl')}"
    _pip("download", "--no-deps", "--no-binary", "pyopencl", "--dest", str(folder), wanted)
    with tarfile.open(next(folder.glob("pyopencl-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.glob("pyopencl-*") if path.is_dir())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    _pip("install", "--no-compile", "--target", str(folder), "mako")
    return folder


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()
        pytest.skip(f"pip cannot fetch {arguments[-1]}: {reason[-1] if reason else done.returncode}")


def _run(folder: Path, file: str, chosen: str, tmp_path: Path, variables: dict[str, str]) -> dict[str, Any]:
    """Return the outcomes of a file's tests, and the counts of our programs."""
    (tmp_path / "our_program.py").write_text(PLUGIN)
    report = tmp_path / "outcomes.json"
    command = ["-m", "pytest", "-q", "-p", "our_program", "-p", "no:cacheprovider", "-W", "default", "-c", os.devnull]
    done = subprocess.run(
        [sys.executable, *command, "--rootdir", str(folder), file, "-k", chosen],
        cwd=folder,
        env={**os.environ, **variables, "OUTCOMES": str(report), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found | {"text": done.stdout[-5000:]}


def _with_outcome(found: dict[str, Any], wanted: str) -> set[str]:
    return {name for name, outcome in found["outcomes"].items() if outcome == wanted}


@pytest.mark.slow
@pytest.mark.timeout(2 * _LIMIT_S)
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("file", FILES)
def test_the_tests_of_pyopencl_that_pass_with_its_program_pass_with_ours(
    tmp_path: Path,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    file: str,
    sources: Path,
    packages: Path,
) -> None:
    choose_platform(platform, monkeypatch)
    variables = {
        "POOLRT_HOME": str(tmp_path / "home"),
        "POCL_CACHE_DIR": str(tmp_path),
        "PYOPENCL_NO_CACHE": "1",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{packages}",
    }
    try:
        ours = _run(sources / "test", file, FILES[file], tmp_path, variables)
    finally:
        CacheStore.connect(home=str(tmp_path / "home")).down()
    assert _with_outcome(ours, "passed"), ours["text"]
    assert ours["stats"]["created"] > 0
    failed = _with_outcome(ours, "failed")
    if failed:
        plain = _run(sources / "test", file, FILES[file], tmp_path, {**variables, "PLAIN_PYOPENCL": "1"})
        assert failed <= _with_outcome(plain, "failed"), ours["text"]


@pytest.mark.slow
@pytest.mark.timeout(_LIMIT_S)
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_pyopencl_run_with_our_program(
    tmp_path: Path,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    example: str,
    sources: Path,
    packages: Path,
) -> None:
    choose_platform(platform, monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    variables = {"POOLRT_HOME": str(tmp_path / "home"), "POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_CTX": "0"}
    code = f"""
import runpy, pyopencl, poolrt
pyopencl.Program = poolrt.opencl.Program
runpy.run_path({str(sources / "examples" / example)!r}, run_name="__main__")
stats = poolrt.opencl.stats()
assert stats and "fallbacks" not in stats, stats
"""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    finally:
        CacheStore.connect(home=str(tmp_path / "home")).down()
    assert done.returncode == 0, done.stderr[-3000:]
