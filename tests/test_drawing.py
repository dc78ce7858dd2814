"""The marks by which `make test` draws tests and cases: at least one of each, others in each run, all in the thorough tier."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.startup.shared_compiler import FOLDER

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest

@pytest.mark.parametrize("case", range(6))
@pytest.mark.one_in(3)
def test_of_cases(case: int) -> None: ...

@pytest.mark.one_test_in(2)
@pytest.mark.parametrize("case", range(4))
@pytest.mark.one_in(4)
def test_first(case: int) -> None: ...

@pytest.mark.one_test_in(2)
def test_second() -> None: ...

@pytest.mark.one_test_in(2)
def test_third() -> None: ...

@pytest.mark.slow
@pytest.mark.one_test_in(2)
def test_of_the_thorough_tier() -> None: ...

def test_without_a_mark() -> None: ...
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of tests below a conftest that draws as that of all tests does."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_collection_modifyitems\n")
    (tmp_path / "test_drawn.py").write_text(TESTS)
    return tmp_path / "test_drawn.py"


def collected(file: Path, run: str, *words: str) -> list[str]:
    """Return the names of what pytest would run in a run with a folder of that name."""
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        file.parent,
    ]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "-c", ROOT / "pyproject.toml", *words, file],
        cwd=ROOT, env=env | {FOLDER: run}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_one_in_n_is_drawn_of_cases_and_of_tests_and_the_thorough_tier_has_all(file: Path) -> None:
    names = [collected(file, run, "-m", "not slow") for run in ("first", "first")]
    assert names[0] == names[1]
    (drawn, _) = names
    tests = {name.partition("[")[0] for name in drawn}
    assert len(tests & {"test_first", "test_second", "test_third"}) == 2
    assert tests - {"test_first", "test_second", "test_third"} == {"test_of_cases", "test_without_a_mark"}
    assert sum(name.startswith("test_of_cases") for name in drawn) == 2
    assert sum(name.startswith("test_first") for name in drawn) <= 1
    assert len(collected(file, "first")) == 6 + 4 + 4
