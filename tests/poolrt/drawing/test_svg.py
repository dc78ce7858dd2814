"""The picture of a plan: a box for each node, the colours of its implementations, shapes, and names that XML cannot hold."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest

import poolrt
from poolrt.cli.command_line import run
from poolrt.drawing import draw_svg, make_diagram
from poolrt.model_check import ModelCheck, check_model
from poolrt.settings import Settings
from tests.acceptance.networks import small_model
from tests.poolrt.graph.onnx.transformers import bert

SVG = "{http://www.w3.org/2000/svg}"


def _check(model: Any) -> ModelCheck:
    return check_model(model, settings=Settings.load(threads=1, workers=1))


def _texts(picture: str, kind: str) -> list[str]:
    root = ElementTree.fromstring(picture)
    return [each.text or "" for each in root.iter(f"{SVG}text") if each.get("class") == kind]


def test_each_step_and_view_has_a_box_and_each_tensor_its_shape() -> None:
    check = _check(small_model())
    picture = check.to_svg()
    assert _texts(picture, "t") == ["x", "Conv + Relu", "Conv", "GlobalAveragePool", "Gemm", "Softmax", "y"]
    assert [text for text in _texts(picture, "d") if text.startswith("reshape")] == ["reshape · e"]
    shapes = _texts(picture, "s")
    assert shapes[0] == "f32 1x3x32x32"
    assert shapes[-1] == "f32 1x40"
    assert {"native kernels (5)", "view: no step (1)", "input or output (2)"} <= set(_texts(picture, "l"))


def test_every_edge_of_a_transformer_joins_what_writes_and_reads_a_tensor() -> None:
    check = _check(bert())
    diagram = make_diagram(check.plan, "bert")
    kinds = Counter(box.kind for box in diagram.boxes)
    assert (kinds["native"], kinds["port"]) == (len(check.plan.listing.steps), 3)
    # Every box but the inputs reads something, and every box but the output is read
    numbers = set(range(len(diagram.boxes)))
    inputs = {number for number in numbers if diagram.boxes[number].detail == "input"}
    assert {edge.target for edge in diagram.edges} == numbers - inputs
    assert {edge.source for edge in diagram.edges} == numbers - {len(diagram.boxes) - 1}
    assert len(re.findall('<path class="e"', draw_svg(diagram))) == len(diagram.edges)


def test_references_and_inserted_reorders_are_marked() -> None:
    g = poolrt.Graph("marked")
    x = g.convolution(g.input("x", (1, 32, 8, 8)), np.ones((32, 32, 3, 3), np.float32), padding=1, name="conv")
    g.output("y", g.eltwise(x, "tanh", name="slow", implementation="ref:"))
    diagram = make_diagram(_check(g).plan, "marked")
    assert [box.kind for box in diagram.boxes] == ["port", "native", "reference", "port"]
    assert diagram.edges[0].reordered
    assert _texts(draw_svg(diagram), "r")[0] == "reorder"


def test_names_of_a_file_cannot_break_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    model.graph.node[0].name = "</svg>\x00\x1b<script>&" + "n" * 500
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "odd.onnx")
    # When the command draws it
    assert run(["check", "odd.onnx", "--draw", "odd.svg", "--json"]) == 0
    # Then the file is XML with the name as text
    picture = Path("odd.svg").read_text(encoding="utf-8")
    assert any("</svg>\\x00\\x1b<script>&n" in text for text in _texts(picture, "d"))
    assert "\x1b" not in picture
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize(
    ("name", "reason"), [("a.png", "expected FILE.svg, got a.png"), ("none/a.svg", "there is no folder none")]
)
def test_a_picture_that_cannot_be_written_is_refused_before_the_model_is_read(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("not.onnx").touch()
    assert run(["check", "not.onnx", "--draw", name]) == 2
    assert reason in capsys.readouterr().err
