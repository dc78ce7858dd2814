"""The Python of README and of the pages in docs runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    (page.relative_to(ROOT), number)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, _ in enumerate(BLOCK.findall(page.read_text("utf-8")))
]
#: Pages of which README has a short form.
THOROUGH = ("docs/calls.md", "docs/opencl.md", "docs/threadpools.md", "docs/tour.md", "docs/numba.md")
#: Blocks of README that other tests of `make test` have in another form.
FURTHER = {("README.md", number) for number in (1, 2, 4, 5)}
#: Blocks of README that print how much they have compiled.
COUNTED = [
    number
    for number, code in enumerate(BLOCK.findall((ROOT / "README.md").read_text("utf-8")))
    if '"compiled:"' in code
]
#: Most lines of a door, without imports and the line that prints the result.
LINES = 5
BOUND_S = 60.0


@pytest.mark.parametrize(
    ("page", "number"),
    [
        pytest.param(
            page,
            number,
            marks=pytest.mark.slow if str(page) in THOROUGH or (str(page), number) in FURTHER else (),
            id=f"{page} {number}",
        )
        for page, number in EXAMPLES
    ],
)
@pytest.mark.one_in(2)
def test_an_example_runs(page: Path, number: int, tmp_path: Path) -> None:
    code = BLOCK.findall((ROOT / page).read_text("utf-8"))[number]
    try:
        shown = _run(code, tmp_path)
    finally:
        CacheStore.connect(home=str(tmp_path / "home")).down()
    # What an example prints is a shape, or whether the result is what it should be
    assert shown
    assert "False" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("number", COUNTED)
def test_a_second_process_compiles_nothing(number: int, tmp_path: Path) -> None:
    code = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))[number]
    try:
        assert [_run(code, tmp_path) for _ in range(2)] == ["True compiled: 1\n", "True compiled: 0\n"]
    finally:
        CacheStore.connect(home=str(tmp_path / "home")).down()


def test_each_door_has_at_most_five_lines() -> None:
    blocks = BLOCK.findall((ROOT / "README.md").read_text("utf-8").partition("## Kernels of your own")[2])
    assert len(blocks) >= 6
    for code in blocks:
        assert (
            len([line for line in code.splitlines() if line and not line.startswith(("import ", "print("))]) <= LINES
        ), code


def _run(code: str, folder: Path) -> str:
    """Return what a program prints in a process of its own, with a cache in the folder. Raises AssertionError if it fails."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "HOME": str(folder), "POOLRT_HOME": str(folder / "home")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
