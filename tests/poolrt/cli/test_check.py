"""`poolrt check` prints what the page about ONNX models shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.cli.command_line import run
from poolrt.models import light

PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx.md"


def test_the_page_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    light.write("squeezenet", "squeezenet.onnx")
    command, shown = PAGE.read_text(encoding="utf-8").partition("\n$ poolrt ")[2].partition("\n```")[0].split("\n", 1)
    assert run(command.split()) == 0
    assert capsys.readouterr().out == f"{shown}\n"
