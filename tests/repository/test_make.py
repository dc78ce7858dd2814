"""The Makefile and the CI script: the targets that are promised, and when an installation is repeated."""

from __future__ import annotations

import marshal
import os
import re
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("run", "test", "test-all", "test-levels", "drills", "soak", "bench", "docs", "lint", "clean", "help")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what make reads, and a virtual environment whose stamps are all up to date."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    for stamp in (".made", ".for-run", ".for-test", ".for-bench", ".for-lint"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


def _make(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # Make and pytest hand their own settings on to what they start; these start without them, with few plugins,
    # and without the filter of warnings, for which pytest imports numba.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST_"))}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin,pytest_timeout"}
    env |= {"PYTEST_XDIST_AUTO_NUM_WORKERS": "1", "PYTEST_ADDOPTS": "-o filterwarnings="}
    env["TMPDIR"] = str(tree)  # pytest keeps its temporary folder
    return subprocess.run(["make", *words], cwd=tree, capture_output=True, text=True, timeout=100, check=False, env=env)


def _plan(tree: Path, target: str) -> str:
    """What make would do."""
    done = _make(tree, "-n", target)
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
    install = (
        f"pip --disable-pip-version-check -q install --no-compile --config-settings editable_mode=compat -e '.{extras}'"
    )
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


@pytest.mark.parametrize("place", ["file", "link that leads nowhere", "copy"])
@pytest.mark.one_in(3)
def test_a_checkout_without_links_gets_them(tree: Path, place: str) -> None:
    # Given an archive's substitute for a link
    (tree / ".venv" / ".made").unlink()
    (tree / ".venv" / "bin").mkdir()
    (tree / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tree / "poolrt").mkdir()
    for floor in ("workers", "cachestore"):
        (tree / floor).mkdir()
        link = tree / "poolrt" / floor
        if place == "file":
            link.write_text(f"../{floor}")
        elif place == "copy":
            link.mkdir()
        else:
            link.symlink_to("nowhere")
    # When the environment is made
    done = _make(tree, ".venv/.made")
    # Then it is a link; a folder is left alone
    assert done.returncode == 0, done.stderr
    for floor in ("workers", "cachestore"):
        link = tree / "poolrt" / floor
        assert not link.is_symlink() if place == "copy" else os.readlink(link) == f"../{floor}"


def test_modules_are_compiled_under_the_names_that_imports_give_them(tree: Path) -> None:
    # Given a project in a folder with a space in its name, whose floors are links
    tree = Path(shutil.copytree(tree, tree / "the tree"))
    (tree / ".venv" / "bin").mkdir()
    python = tree / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    (tree / "poolrt").mkdir()
    modules = [tree / "poolrt" / name for name in ("__init__.py", "__main__.py", "client.py")]
    for floor in ("workers", "cachestore"):
        (tree / floor / "room").mkdir(parents=True)
        (tree / "poolrt" / floor).symlink_to(f"../{floor}")
        modules.append(tree / "poolrt" / floor / "room" / "module.py")
    for module in modules:
        module.touch()
    # When kernels are compiled, for which the environment is up to date
    done = _make(tree, "prebuilt")
    # Then so are the modules, as any installation compiles them
    assert done.returncode == 0, done.stderr
    for module in modules:
        code = marshal.loads(Path(cache_from_source(str(module))).read_bytes()[16:])
        assert code.co_filename == str(module)
    compiles = re.findall(r"^.* -m compileall .*/cachestore.*$", _plan(tree, "prebuilt"), re.MULTILINE)
    (tree / ".venv" / ".for-run").unlink()
    assert _plan(tree, "run").count(*compiles) == 1


@pytest.mark.parametrize("wrong", [pytest.param("together", marks=pytest.mark.slow), "alone"])
def test_both_parts_of_the_suite_run_and_either_fails_it(tree: Path, wrong: str) -> None:
    # Given a tree with a right test in each place that the suite is made of, and a wrong one in one part of it
    (tree / ".venv" / "bin").mkdir()
    python = tree / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    alone = re.findall(r"--ignore=(\S+)", _plan(tree, "test"))
    for place in ("tests/test_together.py", *alone):
        file = tree / place if place.endswith(".py") else tree / place / "test_it.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def test_right() -> None: ...\n", encoding="utf-8")
    with (tree / {"together": "tests/test_together.py", "alone": alone[0]}[wrong]).open("a", encoding="utf-8") as more:
        more.write("def test_wrong() -> None:\n    raise ValueError\n")
    # When the suite is run
    done = _make(tree, "test")
    # Then it fails, each test was run once, and the other part is reported, too
    assert done.returncode != 0
    sums = re.findall(r"^(?:(\d+) failed, )?(\d+) passed in", done.stdout, re.MULTILINE)
    failed = ("1", "") if wrong == "together" else ("", "1")
    assert sums == [(failed[0], "1"), (failed[1], str(len(alone)))], done.stdout


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


@pytest.mark.parametrize("place", ["machine", "environment"])
def test_ci_installs_a_redis_server_beside_that_of_an_active_environment(tmp_path: Path, place: str) -> None:
    # Given a machine that has all but a second server, or has that too; and an active environment
    (tmp_path / "tree" / ".ci").mkdir(parents=True)
    script = shutil.copy(ROOT / ".ci" / "run", tmp_path / "tree" / ".ci")
    folders = {"machine": tmp_path / "machine", "environment": tmp_path / "environment" / "bin"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    (tmp_path / "environment" / "pyvenv.cfg").touch()

    def program(path: Path, text: str = "") -> None:
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    for name in ("bash", "sh", "dirname", "id", "env"):
        found = shutil.which(name)
        assert found is not None
        (folders["machine"] / name).symlink_to(found)
    for name in ("python3", "openssl"):
        program(folders["machine"] / name)
    program(folders["machine"] / "gcc", "read -r line")
    program(folders["machine"] / "sudo", 'exec "$@"')
    program(folders["machine"] / "apt-get", 'echo "apt-get $*"')
    program(folders["machine"] / "make", 'echo "make $* $CI"')
    program(folders[place] / "redis-server")
    # When the tests are run, then the server is installed unless the machine has it
    path = os.pathsep.join(map(str, (folders["environment"], folders["machine"])))
    done = subprocess.run([script], env={"PATH": path}, capture_output=True, text=True, timeout=30, check=True)
    *installed, ran = done.stdout.splitlines()
    assert ran == "make --no-print-directory test true"
    wanted = ["redis-tools"] if place == "environment" else []
    assert [line.split()[-1] for line in installed if " install " in line] == wanted
