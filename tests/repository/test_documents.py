"""The documents: commands in them are ones that poolrt accepts, variables ones that it reads, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from poolrt.cli.command_line import make_parser
from poolrt.settings import Settings, env_name

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
VARIABLES = {env_name(knob.name) for knob in fields(Settings)} | {"POOLRT_CONFIG"}


def _commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command line in a block of a page, as far as it stands apart from an explanation."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in (line for language, block in blocks if not language for line in block.splitlines()):
        found = re.match(r"(?:\$ )?(?:POOLRT_\w+=\S+ )*poolrt (\S.*)", line)
        # Not where a line stands for several commands.
        if found is not None and "|" not in found[1]:
            yield shlex.split(re.split(r"  +", found[1])[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_s_commands_are_accepted(page: Path) -> None:
    for words in _commands(page):
        assert make_parser(words).parse_args(words).command == words[0]


def test_some_pages_have_commands() -> None:
    assert sum(1 for page in PAGES for _ in _commands(page)) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_s_variables_are_settings(page: Path) -> None:
    named = set(re.findall(r"\bPOOLRT_[A-Z_]+[A-Z]\b", page.read_text(encoding="utf-8"))) - {"POOLRT_X"}
    assert named <= VARIABLES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_s_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_site_lists_each_page() -> None:
    index = ROOT / "docs" / "site" / "index.md"
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", index.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    targets = [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
    listed = [(index.parent / f"{target}.md").resolve() for target in targets]
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *index.parent.glob("*.md"),
        ROOT / "benchmarks" / "RESULTS.md",
    ]
    assert sorted(listed) == sorted(set(pages) - {index})


def _tests_named(text: str) -> list[tuple[str, str]]:
    """Return file, below ``tests/``, and name of each test that a text names."""
    return re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)


def _missing_tests(text: str) -> list[str]:
    """Return the tests that a text names and that do not exist."""
    return [f"{file}::{test}" for file, test in _tests_named(text) if not _is_defined(ROOT / "tests" / file, test)]


def _is_defined(file: Path, test: str) -> bool:
    return file.is_file() and f"def {test}(" in file.read_text(encoding="utf-8")


def test_each_statement_about_security_names_a_test_that_exists() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert not _missing_tests(page)
    # Each paragraph of what is checked names at least one
    checked = page.partition("## What is checked")[2].partition("## Report")[0]
    for topic in re.split(r"^\*\*", checked, flags=re.MULTILINE)[1:]:
        assert "::test_" in topic, topic.partition("**")[0]


#: The columns of each table about the designs that poolrt follows.
COLUMNS = ["statement", "where it is", "test", "what differs, and why"]


def _wrong_rows(page: str) -> list[str]:
    """Return the rows about statements of designs that name no test, one that does not exist, or no reason to have none."""
    wrong = []
    for line in (line for line in page.splitlines() if line.startswith("|")):
        cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        if cells == COLUMNS or set(line) <= set("|- "):
            continue
        statement, place, proof, differs = cells if len(cells) == len(COLUMNS) else ("", "", "", "")
        if proof == "not done":
            right = bool(statement and differs)
        else:
            named = [f"`{file}::{test}`" for file, test in _tests_named(proof)]
            right = (
                bool(statement and "](" in place and named) and proof == ", ".join(named) and not _missing_tests(proof)
            )
        if not right:
            wrong.append(line)
    return wrong


def test_each_statement_of_the_designs_names_tests_that_exist_or_says_not_done_and_why() -> None:
    page = (ROOT / "docs" / "design-sources.md").read_text(encoding="utf-8")
    designs = page.split("\n## ")[1:]
    assert len(designs) == 5
    assert all(design.count("::test_") > 10 for design in designs)
    assert not _wrong_rows(page)


def test_a_row_without_a_test_that_exists_and_without_a_reason_is_found() -> None:
    place, known = "[a](a.py)", "`repository/test_documents.py::test_some_pages_have_commands`"
    right = f"| a | {place} | {known} | |\n| a | | not done | a reason |"
    assert not _wrong_rows(right)
    for row in (
        f"| a | {place} | {known.replace('some', 'no')} | b |",
        f"| a | {place} | {known.replace('documents', 'nothing')} | b |",
        f"| a | {place} | {known}, and others | b |",
        f"| a | {place} | | b |",
        f"| a | | {known} | b |",
        f"| | {place} | {known} | b |",
        "| a | | not done | |",
        f"| a | {place} | {known} |",
    ):
        assert _wrong_rows(f"{right}\n{row}") == [row]
