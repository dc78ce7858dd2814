"""Results whose size only a run knows: boxes, places, different elements; they are cut to what the run counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import Executor, Graph, UnsupportedNode, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider

from .node_tests import interpret

Array = NDArray[Any]
Run = Callable[..., Mapping[str, Array]]
_IMAGES, _BOXES, _CLASSES = 2, 60, 3
_DETECTOR = {"boxes": (_IMAGES, _BOXES, 4), "scores": (_IMAGES, _CLASSES, _BOXES)}


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Any], outputs: Sequence[str], constants: Mapping[str, Array]
) -> onnx.ModelProto:
    """Return a model; ``inputs`` are shapes of float32, or arrays that are like the inputs."""
    like = {name: each if isinstance(each, np.ndarray) else np.zeros(each, np.float32) for name, each in inputs.items()}
    kinds = {name: helper.np_dtype_to_tensor_dtype(each.dtype) for name, each in like.items()}
    given = [helper.make_tensor_value_info(name, kinds[name], each.shape) for name, each in like.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    known = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    graph = helper.make_graph(list(nodes), "counted", given, results, known)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


@pytest.fixture(params=["references", pytest.param("executor", marks=pytest.mark.slow)])
def runner(request: pytest.FixtureRequest, cache: PrimitiveProvider) -> Callable[[Graph], Run]:
    """Return what makes a graph run: the NumPy references, or an executor, which compiles kernels."""
    if request.param == "executor":
        return lambda graph: Executor(graph, cache=cache).run
    return lambda graph: lambda **feeds: interpret(graph, feeds)


def check(model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]], runner: Callable[[Graph], Run]) -> list[Any]:
    """Compare runs with ONNX Runtime's, in shape, type and value; return the shapes of the first output."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    run, shapes = runner(load_onnx(model)), []
    for each in feeds:
        found = run(**each)
        for output, wanted in zip(session.get_outputs(), session.run(None, dict(each)), strict=True):
            assert found[output.name].dtype == wanted.dtype
            assert found[output.name].flags.c_contiguous
            np.testing.assert_array_equal(found[output.name], wanted, output.name)
        assert list(found) == [output.name for output in session.get_outputs()]
        shapes.append(found[session.get_outputs()[0].name].shape)
    return shapes


def images(share: float) -> dict[str, Array]:
    """Return boxes, and scores of which a share is above 0."""
    rng = np.random.default_rng()
    middle, size = rng.random((_IMAGES, _BOXES, 2)), rng.random((_IMAGES, _BOXES, 2)) / 3
    scores = np.where(rng.random(_DETECTOR["scores"]) < share, rng.random(_DETECTOR["scores"]), -1.0)
    return {
        "boxes": np.concatenate([middle - size, middle + size], 2).astype(np.float32),
        "scores": scores.astype(np.float32),
    }


def test_the_end_of_a_detector_is_what_onnx_runtime_computes(runner: Callable[[Graph], Run]) -> None:
    # Each chosen box, its class and its score as rows, and the four best of them
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"]),
        helper.make_node("Gather", ["chosen", "columns"], ["image and box"], axis=1),
        helper.make_node("GatherND", ["boxes", "image and box"], ["corners"]),
        helper.make_node("GatherND", ["scores", "chosen"], ["score"]),
        helper.make_node("Slice", ["chosen", "one", "two", "one"], ["class"]),
        helper.make_node("Cast", ["class"], ["class as number"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["score", "one"], ["score column"]),
        helper.make_node("Concat", ["corners", "class as number", "score column"], ["rows"], axis=1),
        helper.make_node("Mul", ["rows", "factors"], ["scaled"]),
        helper.make_node("TopK", ["score", "four"], ["best", "which"]),
        helper.make_node("Shape", ["scaled"], ["shape"]),
        helper.make_node("Slice", ["scaled", "two", "many"], ["later"]),
    ]
    numbers = {"most": [7], "columns": [0, 2], "one": [1], "two": [2], "four": [4], "many": [2**40]}
    factors = {"overlap": [0.25], "least": [0.125], "factors": [2, 2, 2, 2, 1, 1]}
    constants: dict[str, Array] = {
        **{name: np.array(each, np.int64) for name, each in numbers.items()},
        **{name: np.array(each, np.float32) for name, each in factors.items()},
    }
    model = model_of(nodes, _DETECTOR, ["scaled", "best", "which", "shape", "later", "chosen"], constants)
    found = check(model, [images(share) for share in (1.0, 0.25, 0.5)], runner)
    assert all(4 <= rows <= 42 for rows, _ in found)
    without = model_of(nodes[:9], _DETECTOR, ["scaled"], constants)
    assert check(without, [images(0.0)], runner) == [(0, 6)]


def test_limits_that_the_model_computes_are_read_in_a_run(runner: Callable[[Graph], Run]) -> None:
    feeds = {
        **images(1.0),
        "most": np.array([3], np.int64),
        "overlap": np.array([0.5], np.float32),
        "least": np.array([0.25], np.float32),
    }
    model = model_of([helper.make_node("NonMaxSuppression", list(feeds), ["y"])], feeds, ["y"], {})
    check(
        model,
        [feeds, {**feeds, "most": np.array([2**40], np.int64)}, {**feeds, "least": np.array([0.75], np.float32)}],
        runner,
    )


def test_places_and_different_elements_are_counted(runner: Callable[[Graph], Run]) -> None:
    rng = np.random.default_rng()
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Greater", ["row", "zero"], ["above"]),
        helper.make_node("Compress", ["x", "above"], ["columns"], axis=1),
        helper.make_node("Unique", ["x"], ["values", "first", "inverse", "counts"]),
        helper.make_node("Unique", ["x"], ["rows", "", "rows back"], axis=0, sorted=0),
        helper.make_node("TopK", ["x", "k"], ["best", "which"], axis=-1, largest=0),
    ]
    outputs = ["places", "columns", "values", "first", "inverse", "counts", "rows", "rows back", "best", "which"]
    for count in (1, 9):
        x = rng.integers(-1, 2, (6, 2, count)).astype(np.float32)
        feeds: dict[str, Array] = {
            "x": x,
            "row": np.array([1, -1], np.float32),
            "k": np.array([count // 2 + 1], np.int64),
        }
        model = model_of(nodes, feeds, outputs, {"zero": np.array(0, np.float32)})
        check(model, [feeds, {**feeds, "x": np.ones_like(x), "row": np.array([-1, -1], np.float32)}], runner)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_many_slices_are_sorted_by_their_elements(is_sorted: int, runner: Callable[[Graph], Run]) -> None:
    # More slices than pairs of them are compared
    x = np.random.default_rng().integers(0, 6, (2100, 3)).astype(np.float32)
    outputs = ["rows", "first", "inverse", "counts"]
    model = model_of([helper.make_node("Unique", ["x"], outputs, axis=0, sorted=is_sorted)], {"x": x}, outputs, {})
    check(model, [{"x": x}, {"x": np.ones_like(x)}], runner)


def test_a_condition_may_be_shorter_than_what_it_chooses_from(runner: Callable[[Graph], Run]) -> None:
    x = np.random.default_rng().standard_normal((3, 2), np.float32)
    feeds = {"x": x, "row": np.array([1, -1, 1, -1, 1], np.float32), "one": np.ones(1, np.float32)}
    nodes = [
        helper.make_node("Greater", ["row", "zero"], ["above"]),
        helper.make_node("Greater", ["one", "zero"], ["first"]),
        helper.make_node("Compress", ["x", "above"], ["elements"]),
        helper.make_node("Compress", ["x", "first"], ["rows"], axis=0),
    ]
    model = model_of(nodes, feeds, ["elements", "rows"], {"zero": np.array(0, np.float32)})
    none = {**feeds, "row": -np.ones(5, np.float32), "one": -feeds["one"]}
    assert check(model, [feeds, none], runner) == [(3,), (0,)]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([("ReduceSum", ["chosen", "zero"])], "ReduceSum.*input 0 is known only after a run; this use of it"),
        ([("Concat", ["chosen", "chosen"])], "Concat.*input 0 is known only after a run"),
        ([("CumSum", ["chosen", "zero"])], "CumSum.*input 0 is known only after a run"),
        ([("Transpose", ["chosen"]), ("MatMul", ["chosen", "y0"])], "MatMul.*input 0 is known only after a run"),
    ],
)
def test_other_uses_of_a_counted_size_are_refused(nodes: Sequence[tuple[str, list[str]]], reason: str) -> None:
    made = [helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["chosen"])]
    for number, (operator, inputs) in enumerate(nodes):
        extra: dict[str, Any] = {"axis": 0} if operator == "Concat" else {}
        made.append(helper.make_node(operator, inputs, [f"y{number}"], **extra))
    model = model_of(
        made, _DETECTOR, [f"y{len(nodes) - 1}"], {"most": np.array([9], np.int64), "zero": np.array([0], np.int64)}
    )
    with pytest.raises(UnsupportedNode, match=reason):
        load_onnx(model)


def test_a_size_that_follows_an_input_can_be_given_instead() -> None:
    nodes = [helper.make_node("TopK", ["x", "k"], ["best", ""]), helper.make_node("CumSum", ["best", "axis"], ["y"])]
    model = model_of(nodes, {"x": (3, 5), "k": np.array([2], np.int64)}, ["y"], {"axis": np.array(1, np.int64)})
    with pytest.raises(UnsupportedNode, match=r"after a run: give the input while loading: values=\{'k': ...\}"):
        load_onnx(model)
    assert load_onnx(model, values={"k": np.array([2], np.int64)}).outputs == {"y": (3, 2)}
