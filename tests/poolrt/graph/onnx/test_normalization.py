"""Statistics of LayerNormalization, and scales that are broadcast, beside ONNX's own evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from poolrt import load_onnx
from poolrt.graph.errors import ModelError
from tests.poolrt.graph.interpreter import run_wire

#: Axis, and the shapes of scale and shift.
SHAPES = [(-1, (5,), (5,)), (1, (4, 5), (4, 1)), (1, (1, 5), ()), (-2, (5,), None), (0, (3, 1, 1), (4, 5))]


@pytest.mark.parametrize("read", ["y m i", "m", "y i"])
@pytest.mark.parametrize(("axis", "scale", "shift"), SHAPES)
def test_statistics_of_rows_whose_scale_is_broadcast(
    axis: int, scale: tuple[int, ...], shift: tuple[int, ...] | None, read: str
) -> None:
    # Given rows with scale and shift of the model's inputs
    rng = np.random.default_rng(7)
    shapes = {"x": (3, 4, 5), "s": scale} | ({} if shift is None else {"b": shift})
    feeds = {name: rng.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
    node = helper.make_node("LayerNormalization", list(feeds), ["y", "m", "i"], axis=axis, epsilon=0.125)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in read.split()]
    graph = helper.make_graph([node], "g", ports, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    # When the results that are read are computed
    found = run_wire(*load_onnx(model).to_wire(), feeds)
    # Then they are the evaluator's
    wanted = ReferenceEvaluator(model).run(None, feeds)
    for name, want in zip(read.split(), map(np.asarray, wanted), strict=True):
        np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-5)


def test_statistics_of_no_type_of_floats_are_refused() -> None:
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y", "m"], "norm", stash_type=TensorProto.INT32)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in ("x", "s", "y", "m")]
    ports[1] = helper.make_tensor_value_info("s", TensorProto.FLOAT, (3,))
    graph = helper.make_graph([node], "g", ports[:2], ports[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match=r"node 'norm' .*stash_type=6: expect a type of floats"):
        load_onnx(model)


def test_means_and_deviations_of_float16_are_computed_in_float32() -> None:
    x = (100 + np.random.default_rng(3).standard_normal((2, 3, 9, 7))).astype(np.float16)
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2, 3])
    port, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, x.shape) for name in "xy")
    graph = helper.make_graph([node], "g", [port], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    wide = x.astype(np.float64)
    apart = wide - wide.mean((0, 2, 3), keepdims=True)
    found = run_wire(*load_onnx(model).to_wire(), {"x": x})["y"]
    want = apart / np.sqrt((apart**2).mean((0, 2, 3), keepdims=True))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float64), want, 1e-3, 1e-3)
