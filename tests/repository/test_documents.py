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


def test_each_statement_about_security_names_a_test_that_exists() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", page)
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"{file}::{test}"
    # Each paragraph of what is checked names at least one
    checked = page.partition("## What is checked")[2].partition("## Report")[0]
    for topic in re.split(r"^\*\*", checked, flags=re.MULTILINE)[1:]:
        assert "::test_" in topic, topic.partition("**")[0]
