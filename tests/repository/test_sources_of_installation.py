"""Installations in clean virtual environments, from each form that poolrt comes in: README's ten lines run on all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
#: Longest that one step may take, in seconds: the dependencies are 150 MB, from a registry.
STEP_S = 600.0
LINKS = ("poolrt/workers", "poolrt/cachestore")


def _try(*words: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POOLRT", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        words, cwd=cwd, env=env | variables, capture_output=True, text=True, timeout=STEP_S, check=False
    )


def _run(*words: str | Path, cwd: Path, **variables: str) -> str:
    done = _try(*words, cwd=cwd, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _ten_lines() -> str:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    return page.partition("\n## Ten lines\n")[2].partition("```python\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with the files of this checkout, links as links."""
    place = tmp_path_factory.mktemp("repository") / "poolrt"
    kept = shutil.ignore_patterns(
        ".venv", ".git", "__pycache__", ".*_cache", "*.egg-info", "build", "dist", ".hypothesis"
    )
    shutil.copytree(ROOT, place, symlinks=True, ignore=kept)
    author = ("-c", "user.name=poolrt", "-c", "user.email=poolrt@localhost")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "Import")):
        _run("git", *words, cwd=place)
    return place


@pytest.fixture(scope="module")
def unzipped(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder from a ZIP archive, whose links Python's unzipper and others write as files with the target's path."""
    place = tmp_path_factory.mktemp("unzipped")
    _run("git", "archive", "--format=zip", "--prefix=poolrt-main/", "-o", place / "main.zip", "HEAD", cwd=repository)
    with zipfile.ZipFile(place / "main.zip") as archive:
        archive.extractall(place)
    assert all((place / "poolrt-main" / link).read_text() == f"../{Path(link).name}" for link in LINKS)
    return place / "poolrt-main"


@pytest.fixture(scope="module")
def built(unzipped: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source distribution of the unzipped folder, and the wheel of that distribution."""
    place = tmp_path_factory.mktemp("built")
    code = "import sys; from setuptools import build_meta as b; print(); print(b.build_sdist(sys.argv[1]))"
    source = place / _run(sys.executable, "-c", code, str(place), cwd=unzipped).splitlines()[-1]
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place, source, cwd=place)
    (wheel,) = place.glob("*.whl")
    return {"sdist": source, "wheel": wheel}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a clean virtual environment."""
    folder = tmp_path / "environment"
    _run(sys.executable, "-m", "venv", folder, cwd=tmp_path)
    seen = _try(folder / "bin" / "pip", "download", "-q", "--no-deps", "-d", tmp_path / "seen", "msgpack", cwd=tmp_path)
    if seen.returncode:
        pytest.skip("pip reaches no registry with poolrt's dependencies")
    return folder / "bin" / "python"


@pytest.fixture
def home(tmp_path: Path, python: Path) -> Iterator[Path]:
    """An empty home folder; the server that is started there is stopped."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    yield folder
    if (python.parent / "poolrt").exists():
        _run(python.parent / "poolrt", "cache", "down", cwd=tmp_path, POOLRT_HOME=str(folder))


@pytest.mark.parametrize("form", ["zip", "sdist", "wheel", "directory", "git"])
def test_the_ten_lines_run_on_an_installation_from(
    form: str, repository: Path, unzipped: Path, built: dict[str, Path], python: Path, home: Path, tmp_path: Path
) -> None:
    # Given an installation with nothing but what pip gets
    sources = {"zip": unzipped, "directory": repository, "git": f"git+file://{repository}", **built}
    _run(python, "-m", "pip", "install", "-q", "--no-compile", str(sources[form]), cwd=tmp_path)
    (tmp_path / "ten.py").write_text(_ten_lines(), encoding="utf-8")
    # When the ten lines are run, away from the sources, and with the sources first on the path
    away = _run(python, tmp_path / "ten.py", cwd=tmp_path, POOLRT_HOME=str(home))
    at_home = _run(python, "-c", _ten_lines(), cwd=unzipped, POOLRT_HOME=str(home))
    # Then both print the shape
    assert away == at_home == "(64, 10)\n"
    # And the package is the installed one, with every file of the list
    code = "import poolrt, os; print(os.path.dirname(poolrt.__file__))"
    package = Path(_run(python, "-c", code, cwd=tmp_path).strip())
    assert package.is_relative_to(tmp_path / "environment")
    listed = {*(ROOT / "MANIFEST.files").read_text(encoding="utf-8").split()} - {*LINKS}
    assert {path for path in listed if not (package / path.removeprefix("poolrt/")).is_file()} == set()


def test_an_editable_installation_of_unzipped_sources_runs(
    unzipped: Path, python: Path, home: Path, tmp_path: Path
) -> None:
    _run(python, "-m", "pip", "install", "-q", "--no-compile", "-e", str(unzipped), cwd=tmp_path)
    assert _run(python, "-c", _ten_lines(), cwd=tmp_path, POOLRT_HOME=str(home)) == "(64, 10)\n"


def test_pip_of_python_3_10_refuses_every_form_with_one_reason(
    built: dict[str, Path], unzipped: Path, tmp_path: Path
) -> None:
    older = shutil.which("python3.10")
    if older is None or _try(older, "-c", "import venv", cwd=tmp_path).returncode:
        pytest.skip("there is no python3.10 in PATH")
    _run(older, "-m", "venv", tmp_path / "older", cwd=tmp_path)
    for source in (*built.values(), unzipped):
        done = _try(tmp_path / "older" / "bin" / "pip", "install", "-q", "--no-deps", str(source), cwd=tmp_path)
        assert done.returncode != 0
        assert ">=3.11" in done.stderr or "poolrt needs Python 3.11 or newer; this is 3.10" in done.stdout + done.stderr
