"""The Makefile and the CI script: the targets that are promised, and when an installation is repeated."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("run", "test", "test-all", "drills", "bench", "lint", "clean", "help")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what make reads, and a virtual environment whose stamps are all up to date."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    for stamp in (".made", ".for-run", ".for-test", ".for-bench", ".for-lint"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


def _plan(tree: Path, target: str) -> str:
    """What make would do."""
    # Make hands its own flags on to what it starts; this one begins anew.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(
        ["make", "-n", target], cwd=tree, capture_output=True, text=True, timeout=30, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_lists_the_promised_targets() -> None:
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert set(TARGETS) <= {line.split()[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_is_one_that_make_knows_how_to_reach(tree: Path, target: str) -> None:
    assert _plan(tree, target)


@pytest.mark.parametrize(
    ("target", "stamp", "extras"),
    [
        ("run", ".for-run", "[onnx]"),
        ("test", ".for-test", "[onnx,test]"),
        ("bench", ".for-bench", "[onnx,test,bench]"),
        ("lint", ".for-lint", "[onnx,test,lint]"),
    ],
)
def test_an_installation_is_repeated_when_it_did_not_end_or_the_project_has_changed(
    tree: Path, target: str, stamp: str, extras: str
) -> None:
    install = f"pip --disable-pip-version-check -q install -e '.{extras}'"
    # Given an installation that has ended, then it is not repeated
    assert install not in _plan(tree, target)
    # Given one that did not end, then it is
    (tree / ".venv" / stamp).unlink()
    assert install in _plan(tree, target)
    # Given a project that has changed since, then it is, too
    (tree / ".venv" / stamp).touch()
    os.utime(tree / "pyproject.toml", (2e9, 2e9))
    assert install in _plan(tree, target)


def test_a_virtual_environment_that_was_not_finished_is_made_anew(tree: Path) -> None:
    shutil.rmtree(tree / ".venv")
    assert "-m venv --clear .venv" in _plan(tree, "test")


def test_every_extra_that_make_installs_is_one_of_the_project() -> None:
    import tomllib

    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    used = re.findall(r"\$\(call install,\[([^]]*)\]\)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert used
    for names in used:
        assert set(names.replace("$(comma)", ",").split(",")) <= extras


def test_the_scripts_that_make_runs_exist() -> None:
    plan = _plan(ROOT, "run") + _plan(ROOT, "bench")
    scripts = re.findall(r"(?:examples|benchmarks)/\w+\.py", plan)
    assert scripts
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


def test_ci_is_a_valid_script_that_may_be_executed_and_ends_in_make_test() -> None:
    path = ROOT / ".ci" / "run"
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True, timeout=30)
    assert path.read_text(encoding="utf-8").rstrip().splitlines()[-1].endswith("make --no-print-directory test")
