"""`poolrt.onnx.InferenceSession` behaves as ONNX Runtime's does: names, results, errors."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import poolrt
import poolrt.onnx as ort
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.workers.own_process import python

from .models import Array, model, rival, session, sums

_X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
_FEED = {"x": _X, "y": 2 * _X}


def error_of(run: Any, *arguments: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        run(*arguments)
    return caught.value


def test_a_session_has_the_names_and_results_of_onnx_runtime(cache: PrimitiveProvider) -> None:
    found, expected = session(sums(), cache), rival(sums())
    for mine, theirs in ((found.get_inputs(), expected.get_inputs()), (found.get_outputs(), expected.get_outputs())):
        assert [(each.name, each.type, each.shape) for each in mine] == [
            (each.name, each.type, each.shape) for each in theirs
        ]
        assert [str(each) for each in mine] == [str(each) for each in theirs]
    metadata = found.get_modelmeta()
    for name in (each for each in dir(expected.get_modelmeta()) if not each.startswith("_")):
        assert getattr(metadata, name) == getattr(expected.get_modelmeta(), name), name
    assert found.get_providers() == expected.get_providers()
    for names in (None, [], ["p"], ["p", "s"], ["s", "s"], ("p",)):
        given, wanted = found.run(names, _FEED), expected.run(names, _FEED)
        assert len(given) == len(wanted)
        for result, right in zip(given, wanted, strict=True):
            np.testing.assert_array_equal(result, right, strict=True)
    lists = found.run(["s"], {"x": _X.tolist(), "y": ort.OrtValue.ortvalue_from_numpy(_X)})[0]
    np.testing.assert_array_equal(lists, _X + _X, strict=True)


@pytest.mark.parametrize(
    ("names", "feed", "words"),
    [
        (["sums"], _FEED, "Invalid output name:sums; the model has s, p"),
        (None, {"x": _X}, r"Required inputs \(\['y'\]\) are missing from input feed \(\['x'\]\)"),
        (None, {**_FEED, "z": _X}, "Invalid input name: z; the model takes x, y"),
        (None, {"x": _X, "y": _X.astype(np.float64)}, r"Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\); input y"),
        (None, {"x": _X, "y": _X[0]}, r"Invalid rank for input: y Got: 1 Expected: 2; its shape is \(3,\).*\(batch, 3\)"),
        (None, {"x": _X[:, :2], "y": _X}, "invalid dimensions for input: x .*index: 1 Got: 2 Expected: 3"),
    ],
)  # fmt: skip
def test_wrong_arguments_raise_the_kind_of_error_that_onnx_runtime_raises(
    names: list[str] | None, feed: Mapping[str, Array], words: str, cache: PrimitiveProvider
) -> None:
    error = error_of(session(sums(), cache).run, names, feed)
    assert pytest.raises(ort.InvalidArgument, match=words).matches(error)
    theirs = type(error_of(rival(sums()).run, names, feed))
    assert theirs is ValueError or theirs.__name__ == type(error).__name__
    assert isinstance(error, poolrt.GraphError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - made here


def test_an_error_about_a_symbol_names_both_inputs_and_both_sizes(cache: PrimitiveProvider) -> None:
    made = session(sums(), cache)
    with pytest.raises(ort.InvalidArgument, match=r"'batch' has two sizes: 2 in input x .*\(2, 3\)\) and 1 in input y"):
        made.run(None, {"x": _X, "y": _X[:1]})
    assert [each.shape for each in made.run(None, {"x": _X[:0], "y": _X[:0]})] == [
        each.shape for each in rival(sums()).run(None, {"x": _X[:0], "y": _X[:0]})
    ]


def test_unknown_sizes_that_an_exporter_writes_alike_may_differ(cache: PrimitiveProvider) -> None:
    kind = (TensorProto.FLOAT, ["?", "?"])
    source = model([helper.make_node("MatMul", ["x", "y"], ["z"])], {"x": kind, "y": kind}, {"z": kind})
    made, expected = session(source, cache), rival(source)
    assert made.get_inputs()[0].shape == expected.get_inputs()[0].shape
    for rows in (2, 5):
        feed = {"x": np.full((rows, 3), 2, np.float32), "y": np.ones((3, 7), np.float32)}
        np.testing.assert_array_equal(made.run(None, feed)[0], expected.run(None, feed)[0])


def test_wrong_models_raise_the_kind_of_error_that_onnx_runtime_raises(tmp_path: Path) -> None:
    cases: list[Any] = [str(tmp_path / "absent.onnx"), tmp_path / "absent.onnx", b"no model", 3]
    for source in cases:
        error, theirs = error_of(ort.InferenceSession, source), error_of(onnxruntime.InferenceSession, source)
        assert type(theirs).__name__ in [each.__name__ for each in type(error).__mro__]
    missing = [helper.make_node(name, ["x"], ["y"]) for name in ("NoSuchOperator", "NorThis")]
    kind = (TensorProto.FLOAT, ["n"])
    with pytest.raises(ort.NotImplemented, match=r"2 operators are missing: NoSuchOperator .* NorThis"):
        ort.InferenceSession(model(missing, {"x": kind}, {"y": kind}))
    with pytest.raises(ort.NotImplemented, match=r"no inputs of tensor\(complex64\)"):
        ort.InferenceSession(
            model([helper.make_node("Identity", ["x"], ["y"])], {"x": (TensorProto.COMPLEX64, ["n"])}, {"y": kind})
        )
    assert ort.capi.onnxruntime_pybind11_state.NotImplemented is ort.NotImplemented


def test_onnx_is_imported_with_the_first_session_and_not_before() -> None:
    code = "import sys, poolrt.onnx as ort; ort.SessionOptions(); print('onnx' in sys.modules, 'numpy' in sys.modules)"
    assert python(code).split() == ["False", "False"]


def test_a_session_takes_a_path_bytes_and_a_model(cache: PrimitiveProvider, tmp_path: Path) -> None:
    path = tmp_path / "sums.onnx"
    onnx.save(sums(), path)
    for source in (path, str(path), path.read_bytes(), sums()):
        np.testing.assert_array_equal(session(source, cache).run(["s"], _FEED)[0], 3 * _X)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE]
)
def test_outputs_have_the_types_that_the_model_declares(number: int, cache: PrimitiveProvider) -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])]
    made = session(model(nodes, {"x": (number, ["a", "b"])}, {"y": (number, ["b", "a"])}), cache)
    x = np.array([[0, 1, 2], [3, 4, 5]]).astype(helper.tensor_dtype_to_np_dtype(number))
    (y,) = made.run(None, {"x": x})
    np.testing.assert_array_equal(y.astype(np.float64), x.T.astype(np.float64))
    assert y.dtype == x.dtype
    assert made.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(x)})[0].element_type() == number


def test_options_that_act_do(cache: PrimitiveProvider, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(np.array([3, 3, 3], np.float32)))
    made = session(sums(), cache, sess_options=options)
    assert made.get_inputs()[0].shape == [2, 3]
    np.testing.assert_array_equal(made.run(["p"], _FEED)[0], 3 * _X)
    with pytest.raises(ort.InvalidArgument, match="Got: 1 Expected: 2"):
        made.run(None, {"x": _X[:1], "y": _X[:1]})
    file = made.end_profiling()
    assert [each["name"] for each in json.loads(Path(file).read_text())] == ["model_loading", "model_run"]
    stopped = ort.RunOptions()
    stopped.terminate = True
    with pytest.raises(ort.Fail, match="terminate flag"):
        made.run(None, _FEED, stopped)


def test_a_graph_as_it_was_imported_multiplies_batches_by_a_matrix(cache: PrimitiveProvider) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    dims, kind = (2, 3, 5, 7), TensorProto.FLOAT
    x, w = np.arange(210, dtype=np.float32).reshape(dims), np.arange(28, dtype=np.float32).reshape(7, 4)
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (kind, dims)}, {"y": (kind, None)}, {"w": w})
    np.testing.assert_array_equal(session(made, cache, sess_options=options).run(None, {"x": x})[0], x @ w)


def test_options_have_the_names_and_defaults_of_onnx_runtime() -> None:
    for mine, theirs in (
        (ort.SessionOptions(), onnxruntime.SessionOptions()),
        (ort.RunOptions(), onnxruntime.RunOptions()),
    ):
        for name in (each for each in dir(theirs) if not each.startswith("_")):
            wanted = getattr(theirs, name)
            if isinstance(wanted, bool | int | str):
                assert getattr(mine, name) == wanted, name
    for levels, wanted in (
        (ort.GraphOptimizationLevel, onnxruntime.GraphOptimizationLevel.__members__),
        (ort.ExecutionMode, onnxruntime.ExecutionMode.__members__),
    ):
        assert {each.name: each.value for each in levels} == {name: each.value for name, each in wanted.items()}
    with pytest.raises(AttributeError):
        ort.SessionOptions().intra_op_threads = 1  # type: ignore[attr-defined]


def test_wrong_options_are_refused(cache: PrimitiveProvider) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = -1
    with pytest.raises(ort.InvalidArgument, match=r"intra_op_num_threads: .*got -1"):
        ort.InferenceSession(sums(), options)
    options = ort.SessionOptions()
    options.optimized_model_filepath = "there.onnx"
    with pytest.raises(ort.Fail, match=r"optimized_model_filepath: .*'there.onnx'"):
        session(sums(), cache, sess_options=options)
    with pytest.raises(TypeError, match="unexpected keyword 'cash'"):
        session(sums(), cache, cash=None)
    with pytest.raises(ort.InvalidArgument, match="pool: stream, cache and engine"):
        session(sums(), cache, pool=object())
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        session(sums(), cache, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(AttributeError, match="InferenceSession"):
        _ = ort.InferenceSesion


def test_an_asynchronous_run_calls_back(cache: PrimitiveProvider) -> None:
    ended, found = threading.Event(), []

    def callback(results: list[Array], user_data: Any, error: str) -> None:
        found.append((results, user_data, error))
        ended.set()

    session(sums(), cache).run_async(["s"], _FEED, callback, "mine")
    assert ended.wait(60)
    ((results, user_data, error),) = found
    assert (user_data, error) == ("mine", "")
    np.testing.assert_array_equal(results[0], 3 * _X)
