"""The options for what a model leaves open: values from numbers and files, and what is wrong with others."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poolrt.cli.command_line import run
from poolrt.cli.model_option import add_open, open_arguments
from poolrt.cli.report import UsageError


def _values(*assignments: str) -> Any:
    parser = argparse.ArgumentParser()
    add_open(parser)
    words = [word for each in assignments for word in ("--value", each)]
    return open_arguments(parser.parse_args(words))["values"]


def test_values_are_numbers_and_the_arrays_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("sizes.npy", np.array([3, 4]))
    np.savez("two=2.npz", a=np.array([1]), b=np.array([2.5], np.float32))
    given = (
        "axes=1,-2",
        "k=3",
        "one=4,",
        "scales=1.0,2e1",
        "exclusive=true",
        "a=b=7",
        "sizes=sizes.npy",
        "b=two=2.npz",
    )
    found = _values(*given)
    np.testing.assert_array_equal(found.pop("sizes"), [3, 4])
    assert (found["b"].dtype, found.pop("b").tolist()) == (np.float32, [2.5])
    assert found == {"axes": [1, -2], "k": 3, "one": [4], "scales": [1.0, 20.0], "exclusive": True, "a=b": 7}


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        (("axes",), "--value axes: expected NAME=1,2,3 or NAME=FILE.npy"),
        (("axes=",), "axes=: expected NAME=1,2,3"),
        (("axes=a.npy",), "a.npy is neither a file nor a list of numbers"),
        (("axes=1", "axes=2"), "--value axes: given twice"),
    ],
)
def test_a_value_that_is_none_is_refused(assignments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        _values(*assignments)


def test_an_input_that_must_be_known_is_asked_for_with_the_option_that_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a model whose axes are an input
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POOLRT_HOME", str(tmp_path / "home"))
    x, axes, y = (
        helper.make_tensor_value_info(name, kind, dims)
        for name, kind, dims in (("x", TensorProto.FLOAT, (2, 3)), ("axes", TensorProto.INT64, (1,)), ("y", 1, None))
    )
    graph = helper.make_graph([helper.make_node("ReduceSum", ["x", "axes"], ["y"], "sum")], "open", [x, axes], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "open.onnx")
    # When it is checked without them, then the error names the option
    assert run(["check", "open.onnx"]) == 1
    assert "values={'axes': ...}, or --value axes=... on the command line" in capsys.readouterr().err
    # And with it, the model runs
    assert run(["check", "open.onnx", "--value", "axes=1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["shape"] == [2, 1]
    # And a name that is none of the model's inputs gets the nearest
    assert run(["check", "open.onnx", "--value", "axis=1"]) == 1
    assert "the model has no input 'axis'; it has x, axes; the nearest is 'axes'" in capsys.readouterr().err
