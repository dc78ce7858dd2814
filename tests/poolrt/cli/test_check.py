"""`poolrt check` prints what the page about ONNX models shows."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poolrt.cli.command_line import run
from poolrt.models import light
from tests.poolrt.onnx.staged_models import FLOAT, INT64, KINDS, made

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


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("chosen_rows", [("plan", ["rows", "turned"]), ("rows", ["squares", "y"])]),
        ("branches", [("plan", ["condition"]), ("If", ["result"]), ("result", ["y"])]),
        ("passes", [("plan", ["count"]), ("Loop", ["y", "sums"])]),
        ("scanned", [("plan", ["less"]), ("Scan", ["last", "all"])]),
    ],
)
def test_it_shows_each_stage_with_its_plan_or_what_that_waits_for(
    kind: str, expected: list[tuple[str, list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "m.onnx")
    source, feeds = KINDS[kind](np.random.default_rng())
    onnx.save(source, path)
    words = [path, *(f"--shape={name}={','.join(map(str, each.shape))}" for name, each in next(feeds).items())]
    assert run(["check", *words, "--json"]) == 1
    stages = json.loads(capsys.readouterr().out)["stages"]
    found = [
        ("plan" if "plan" in each else each["course"] or each["waits_for"][0], each["ends_with"]) for each in stages
    ]
    assert found == expected
    # Nodes that read constants alone belong to each stage that needs them, and are not counted.
    assert sum(each["nodes"] for each in stages) == len(source.graph.node) - (kind == "passes")
    assert all(each["plan"]["steps"] for each in stages if "plan" in each)
    assert run(["check", *words]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("it ends with ")[2] for line in lines if line.startswith("stage ")] == [
        ", ".join(ends) for _, ends in expected
    ]
    assert "  steps  operation " in "\n".join(lines)


def test_a_later_stage_has_a_plan_if_its_sizes_are_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
    mean = partial(helper.make_node, "ReduceMean", axes=[1], keepdims=0)
    chosen = [
        helper.make_node("NonZero", ["h"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=FLOAT),
        mean(["numbers"], ["r"]),
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("ReduceMax", ["h"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["c"]),
        helper.make_node(
            "If", ["c"], ["z"], then_branch=helper.make_graph(chosen, "then", [], result),
            else_branch=helper.make_graph([mean(["h"], ["r"])], "else", [], result),
        ),
        helper.make_node("Exp", ["x"], ["y"]),
    ]  # fmt: skip
    source = made(nodes, {"x": (FLOAT, [3, 4])}, {"y": FLOAT, "z": FLOAT})
    onnx.save(source, tmp_path / "m.onnx")
    assert run(["check", str(tmp_path / "m.onnx"), "--json"]) == 1
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [("plan" in each, each["course"], each["ends_with"]) for each in stages] == [
        (True, "", ["h", "c"]), (False, "If", ["z"]), (True, "", ["y"]),
    ]  # fmt: skip


def test_a_model_that_a_session_does_not_cut_has_no_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "shape"], ["y"])]
    source = made(nodes, {"x": (FLOAT, [2, 6]), "shape": (INT64, [2])}, {"y": FLOAT})
    onnx.save(source, tmp_path / "m.onnx")
    assert run(["check", str(tmp_path / "m.onnx")]) == 1
    assert "stage" not in capsys.readouterr().out
