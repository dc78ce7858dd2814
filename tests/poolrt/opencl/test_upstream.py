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
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest

from poolrt.cachestore import CacheStore

from . import only_here
from .drivers import PLATFORMS, choose_platform

#: The folder of pyopencl's source distribution, if it is there already.
SOURCES: Final = "PYOPENCL_SOURCES"
#: pyopencl's test file -> an expression of pytest for its tests that run here. Left out are one test that repeats another on
#: dozens of types (dot), random numbers of `test_clrandom.py`, arrays of gigabytes, and pyopencl's own cache of programs.
FILES: Final = {
    "test_wrapper.py": "",
    "test_arrays_in_structs.py": "",
    "test_clrandom.py": "",
    "test_clmath.py": "",
    "test_algorithm.py": "not dot and not 262144",
    "test_array.py": "not random and not large and not xdg_cache_home",
}
#: The same on PoCL, which compiles a program for 0.3 s to 8 s: every kind of program, and fewer types of each.
ON_POCL: Final = {
    "test_algorithm.py": "not dot and not test_minmax and not int64 and not float and not 262144",
    "test_array.py": "basic_complex or fill or div_type or absrealimag or custom_type or multi_put or fancy or concatenate"
    " or any_all or transpose or outoforderqueue or device_scalars or stack or comparisons or maximum_minimum",
}
#: The same on Intel's driver: its Bessel functions differ from SciPy's by 6e-4 with pyopencl's class, too, which allows 1e-10.
ON_INTEL: Final = {"test_clmath.py": "not test_bessel"}
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
#: Examples that crash with pyopencl's own class, too: PoCL frees shared virtual memory of a queue wrongly, in a thread. With
#: pyopencl's class that shows only if the process lives some milliseconds longer: 1 of 40 did, and 6 of 20 with one thread.
CRASHES: Final = (("Portable", "demo_array_svm.py"),)
#: Replaces the class, unless a variable is set, and writes the outcome of each test.
PLUGIN: Final = """
import json, os
import only_here
only_here.refuse_writes_outside(os.environ["ONLY_HERE"])
import pyopencl
if not os.environ.get("PLAIN_PYOPENCL"):
    import poolrt.opencl
    pyopencl.Program = poolrt.opencl.Program
def pytest_collection_modifyitems(items):
    for counts in [getattr(item.module, "scan_test_counts", []) for item in items[:1]]:
        counts[:] = [count for count in counts if count <= int(os.environ["LARGEST"])]
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
#: Largest arrays of scans, sorts and list builders; pyopencl's go to 8 million, whose references take minutes.
_LARGEST: Final = 1 << 13
#: Seconds for one file or example: a guard, for a machine that is busy with other things, too.
_LIMIT_S: Final = 1800
_ROOT: Final = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def unchanged_tree() -> Iterator[None]:
    """What the programs write stays out of the repository."""
    before = _files(_ROOT)
    yield
    assert _files(_ROOT) <= before


def _files(folder: Path) -> set[str]:
    """Return all files below a folder but hidden ones and bytecode."""
    found: set[str] = set()
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        found.update(os.path.join(path, name) for name in files if not name.startswith("."))
    return found


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, unchanged_tree: None) -> Path:
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


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder for one program, with all that it may write; servers of caches in it are stopped at the end."""
    for name in ("work", "tmp", "pocl"):
        (tmp_path / name).mkdir()
    (tmp_path / "our_program.py").write_text(PLUGIN)
    shutil.copy(only_here.__file__, tmp_path)
    yield tmp_path
    CacheStore.connect(home=str(tmp_path / "home")).down()


def _python(here: Path, command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder of its own, with all caches in there."""
    own = {
        "ONLY_HERE": str(here), "HOME": str(here), "TMPDIR": str(here / "tmp"), "XDG_CACHE_HOME": str(here / "cache"),
        "POOLRT_HOME": str(here / "home"), "POCL_CACHE_DIR": str(here / "pocl"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **own, **variables},
        cwd=here / "work",
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def _run(tests: Path, file: str, chosen: str, packages: Path, here: Path, **variables: str) -> dict[str, Any]:
    """Return the outcomes of a file's tests, and the counts of our programs."""
    report = here / "outcomes.json"
    command = ["-m", "pytest", "-q", "-p", "our_program", "-p", "no:cacheprovider", "-W", "default", "-c", os.devnull]
    done = _python(
        here,
        [*command, "--rootdir", str(tests), str(tests / file), "-k", chosen],
        OUTCOMES=str(report),
        LARGEST=str(_LARGEST),
        PYOPENCL_NO_CACHE="1",
        PYTHONPATH=f"{here}{os.pathsep}{packages}",
        **variables,
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(report.read_text())
    report.unlink()
    return found | {"text": done.stdout[-5000:]}


def _run_example(example: Path, packages: Path, here: Path) -> subprocess.CompletedProcess[str]:
    """Run an example with our class in place of pyopencl's; it must build a program."""
    code = f"""
import os, runpy, only_here
only_here.refuse_writes_outside(os.environ["ONLY_HERE"])
import pyopencl, poolrt
pyopencl.Program = poolrt.opencl.Program
runpy.run_path({str(example)!r}, run_name="__main__")
stats = poolrt.opencl.stats()
assert stats and "fallbacks" not in stats, stats
"""
    return _python(here, ["-c", code], PYOPENCL_CTX="0", PYTHONPATH=f"{here}{os.pathsep}{packages}")


def _with_outcome(found: dict[str, Any], wanted: str) -> set[str]:
    return {name for name, outcome in found["outcomes"].items() if outcome == wanted}


@pytest.mark.slow
@pytest.mark.timeout(2 * _LIMIT_S)
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("file", FILES)
def test_the_tests_of_pyopencl_that_pass_with_its_program_pass_with_ours(
    here: Path, device: str, monkeypatch: pytest.MonkeyPatch, platform: str, file: str, sources: Path, packages: Path
) -> None:
    choose_platform(platform, monkeypatch)
    chosen = (ON_POCL if platform == "Portable" else ON_INTEL).get(file, FILES[file])
    ours = _run(sources / "test", file, chosen, packages, here)
    assert _with_outcome(ours, "passed"), ours["text"]
    assert ours["stats"]["created"] > 0
    failed = _with_outcome(ours, "failed")
    if failed:
        plain = _run(sources / "test", file, chosen, packages, here, PLAIN_PYOPENCL="1")
        assert failed <= _with_outcome(plain, "failed"), ours["text"]


@pytest.mark.slow
@pytest.mark.timeout(_LIMIT_S)
@pytest.mark.parametrize(
    ("platform", "example"),
    [(platform, example) for platform in PLATFORMS for example in EXAMPLES if (platform, example) not in CRASHES],
)
def test_the_examples_of_pyopencl_run_with_our_program(
    here: Path, device: str, monkeypatch: pytest.MonkeyPatch, platform: str, example: str, sources: Path, packages: Path
) -> None:
    choose_platform(platform, monkeypatch)
    done = _run_example(sources / "examples" / example, packages, here)
    assert done.returncode == 0, done.stderr[-3000:]


#: Tries each way to write into the folder in its first argument, and prints what came of them.
_WRITES: Final = """
import os, sqlite3, sys
import only_here
only_here.refuse_writes_outside(os.environ["ONLY_HERE"])
ways = {
    "open": lambda path: open(path, "w"),
    "os.open": lambda path: os.open(path, os.O_CREAT),
    "mkdir": os.mkdir,
    "symlink": lambda path: os.symlink("there", path),
    "rename": lambda path: os.rename("own", path),
    "sqlite": sqlite3.connect,
}
for name, way in ways.items():
    open("own", "w").close()
    try:
        way(os.path.join(sys.argv[1], "poolrt-test-" + name))
        print(name, "done")
    except PermissionError as error:
        print(name, "refused")
"""


def test_a_program_of_others_writes_into_its_own_folder_only(here: Path) -> None:
    found = [_python(here, ["-c", _WRITES, str(place)], PYTHONPATH=str(here)) for place in (here / "work", _ROOT)]
    own, elsewhere = ([line.split() for line in done.stdout.splitlines()] for done in found)
    assert len(own) == len(elsewhere) == 6, found
    assert {outcome for _, outcome in own} == {"done"}
    assert {outcome for _, outcome in elsewhere} == {"refused"}
    assert {path.name for path in _ROOT.iterdir() if path.name.startswith("poolrt-test-")} == set()
