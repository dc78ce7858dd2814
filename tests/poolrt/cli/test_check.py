"""`poolrt check` prints what the page about ONNX models shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from poolrt.cli.command_line import run
from poolrt.models import light
from tests.poolrt.onnx.staged_models import KINDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx.md"


def test_the_page_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    light.write("squeezenet", "squeezenet.onnx")
    command, shown = PAGE.read_text(encoding="utf-8").partition("\n$ poolrt ")[2].partition("\n```")[0].split("\n", 1)
    assert run(command.split()) == 0
    assert capsys.readouterr().out == f"{shown}\n"


@pytest.mark.parametrize(
    ("kind", "ends", "stop"), [("chosen_rows", ["rows", "turned"], "squares"), ("branches", ["condition"], "result")]
)
def test_it_says_with_what_the_first_stage_of_a_session_ends(
    kind: str, ends: list[str], stop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "m.onnx")
    source, feeds = KINDS[kind](np.random.default_rng())
    onnx.save(source, path)
    shape = ",".join(map(str, next(feeds)["x"].shape))
    assert run(["check", path, "--shape", f"x={shape}"]) == 1
    line = f"{path}: sessions of poolrt.onnx cut it into stages; the first one ends with {', '.join(ends)}, for {stop}"
    assert line in capsys.readouterr().out.splitlines()
    assert run(["check", path, "--shape", f"x={shape}", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first_stage"] == ends
