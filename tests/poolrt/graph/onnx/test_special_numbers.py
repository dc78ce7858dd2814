"""NaN, infinities, zeros and halves become the integers that ONNX Runtime makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import Executor, load_onnx
from poolrt.graph.onnx.folding import Folding
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire
from tests.references.dynamic_quantise import dynamic_quantise

from .single_node import runtime

NUMBERS = np.array(
    [np.nan, np.inf, -np.inf, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.25, 0.75, 63.5, -64.5, 1e10, -1e10, 1e38, -1e38] * 3,
    np.float32,
)
OPSET = helper.make_opsetid("", 21)


def quantisation(kind: str, scale: NDArray[Any]) -> Any:
    """Return a model with a QuantizeLinear of (3, 17): one scale, or one for each row."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 17))
    y = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), (3, 17))
    constants = [
        numpy_helper.from_array(scale, "scale"),
        numpy_helper.from_array(np.full(scale.shape, 3, kind), "point"),
    ]
    node = helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["y"], axis=0)
    return helper.make_model(helper.make_graph([node], "g", [x], [y], constants), opset_imports=[OPSET], ir_version=10)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "scale"),
    [
        ("int8", 0.5),
        *(
            pytest.param(k, s, marks=SLOW)
            for k in ("int8", "uint8", "int16", "uint16")
            for s in (0.5, [0.5, 0.25, 1.0])
        ),
    ],
)
def test_quantisation_takes_nan_to_the_least_number(
    cache: PrimitiveProvider, kind: str, scale: float | list[float]
) -> None:
    # Given one scale, or one for each row
    x = NUMBERS.reshape(3, 17)
    model = quantisation(kind, np.array(scale, np.float32))
    # When a model quantises
    found = Executor(load_onnx(model), cache=cache).run(x=x)["y"]
    # Then each number is ONNX Runtime's
    np.testing.assert_array_equal(found, runtime(model, {"x": x})[0])
    assert found[0, 0] == np.iinfo(kind).min


@pytest.mark.parametrize("engine", ["cpu", "opencl"])
@pytest.mark.parametrize(
    "numbers",
    [(1.0, 2.0, -3.0), (-np.inf, 1.0, 2.0), (np.inf, 1.0, 2.0), (np.inf, -np.inf, 0.0), (np.nan, 1.0, 2.0)],
)
def test_ranges_without_an_end_are_quantised(numbers: tuple[float, ...], engine: str) -> None:
    names = ("y", "scale", "point")
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3,))]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, (2, 1, 2), strict=True)]
    graph = helper.make_graph([helper.make_node("DynamicQuantizeLinear", ["x"], names)], "g", ports, results)
    model = helper.make_model(graph, opset_imports=[OPSET], ir_version=10)
    x = np.array(numbers, np.float32)
    found = run_wire(*load_onnx(model, engine=engine).to_wire(), {"x": x})
    # The range that ONNX Runtime finds beside NaN depends on the place of NaN; here NaN makes it 0.
    want = dynamic_quantise(x) if np.isnan(x).any() else runtime(model, {"x": x})
    for (name, got), wanted in zip(((name, found[name]) for name in names), want, strict=True):
        np.testing.assert_array_equal(got.astype(wanted.dtype), wanted, name)


@pytest.mark.parametrize(
    "kind", ["int8", *(pytest.param(k, marks=SLOW) for k in ("uint8", "int16", "uint32", "int32", "int64", "uint64"))]
)
def test_a_cast_saturates_known_arrays_as_it_does_computed_ones(cache: PrimitiveProvider, kind: str) -> None:
    """ONNX defines no result outside the range; ONNX Runtime and NumPy give what the processor's instruction does."""
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    ports = [helper.make_tensor_value_info(n, t, [51]) for n, t in (("x", TensorProto.FLOAT), ("y", to))]
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=to)], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[OPSET], ir_version=10)
    found = Executor(load_onnx(model), cache=cache).run(x=NUMBERS)["y"]
    limits = np.iinfo(kind)
    assert found[:3].tolist() == [limits.min, limits.max, limits.min]
    np.testing.assert_array_equal(Folding(1 << 20).cast(NUMBERS, np.dtype(kind)), found)
    # NaN, and all numbers in the range, are ONNX Runtime's; of NaN in other types, it keeps the low bits of the least int32.
    inside = (NUMBERS > -1 if limits.min == 0 else np.trunc(NUMBERS) >= limits.min) & np.less(
        NUMBERS, float(limits.max)
    )
    same = inside | (np.isnan(NUMBERS) & (kind in ("int32", "int64", "uint8")))
    np.testing.assert_array_equal(found[same], runtime(model, {"x": NUMBERS})[0][same])
