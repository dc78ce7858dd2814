"""Sequences of tensors within a model, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from poolrt import ModelError, UnsupportedNode, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.onnx.models import session

from .node_tests import Array, interpret
from .test_computed_courses import body, model_of

node = helper.make_node
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def check(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    outputs: Mapping[str, int],
    rounding: float = 0,
    **constants: Any,
) -> None:
    """Compare with ONNX Runtime; ``rounding`` is what the roundings of sums may add up to, in the values' units."""
    model = model_of(nodes, feeds, outputs, **constants)
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, dict(feeds)
    )
    found = interpret(load_onnx(model), feeds)
    for name, each in zip(outputs, wanted, strict=True):
        assert found[name].dtype == each.dtype
        np.testing.assert_allclose(found[name], each, rtol=1e-6, atol=rounding, err_msg=name)


def test_sequences_are_made_changed_and_read() -> None:
    rng = np.random.default_rng()
    feeds = {
        name: rng.standard_normal((2, size)).astype(np.float32) for name, size in zip("abc", (3, 1, 4), strict=True)
    }
    nodes = [
        node("SequenceConstruct", ["a", "b"], ["two"]),
        node("SequenceInsert", ["two", "c"], ["three"]),
        node("SequenceInsert", ["three", "b", "minus"], ["four"]),  # a, b, b, c
        node("SequenceErase", ["four", "zero"], ["later"]),  # b, b, c
        node("SequenceErase", ["four"], ["sooner"]),  # a, b, b
        node("Identity", ["later"], ["same"]),
        node("SequenceAt", ["same", "minus"], ["last"]),
        node("SequenceLength", ["four"], ["count"]),
        node("ConcatFromSequence", ["sooner"], ["joined"], axis=1),
        node("SequenceErase", ["same"], ["equal"]),
        node("ConcatFromSequence", ["equal"], ["stacked"], axis=-1, new_axis=1),
    ]
    kinds = {"last": FLOAT, "count": INT64, "joined": FLOAT, "stacked": FLOAT}
    check(nodes, feeds, kinds, minus=np.array(-1), zero=np.array(0))


@pytest.mark.parametrize(
    ("sizes", "options"),
    [(None, {"keepdims": 0}), (None, {"axis": 1}), (np.array(2), {"axis": -1}), (np.array([1, 3, 1]), {"axis": 1})],
)
def test_tensors_are_split(sizes: Any, options: dict[str, Any]) -> None:
    x = np.random.default_rng().standard_normal((4, 5)).astype(np.float32)
    nodes = [
        node("SplitToSequence", ["x", "sizes"] if sizes is not None else ["x"], ["parts"], **options),
        node("SequenceLength", ["parts"], ["count"]),
        node("SequenceAt", ["parts", "place"], ["y"]),
    ]
    constants = {} if sizes is None else {"sizes": sizes}
    for place in (0, -1):
        check(nodes, {"x": x}, {"y": FLOAT, "count": INT64}, place=np.array(place), **constants)


def test_loops_carry_sequences() -> None:
    # As torch.jit.script writes a list to which a loop appends
    x = np.random.default_rng().standard_normal((5, 3)).astype(np.float32)
    inner = helper.make_graph(
        [
            node("Gather", ["x", "number"], ["row"]),
            node("Add", ["sum", "row"], ["next"]),
            node("SequenceInsert", ["rows", "next"], ["more"]),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("sum", FLOAT, None),
            helper.make_tensor_sequence_value_info("rows", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("next", FLOAT, None),
            helper.make_tensor_sequence_value_info("more", FLOAT, None),
        ],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"], dtype=FLOAT),
        node("Loop", ["count", "yes", "start", "none"], ["total", "found"], body=inner),
        node("ConcatFromSequence", ["found"], ["y"], axis=0, new_axis=1),
    ]
    known: dict[str, Any] = {"start": np.zeros(3, np.float32), "count": np.array(5), "yes": np.array(True)}
    # ONNX Runtime rounds each partial sum to float32, what is fused only the last one; the sums may cancel
    rounding = float(len(x) * np.finfo(np.float32).eps / 2 * np.abs(x).sum(axis=0).max())
    check(nodes, {"x": x}, {"y": FLOAT, "total": FLOAT}, rounding, **known)


def test_a_branch_that_is_known_gives_a_sequence() -> None:
    x = np.random.default_rng().standard_normal((2, 3)).astype(np.float32)
    results = [helper.make_tensor_sequence_value_info("pair", FLOAT, None)]
    branches = [
        helper.make_graph([node("SequenceConstruct", names, ["pair"])], "branch", [], results)
        for names in (["x", "x"], ["x"])
    ]
    nodes = [
        node("If", ["yes"], ["either"], then_branch=branches[0], else_branch=branches[1]),
        node("ConcatFromSequence", ["either"], ["y"], axis=0),
    ]
    check(nodes, {"x": x}, {"y": FLOAT}, yes=np.array(True))
    # One that a run chooses is refused
    nodes.insert(0, node("Equal", ["a", "a"], ["yes"]))
    model = model_of(nodes, {"x": x, "a": np.zeros((), np.float32)}, {"y": FLOAT})
    with pytest.raises(UnsupportedNode, match="a run chooses between sequences of tensors"):
        load_onnx(model)


def test_a_session_takes_positions_as_inputs(cache: PrimitiveProvider) -> None:
    a, b = (np.full(2, number, np.float32) for number in (1, 2))
    nodes = [node("SequenceConstruct", ["a", "b"], ["two"]), node("SequenceAt", ["two", "place"], ["y"])]
    made = session(model_of(nodes, {"a": a, "b": b, "place": np.array(0)}, {"y": FLOAT}), cache)
    for place, wanted in ((0, a), (1, b), (-1, b)):
        np.testing.assert_array_equal(made.run(None, {"a": a, "b": b, "place": np.array(place)})[0], wanted)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("SequenceConstruct", ["x"], ["s"]), node("Relu", ["s"], ["y"])], "its input 0 is a sequence of tensors"),
        ([node("SequenceAt", ["x", "one"], ["y"])], "input 0: expect a sequence of tensors"),
        (
            [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "one"], ["y"])],
            r"position: expect -1\.\.0, got 1",
        ),
        ([node("SequenceConstruct", ["x", "one"], ["s"]), node("SequenceLength", ["s"], ["y"])], "float32 and int64"),
        ([node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)], "has no tensors"),
        ([node("SequenceEmpty", [], ["s"]), node("SequenceErase", ["s"], ["t"]), node("SequenceLength", ["t"], ["y"])],
         "position: expect"),
        ([node("SequenceConstruct", ["x"], ["y"])], "output 'y' is a sequence of tensors"),
        ([node("SplitToSequence", ["x", "one"], ["s"], axis=5), node("SequenceLength", ["s"], ["y"])], "axis: expect"),
        ([node("SequenceConstruct", ["x"], ["s"]), node("SequenceInsert", ["s", "s"], ["t"]),
          node("SequenceLength", ["t"], ["y"])], "input 1 is a sequence of tensors; expect a tensor"),
    ],
)  # fmt: skip
def test_what_is_no_sequence_or_no_tensor_is_refused(nodes: list[onnx.NodeProto], message: str) -> None:
    model = model_of(nodes, {"x": np.zeros((2, 3), np.float32)}, {"y": FLOAT}, one=np.array(1))
    with pytest.raises(ModelError, match=message):
        load_onnx(model)


def test_loops_do_not_collect_sequences() -> None:
    inner = body(
        [node("SequenceConstruct", ["x"], ["s"]), node("Identity", ["go"], ["on"])],
        {"number": INT64, "go": TensorProto.BOOL},
        {"on": TensorProto.BOOL, "s": FLOAT},
    )
    nodes = [node("Loop", ["count", "yes"], ["y"], body=inner)]
    model = model_of(nodes, {"x": np.zeros(3, np.float32)}, {"y": FLOAT}, count=np.array(2), yes=np.array(True))
    with pytest.raises(ModelError, match="its body collects sequences of tensors"):
        load_onnx(model)
