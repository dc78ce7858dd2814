"""The package: what the source distribution and the wheel hold, with links and without, and that the wheel imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.made_once import made_once

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("poolrt", "workers", "cachestore")
#: Files besides Python's that the package needs when it runs.
DATA = (".cl", ".lua", ".npz", ".toml")
#: Calls the build backend as pip does, with the setuptools that is installed here: no network.
BUILD = "import sys; from setuptools import build_meta; print(); print(build_meta.build_{}(sys.argv[1]))"


def _try(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Away from the repository and without PYTHONPATH, nothing but what is installed can be imported.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POOLRT"))}
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False)


def _run(*words: str | Path, cwd: Path) -> str:
    done = _try(*words, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _build(source: Path, kind: str, target: Path) -> Path:
    return target / _run(sys.executable, "-c", BUILD.format(kind), str(target), cwd=source).splitlines()[-1]


def _copy(target: Path) -> Path:
    """Copy what the package is built from, links as links: the backend writes into the tree that it builds."""
    target.mkdir()
    for folder in (*FLOORS, "configs"):
        shutil.copytree(
            ROOT / folder, target / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.parts")
        )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in", "MANIFEST.files"):
        shutil.copy(ROOT / name, target)
    return target


def _files_of_the_floors() -> set[str]:
    found = {"poolrt/py.typed"}
    for floor in FLOORS:
        for place, _, names in os.walk(ROOT / floor):
            kept = [name for name in names if name.endswith((".py", *DATA))]
            found |= {str((Path(place) / name).relative_to(ROOT)) for name in kept}
    return found


@pytest.fixture(scope="module")
def wheel() -> Path:
    """Build repository -> source distribution -> wheel, as a stranger would get it, once in all processes of a run."""
    (found,) = made_once("packaging", _build_wheel).glob("*.whl")
    return found


def _build_wheel(place: Path) -> None:
    source = _build(_copy(place / "tree"), "sdist", place)
    _run("tar", "-xzf", source, cwd=place)
    _build(place / source.name.removesuffix(".tar.gz"), "wheel", place)


@pytest.fixture(scope="module")
def unlinked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as tools unpack a ZIP archive: a file with the target's path in the place of each link."""
    tree = _copy(tmp_path_factory.mktemp("unlinked") / "tree")
    for floor in FLOORS[1:]:
        (tree / "poolrt" / floor).unlink()
        (tree / "poolrt" / floor).write_text(f"../{floor}")
    return tree


def test_the_wheels_only_top_level_is_poolrt(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"poolrt"}
    assert len(tops) == 2


def test_the_wheel_holds_every_module_and_data_file_of_the_three_floors(wheel: Path) -> None:
    expected = {path if path.startswith("poolrt/") else f"poolrt/{path}" for path in _files_of_the_floors()}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected


def test_the_list_of_files_is_complete() -> None:
    listed = {*(ROOT / "MANIFEST.files").read_text(encoding="utf-8").split()} - {"poolrt/workers", "poolrt/cachestore"}
    assert listed == _files_of_the_floors(), "run: git add -A; git ls-files poolrt workers cachestore > MANIFEST.files"


@pytest.mark.slow
def test_sources_without_links_give_the_same_wheel_and_none_of_an_earlier_build(
    wheel: Path, unlinked: Path, tmp_path: Path
) -> None:
    # Given a tree whose links are files, with a module of an earlier build
    old = unlinked / "build" / "lib" / "poolrt" / "workers" / "old.py"
    old.parent.mkdir(parents=True)
    old.touch()
    # When the wheel is built
    built = zipfile.ZipFile(_build(unlinked, "wheel", tmp_path))
    # Then it has the modules of the other one, byte by byte
    assert _modules(built) == _modules(zipfile.ZipFile(wheel))


def _modules(archive: zipfile.ZipFile) -> dict[str, bytes]:
    return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_sources_without_links_can_be_imported_where_they_are(unlinked: Path) -> None:
    code = "import poolrt, poolrt.workers, poolrt.cachestore as c; print(c.__file__, poolrt.Matmul.__name__)"
    seen = _run(sys.executable, "-c", code, cwd=unlinked).split()
    assert seen == [str(unlinked / "cachestore" / "__init__.py"), "Matmul"]


def test_a_package_without_its_floors_takes_no_other_folder_for_them(tmp_path: Path) -> None:
    # Given an installation that has lost a part, beside a distribution that has a package of its name
    _copy(tmp_path / "tree")
    for floor in FLOORS[1:]:
        (tmp_path / "tree" / "poolrt" / floor).unlink()
    (tmp_path / "tree" / "pyproject.toml").unlink()
    # When it is imported
    done = _try(sys.executable, "-c", "import poolrt", cwd=tmp_path / "tree")
    # Then the error says so
    assert done.returncode == 1
    assert "poolrt has no folder 'workers': a part of poolrt is missing; install poolrt again" in done.stderr


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("sdist", "workers/kernels/native/softmax.py"),
        ("wheel", "cachestore/redis/lua/evict.lua"),
        ("wheel", "workers"),
        ("wheel", "MANIFEST.files"),
    ],
)
def test_a_build_without_one_of_its_files_fails_and_names_it(
    unlinked: Path, tmp_path: Path, lost: str, kind: str
) -> None:
    there = unlinked / lost
    there.rename(unlinked / "elsewhere")
    try:
        done = _try(sys.executable, "-c", BUILD.format(kind), str(tmp_path), cwd=unlinked)
    finally:
        (unlinked / "elsewhere").rename(there)
    assert done.returncode == 1
    first, *named = done.stderr.splitlines()
    assert first == "poolrt cannot be built, because these files are missing; get its sources again:"
    assert named[0].startswith(lost)
    assert len(named) <= 21
    assert not [*tmp_path.iterdir()]


def test_the_wheel_is_for_linux_on_x86_64(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    (tags,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/WHEEL")]
    assert "Tag: py3-none-linux_x86_64\n" in zipfile.ZipFile(wheel).read(tags).decode()


def test_pip_refuses_the_wheel_on_another_processor(wheel: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--only-binary=:all:"]
    done = _try(*words, "--platform=manylinux2014_aarch64", "--target", tmp_path / "target", wheel, cwd=tmp_path)
    assert done.returncode == 1
    assert "is not a supported wheel on this platform" in done.stderr


def test_a_build_with_python_3_10_fails_at_once(unlinked: Path, tmp_path: Path) -> None:
    older = BUILD.format("wheel").replace("; print();", "; sys.version_info = (3, 10, 12);")
    done = _try(sys.executable, "-c", older, str(tmp_path), cwd=unlinked)
    assert done.returncode == 1
    assert done.stderr == "poolrt needs Python 3.11 or newer; this is 3.10.12: use another interpreter\n"


def test_the_metadata_names_licence_extras_and_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"onnx", "strings", "dask", "metrics", "opencl-intel", "test", "bench", "docs", "lint", "dev"} == set(
        metadata.get_all("Provides-Extra", [])
    )
    assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert "poolrt = poolrt.cli:main" in archive.read(f"{info}/entry_points.txt").decode()


def test_the_installed_wheel_imports_and_its_command_answers(wheel: Path, tmp_path: Path) -> None:
    # Given a fresh virtual environment with the wheel, and this environment's libraries (but not its poolrt) behind it
    _run(sys.executable, "-m", "venv", "--without-pip", "fresh", cwd=tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    target = _run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    _run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        target,
        str(wheel),
        cwd=tmp_path,
    )
    (Path(target) / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    # A folder that would shadow a top-level `workers`
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").write_text("raise RuntimeError('somebody else's workers')\n")
    # When all three floors are imported and the command is called
    code = "import poolrt, poolrt.workers, poolrt.cachestore as c; print(c.__file__)"
    seen = _run(python, "-c", code, cwd=tmp_path).strip()
    answer = _run(python, "-m", "poolrt", "--help", cwd=tmp_path)
    # Then they come from the wheel, and the command needs no library to explain itself
    assert Path(seen).is_relative_to(target)
    assert "usage: poolrt" in answer
