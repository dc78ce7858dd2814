"""The tour of the code: every file that it names exists, and defines the functions and classes named after it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "docs" / "tour.md"
#: A link whose text is a file's name or the end of its path, or a name with parentheses.
NAMED = re.compile(r"\[`(?P<text>[\w./]+)`\]\((?P<target>[^)]+)\)|`(?P<name>[\w.]+)\(\)`")


def _named() -> Iterator[tuple[Path, str]]:
    """Yield each file with a name that the page puts into it; the empty name is the file itself."""
    page = re.sub(r"^```.*?^```$", "", TOUR.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    file = TOUR
    for found in NAMED.finditer(page.partition("\n## ")[2]):
        if found["target"]:
            file = (TOUR.parent / found["target"]).resolve()
            assert found["target"].endswith(found["text"]), found[0]
            yield file, ""
        else:
            assert file is not TOUR, f"{found[0]} comes before the first file"
            yield file, found["name"]


def _definitions(file: Path) -> set[str]:
    """Return the functions and classes of a module and the methods of its classes, as `function` or `Class.method`."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member.name}" for member in node.body if isinstance(member, ast.FunctionDef)}
    return names


def test_the_tour_names_files_of_all_three_floors() -> None:
    floors = {file.relative_to(ROOT).parts[0] for file, _ in _named()}
    assert {"poolrt", "workers", "cachestore"} <= floors


def test_every_file_of_the_tour_exists_and_defines_the_names_after_it() -> None:
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file, name in _named()
        if not file.is_file() or (name and name not in _definitions(file))
    ]
    assert not missing


def test_the_tour_links_every_file_that_it_names() -> None:
    page = TOUR.read_text(encoding="utf-8")
    named = re.findall(r"(?<!\[)`[\w./]+\.(?:py|lua|cl)`", page)
    assert not named
