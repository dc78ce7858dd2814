"""The comparison of exported networks lets chosen boxes change places only where their scores are nearly equal."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

_FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "exported"
#: A tolerance of scores.
_MOST = 1e-4


@contextmanager
def _loaded(name: str) -> Iterator[Any]:
    """Load a module that is part of no package."""
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]


@pytest.fixture
def choices() -> Iterator[Any]:
    """Return the module of choices."""
    with _loaded("choices") as module:
        yield module


def test_numbers_that_are_missing_are_the_largest_error(choices: Any) -> None:
    wanted = np.array([1.0, np.nan, np.inf, -2.0])
    with _loaded("compare") as compare:
        assert compare.error_of({"y": wanted + 0.5}, {"y": wanted}, {}) == (0.25, 0)
        for place, wrong in ((0, np.nan), (1, 0.0), (2, 3.0), (2, -np.inf), (3, np.nan)):
            found = wanted.copy()
            found[place] = wrong
            assert compare.error_of({"y": found}, {"y": wanted}, {})[0] == np.inf


def _choice(choices: Any) -> Any:
    """Return what is chosen of two images; boxes 1 and 3 of the first have nearly equal scores, 5 is next to them."""
    scores = np.zeros((2, 1, 6), np.float32)
    scores[0, 0] = [0.1, 0.5, 0.9, 0.5 * (1 - 4e-5), 0.2, 0.5 * (1 - 1.2e-4)]
    scores[1, 0] = 0.5
    rows = np.array([[0, 0, each] for each in (2, 1, 3, 5, 4, 0)] + [[1, 0, 0], [1, 0, 1]])
    return choices.Choice(scores, rows)


def test_rows_with_nearly_equal_scores_change_places(choices: Any) -> None:
    choice = _choice(choices)
    found = choice.rows[[0, 2, 1, 3, 4, 5, 6, 7]]
    assert choice.moved(found, choice.rows, _MOST) == 2
    assert choice.moved(choice.rows, choice.rows, _MOST) == 0
    assert choice.moved(choice.rows[[0, 1, 2, 3, 4, 5, 7, 6]], choice.rows, _MOST) == 2


@pytest.mark.parametrize(
    "order",
    [
        [1, 0, 2, 3, 4, 5, 6, 7],  # 0.9 and 0.5
        [0, 3, 1, 2, 4, 5, 6, 7],  # each neighbour is near, but 5 and 1 are not
        [0, 1, 2, 3, 4, 6, 5, 7],  # two images
        [0, 1, 2, 3, 4, 5, 6],  # one row less
        [0, 1, 1, 3, 4, 5, 6, 7],  # one row twice
    ],
)
def test_other_orders_are_errors(choices: Any, order: list[int]) -> None:
    choice = _choice(choices)
    assert choice.moved(choice.rows[order], choice.rows, _MOST) is None


def test_another_box_is_an_error(choices: Any) -> None:
    choice = _choice(choices)
    found = choice.rows.copy()
    found[7, 2] = 5
    assert choice.moved(found, choice.rows, _MOST) is None
    found[7, 2] = 60
    assert choice.moved(found, choice.rows, _MOST) is None


def test_scores_are_those_of_the_model(choices: Any, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Sigmoid", ["x"], ["scores"]),
            helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["rows"]),
            helper.make_node("Gather", ["rows", "two"], ["places"], axis=1),
            helper.make_node("Neg", ["places"], ["other"]),
        ],
        "chosen",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 3, 4]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows"]) for name in ("places", "other")],
        [
            helper.make_tensor("most", TensorProto.INT64, [1], [9]),
            helper.make_tensor("two", TensorProto.INT64, [], [2]),
        ],
    )
    path = tmp_path / "chosen.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]], np.float32)
    x = np.array([[[0, np.float32(1e-6), 3]]], np.float32)
    found = choices.choices_of(path, {"boxes": boxes, "x": x})
    assert set(found) == {"places"}
    np.testing.assert_allclose(found["places"].scores, 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6)
    assert found["places"].moved(np.array([2, 0, 1]), np.array([2, 1, 0]), _MOST) == 2
    assert found["places"].moved(np.array([1, 2, 0]), np.array([2, 1, 0]), _MOST) is None
