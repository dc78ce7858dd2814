"""Prebuilt kernels: the first process on an empty cache creates nothing, with other shapes too; damage costs time only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poolrt import Graph
from poolrt.cachestore.prebuilt import PrebuiltFile
from poolrt.prebuilt.collection import Collection
from poolrt.prebuilt.making import make
from poolrt.workers.engines.target import cpu_target

ROOT = Path(__file__).resolve().parents[2]
#: Prints the report of a load, the counters of the store, and whether the result is right.
RUN = """
import json, sys, time
import numpy as np
import poolrt
rows, threads = int(sys.argv[1]), int(sys.argv[2])
graph = poolrt.Graph("relu")
graph.output("y", graph.eltwise(graph.input("x", (rows, 40)), "relu"))
x = np.random.default_rng(rows).standard_normal((rows, 40)).astype(np.float32)
with poolrt.Pool(workers=1, threads=threads) as pool:
    model = pool.load(graph)
    right = bool(np.array_equal(model.run(x=x)["y"], np.maximum(x, 0)))
    until = time.monotonic() + 60 * (len(sys.argv) > 3)  # until the kernels that send runs to workers have been looked for
    while pool.stats()["cache"]["hits"]["prebuilt"] < 3 and time.monotonic() < until:
        model.run(x=x)
    print(json.dumps([model.report["primitives"], pool.stats()["cache"], right]))
"""


def _graph() -> Graph:
    graph = Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (3, 40)), "relu"))
    return graph


def _kernels() -> Collection:
    kernels = Collection([cpu_target()])
    kernels.add(_graph())
    return kernels


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the kernels of a relu for this processor, and those of the native threadpool, of rings and of small products."""
    path = tmp_path_factory.mktemp("prebuilt") / "kernels.parts"
    kernels = _kernels()
    first, again = make(str(path), kernels), make(str(path), kernels)
    assert first.kernels == first.compiled == 9
    assert (again.kernels, again.compiled, again.bytes) == (9, 0, first.bytes)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[dict[str, int], dict[str, Any], str]]:
    """Return what a new process in an empty home reports: the sources of its primitives, counters, standard error."""

    def run(
        prebuilt: Path | str, rows: int = 500, threads: int = 2, rings: bool = False, **more: str
    ) -> tuple[Any, Any, str]:
        home = tmp_path / "home"
        env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
        env |= {"HOME": str(home), "XDG_CACHE_HOME": "", "POOLRT_PREBUILT": str(prebuilt), **more}
        env["POOLRT_REDIS_URL"] = f"unix://{tmp_path}/none.sock"
        home.mkdir()
        try:
            done = subprocess.run(
                [sys.executable, "-c", RUN, str(rows), str(threads), *["rings"] * rings],
                cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False,
            )  # fmt: skip
        finally:
            shutil.rmtree(home)
        assert done.returncode == 0, done.stderr
        report, stats, right = json.loads(done.stdout)
        assert right
        return report, stats, done.stderr

    return run


def test_the_first_process_on_an_empty_cache_creates_nothing(
    made: Path, run: Callable[..., tuple[dict[str, int], dict[str, Any], str]]
) -> None:
    report, stats, _ = run(made)
    assert (report["total"], report["created"], report["prebuilt"]) == (2, 0, 2)
    assert (stats["hits"]["prebuilt"], stats["misses"], stats["corrupt"]) == (2, 0, 0)


def test_runs_on_rings_create_nothing_either(
    made: Path, run: Callable[..., tuple[dict[str, int], dict[str, Any], str]]
) -> None:
    _, stats, _ = run(made, rings=True)
    assert (stats["hits"]["prebuilt"], stats["misses"], stats["corrupt"], stats["creations"]) == (3, 0, 0, 0)


def test_damaged_kernels_are_compiled_with_one_line_and_a_count(
    made: Path, run: Callable[..., tuple[dict[str, int], dict[str, Any], str]], tmp_path: Path
) -> None:
    # Given a file in which the last byte of the relu has changed
    (relu,) = (key for key, (pd, _) in _kernels().kernels.items() if pd.op.kind == "eltwise")
    part = PrebuiltFile(str(made)).read(relu)
    assert part is not None
    damaged = tmp_path / "kernels.parts"
    content = bytearray(made.read_bytes())
    content[content.index(part) + len(part) - 1] ^= 1
    damaged.write_bytes(content)
    report, stats, text = run(damaged)
    assert (report["created"], report["prebuilt"]) == (1, 1)
    assert stats["corrupt"] == 1
    assert text.count("prebuilt kernels in") == 1


@pytest.mark.slow
def test_the_setting_turns_them_off_and_weaker_processors_do_not_use_them(
    made: Path, run: Callable[..., tuple[dict[str, int], dict[str, Any], str]]
) -> None:
    assert run("none", threads=1)[0]["created"] == 1
    assert run(made, threads=1, POOLRT_MAX_CPU_ISA="x86-64")[0]["created"] == 1


@pytest.mark.slow
def test_a_wheel_takes_them_along(
    made: Path, run: Callable[..., tuple[dict[str, int], dict[str, Any], str]], tmp_path: Path
) -> None:
    # Given a tree with the file, and the wheel of its source distribution
    tree = tmp_path / "tree"
    tree.mkdir()
    listed = (ROOT / "MANIFEST.files").read_text(encoding="utf-8").split()
    for name in [*listed, "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "MANIFEST.files"]:
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    shutil.copy(made, tree / "cachestore" / "prebuilt.parts")
    code = "from setuptools import build_meta as b; import sys; print(); print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
    for kind, place in (("sdist", tree), ("wheel", None)):
        if place is None:
            (archive,) = tmp_path.glob("*.tar.gz")
            shutil.unpack_archive(archive, tmp_path / "unpacked", filter="data")
            (place,) = (tmp_path / "unpacked").iterdir()
        command = [sys.executable, "-c", code, kind, str(tmp_path)]
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    # When a process imports the installed package in an empty home
    program = f"import sys; sys.path[0] = {str(tmp_path / 'installed')!r}\n{RUN}\nassert poolrt.__file__.startswith(sys.path[0])"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("POOLRT_", "PYTHON"))}
    home = tmp_path / "home"
    home.mkdir()
    env |= {
        "HOME": str(home),
        "PYTHONPATH": str(tmp_path / "installed"),
        "POOLRT_REDIS_URL": f"unix://{tmp_path}/none.sock",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, "7", "2"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    # Then it creates nothing
    assert done.returncode == 0, done.stderr
    report, _, right = json.loads(done.stdout)
    assert right
    assert (report["created"], report["prebuilt"]) == (0, 2)
