"""The three floors and the rooms of workers: the contracts hold on this tree, and each catches a violation in a copy."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("poolrt", "workers", "cachestore")
ROOMS = "the rooms of workers import downwards only"


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    # From the copy's root, so that the copy and not the installed package is analysed.
    code = (
        "import sys; sys.path.insert(0, '.');"
        "from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"
    )
    words = [sys.executable, "-c", code]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def _copy(target: Path) -> Path:
    """Copy what the contracts speak of, links as links."""
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, target / floor, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", target)
    return target


def test_the_contracts_hold() -> None:
    done = _lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


#: Floor, an import that goes up a floor or a room, and the contract that forbids it.
VIOLATIONS = [
    ("cachestore", "from poolrt import workers as seen", "cachestore imports nothing of ours"),
    ("cachestore", "from poolrt.settings import Settings as seen", "cachestore imports nothing of ours"),
    ("cachestore", "import poolrt.workers.desc.planted as seen", "cachestore imports nothing of ours"),
    ("workers", "from poolrt.settings import Settings as seen", "workers imports cachestore and nothing else of ours"),
    ("workers", "from poolrt.planted import THING as seen", "workers imports cachestore and nothing else of ours"),
    ("workers", "import poolrt as seen", "the lower floors do not import the face itself"),
    ("cachestore", "import poolrt as seen", "the lower floors do not import the face itself"),
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what the check of a copy says that has modules that are listed nowhere, and each violation in one of its own."""
    copy = _copy(tmp_path_factory.mktemp("broken"))
    (copy / "poolrt" / "planted.py").write_text("THING = 1\n")
    (copy / "workers" / "desc" / "planted.py").write_text("THING = 1\n")
    for number, (floor, line, _) in enumerate(VIOLATIONS):
        (copy / floor / f"violation{number}.py").write_text(f"{line}\n\n__all__ = ['seen']\n")
    done = _lint_imports(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("number", "contract"), [(number, contract) for number, (_, _, contract) in enumerate(VIOLATIONS)]
)
@pytest.mark.one_in(2)
def test_a_planted_violation_breaks_the_contract(broken: str, number: int, contract: str) -> None:
    assert f"{contract} BROKEN" in broken, broken
    section = re.split(r"\n[^\n]+\n-{5,}\n", broken.partition(f"\n{contract}\n-")[2])[0]
    assert f".violation{number} ->" in section, broken


#: Room of workers -> an import that goes up a step, over many rooms, in a function, or sideways.
UPWARDS = {
    "desc": "from ..verbose import output as seen",
    "desc.operations": "from ...operations import matmul as seen",
    "kernels.native": "from ...implementations import program as seen",
    "primitives": "seen = 1\ndef late() -> None:\n    from ..execution import primitive",
    "memory": "from ..threadpools import jobs as seen",
    "execution": "from ..plans import execution_plan as seen",
    "plans": "from ..processes import worker as seen",
}


def test_every_import_to_a_higher_room_and_every_room_that_is_not_listed_breaks_the_contract(tmp_path: Path) -> None:
    copy = _copy(tmp_path)
    for room, line in UPWARDS.items():
        (copy / "workers" / room.replace(".", "/") / "violation.py").write_text(f"{line}\n\n__all__ = ['seen']\n")
    done = _lint_imports(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{ROOMS} BROKEN" in done.stdout, done.stdout
    broken = done.stdout.replace("\n", "")
    assert [room for room in UPWARDS if f"poolrt.workers.{room}.violation ->" not in broken] == []
    # A room is listed in its place before anything is in it.
    (copy / "workers" / "unlisted").mkdir()
    (copy / "workers" / "unlisted" / "__init__.py").touch()
    done = _lint_imports(copy)
    assert "unlisted" in done.stdout, done.stdout


def test_a_permitted_import_breaks_nothing(tmp_path: Path) -> None:
    copy = _copy(tmp_path)
    (copy / "workers" / "desc" / "permitted.py").write_text("import poolrt.cachestore as seen\n\n__all__ = ['seen']\n")
    done = _lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_names_a_lower_floor_bare() -> None:
    # A bare `import workers` works only if no other folder has that name.
    for folder in (*FLOORS, "tests", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not _bare(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    "line", ["import workers", "from workers.desc import a", "import os, cachestore.files", "import os, \\\n workers"]
)
def test_a_bare_name_is_found(line: str) -> None:
    assert _bare(f"def late() -> None:\n    {line}\n")


@pytest.mark.parametrize(
    "line", ["import poolrt.workers", "from ..workers import a", "from .. import workers, cachestore"]
)
def test_a_name_below_poolrt_is_not_bare(line: str) -> None:
    assert not _bare(line)


def _bare(code: str) -> set[str]:
    """Return the lower floors that a module imports by their bare names."""
    # Most modules are not worth parsing.
    if not re.search(r"(?:\b(?:import|from)[\s\\]|,)[\s\\]*(?:workers|cachestore)\b", code):
        return set()
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append(node.module or "")
    return {name for name in found if name.partition(".")[0] in ("workers", "cachestore")}
