"""The Python of README in cells of a notebook: as one cell, that cell again, and a cell for each statement.

A notebook's functions have no file, and a cell's place in the text says nothing about them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore
from tests.repository.test_examples import BLOCK, ROOT

from .notebooks import started, texts

pytest.importorskip("ipykernel", reason="ipykernel is not installed")

pytestmark = pytest.mark.slow

BLOCKS = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables for kernels with a cache of their own."""
    folders = {
        "HOME": "user", "IPYTHONDIR": "ipython", "JUPYTER_RUNTIME_DIR": "runtime", "POCL_CACHE_DIR": "pocl",
        "XDG_CACHE_HOME": "cache", "POOLRT_HOME": "home",
    }  # fmt: skip
    found = {name: str(tmp_path / folder) for name, folder in folders.items()}
    for folder in ("user", "pocl"):
        (tmp_path / folder).mkdir()
    yield found
    CacheStore.connect(home=found["POOLRT_HOME"]).down()


def _statements(code: str) -> list[str]:
    """Return the text of each statement, with its decorators."""
    lines = code.splitlines()
    found = []
    for statement in ast.parse(code).body:
        first = min(each.lineno for each in (statement, *getattr(statement, "decorator_list", ())))
        found.append("\n".join(lines[first - 1 : statement.end_lineno]))
    return found


def _shown(environment: dict[str, str], cells: list[str]) -> str:
    """Return what cells print in a new kernel. Warnings, and whatever else is on standard error, are a failure."""
    with started(environment) as kernel:
        below = [message for cell in cells for message in kernel.run(cell)]
    assert texts(below, "stderr") == ""
    return texts(below, "stdout")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_door_of_readme_works_in_cells(number: int, environment: dict[str, str], device: str) -> None:
    code = BLOCKS[number]
    counted = '"compiled:"' in code
    # Given a cell that is executed twice, then the second time compiles nothing
    once = _shown(environment, [code, code])
    first, second = once[: len(once) // 2], once[len(once) // 2 :]
    assert first == second
    assert first == "True compiled: 1\n" if counted else first and "False" not in first
    # Given another notebook with a cell for each statement, then it finds what the first one has compiled
    assert _shown(environment, _statements(code)) == first.replace("compiled: 1", "compiled: 0")
