"""House rules that a reader relies on: size and names of modules, links, no left-overs of a machine."""

from __future__ import annotations

import ast
import os
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("poolrt", "workers", "cachestore")
FOLDERS = (*FLOORS, "tests", "examples", "benchmarks")
MOST_LINES = 500
MEDIAN_LINES = 80
BANNED_NAMES = frozenset({"util", "utils", "common", "helper", "helpers", "misc"})


def _modules() -> list[Path]:
    found = []
    for folder in FOLDERS:
        # os.walk does not follow the links, so that each file is met once.
        for place, _, names in os.walk(ROOT / folder):
            found += [Path(place) / name for name in names if name.endswith((".py", ".cl", ".lua"))]
    return sorted(found)


def _production() -> list[Path]:
    return [path for path in _modules() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in FLOORS]


def test_the_walk_meets_all_three_floors() -> None:
    met = {path.relative_to(ROOT).parts[0] for path in _modules()}
    assert {*FLOORS, "tests"} <= met


def test_no_file_has_more_than_500_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in _modules()
        if (lines := len(path.read_bytes().splitlines())) > MOST_LINES
    }
    assert not long


def test_a_module_of_the_floors_has_fewer_than_80_lines_in_the_median() -> None:
    lines = [len(path.read_bytes().splitlines()) for path in _production()]
    assert statistics.median(lines) < MEDIAN_LINES


def test_nothing_is_loose_at_the_top_of_workers() -> None:
    assert {path.name for path in (ROOT / "workers").glob("*.py")} <= {"__init__.py", "operations.py", "gemm.py"}


def test_the_table_of_rooms_and_the_tree_agree() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rows = {
        name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([^`]+)`", cell)
    }
    assert {name for name in rows if not (ROOT / name).exists()} == set()
    rooms = {f"{path.parent.relative_to(ROOT)}/" for path in _production()}
    assert rooms - rows == set()


def test_no_module_or_folder_is_named_for_nothing() -> None:
    named = [path for path in _modules() if BANNED_NAMES & {*path.relative_to(ROOT).parts, path.stem}]
    assert not named


def test_no_module_repeats_the_name_of_its_folder() -> None:
    stutter = [path for path in _modules() if path.stem == path.parent.name]
    assert not stutter


def test_each_module_says_in_one_line_what_it_is() -> None:
    mute = [path for path in _modules() if path.suffix == ".py" and not _says_something(path.read_text("utf-8"))]
    assert not mute


@pytest.mark.parametrize("text", ["", "import os\n", '""""""\n', '"""  """\n', '"""A text"""[0]\n', "# A comment\n"])
def test_a_module_without_such_a_line_is_found(text: str) -> None:
    assert not _says_something(text)


def _says_something(code: str) -> bool:
    # Most modules need not be parsed for this.
    return bool(re.match(r'"""[^\s"][^"]*"""\n', code) or ast.get_docstring(ast.parse(code)))


@pytest.mark.parametrize("floor", ["workers", "cachestore"])
def test_the_lower_floors_are_relative_links_into_the_package(floor: str) -> None:
    assert os.readlink(ROOT / "poolrt" / floor) == f"../{floor}"


def test_every_link_in_the_documents_leads_somewhere() -> None:
    broken = []
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8")):
            if "://" not in target and not (document.parent / target).exists():
                broken.append(f"{document.name}: {target}")
    assert not broken
