"""The package: what the source distribution and the wheel hold, and that the installed wheel imports."""

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

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("poolrt", "workers", "cachestore")
#: Files besides Python's that the package needs when it runs.
DATA = (".cl", ".lua", ".npz", ".toml")


def _run(*words: str | Path, cwd: Path) -> str:
    # Away from the repository and without PYTHONPATH, nothing but what is installed can be imported.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POOLRT"))}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _build(source: Path, kind: str, target: Path) -> Path:
    """Call the build backend as pip does, with the setuptools that is installed here: no network."""
    code = f"import sys; from setuptools import build_meta; print(); print(build_meta.build_{kind}(sys.argv[1]))"
    return target / _run(sys.executable, "-c", code, str(target), cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build repository -> source distribution -> wheel, as a stranger would get it."""
    place = tmp_path_factory.mktemp("packaging")
    # The backend writes into the tree that it builds: let that be a copy.
    tree = place / "tree"
    tree.mkdir()
    for folder in (*FLOORS, "configs"):
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, tree)
    source = _build(tree, "sdist", place)
    _run("tar", "-xzf", source, cwd=place)
    return _build(place / source.name.removesuffix(".tar.gz"), "wheel", place)


def test_the_wheels_only_top_level_is_poolrt(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"poolrt"}
    assert len(tops) == 2


def test_the_wheel_holds_every_module_and_data_file_of_the_three_floors(wheel: Path) -> None:
    expected = {"poolrt/py.typed"}
    for floor in FLOORS:
        inside = Path("poolrt") if floor == "poolrt" else Path("poolrt", floor)
        for place, _, names in os.walk(ROOT / floor):
            kept = [name for name in names if name.endswith((".py", *DATA))]
            expected |= {str(inside / (Path(place) / name).relative_to(ROOT / floor)) for name in kept}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected


def test_the_metadata_names_licence_extras_and_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {"onnx", "opencl-intel", "test", "bench", "lint", "dev"} == set(metadata.get_all("Provides-Extra", []))
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
