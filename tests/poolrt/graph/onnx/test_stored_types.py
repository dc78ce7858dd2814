"""Weights of types that tensors of a graph do not have: float8, float4, and integers of four and two bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from poolrt import Executor, ModelError, UnsupportedNode, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider

TYPES = (
    "int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz",
)  # fmt: skip


def model_of(nodes: list[Any], constants: dict[str, Any], width: int = 12) -> onnx.ModelProto:
    """Return a model from x (2, 8) to y (2, ``width``)."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, n)) for name, n in (("x", 8), ("y", width))]
    given = [numpy_helper.from_array(each, name) for name, each in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


def product_with(kind: str) -> tuple[onnx.ModelProto, Any]:
    """Return a product with weights in blocks, with zero points if they are integers, and the weights as they are."""
    rng = np.random.default_rng()
    drawn = wrapped(rng.integers(-8, 16, (2, 8, 12)), kind).astype(np.float32).astype(ml_dtypes_type(kind))
    weights, points = drawn[0], drawn[1, :2]
    scales = rng.uniform(0.1, 1, (2, 12)).astype(np.float32)
    constants = {"w": weights, "s": scales, **({"z": points} if "int" in kind else {})}
    names = list(constants)
    nodes = [
        helper.make_node("DequantizeLinear", names, ["d"], axis=0, block_size=4),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    wide = weights.astype(np.float64)
    if "int" in kind:
        wide = wide - np.repeat(points.astype(np.float64), 4, 0)
    return model_of(nodes, constants), wide * np.repeat(scales, 4, 0)


def ml_dtypes_type(kind: str) -> Any:
    return getattr(ml_dtypes, kind)


def wrapped(numbers: Any, kind: str) -> Any:
    """Return whole numbers without the bits that an integer type does not have; other types' numbers as they are."""
    if "int" not in kind:
        return numbers
    count = 1 << int(kind[-1])
    least = 0 if kind.startswith("u") else -count // 2
    return (numbers - least) % count + least


@pytest.mark.parametrize("kind", TYPES)
def test_weights_are_dequantised_by_blocks_while_loading(cache: PrimitiveProvider, kind: str) -> None:
    model, weights = product_with(kind)
    x = np.random.default_rng().standard_normal((2, 8)).astype(np.float32)
    found = Executor(load_onnx(model.SerializeToString()), cache=cache).run(x=x)["y"]
    np.testing.assert_allclose(found, x.astype(np.float64) @ weights, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["int4", "float8_e5m2"])
def test_weights_may_be_in_another_file(tmp_path: Path, cache: PrimitiveProvider, kind: str) -> None:
    model, weights = product_with(kind)
    stored = model.graph.initializer[0]
    (tmp_path / "weights").write_bytes(b"head" + stored.raw_data)
    set_external_data(stored, "weights", 4, len(stored.raw_data))
    stored.ClearField("raw_data")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    found = Executor(load_onnx(tmp_path / "m.onnx"), cache=cache).run(x=np.eye(2, 8, dtype=np.float32))["y"]
    np.testing.assert_allclose(found, weights[:2], rtol=1e-6)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("saturate", [1, 0])
def test_constants_are_rounded_as_in_onnx(kind: str, saturate: int) -> None:
    rng, target = np.random.default_rng(), ml_dtypes_type(kind)
    given = np.concatenate([rng.uniform(-8, 8, 90), rng.standard_normal(6) * 1e6]).astype(np.float32)
    floats = kind.startswith("float8")
    if floats:
        given = np.append(given, np.array([np.inf, -np.inf, np.nan, -0.0, 1e-7, -1e-7], np.float32))
    else:
        given = np.clip(np.trunc(given) if "int" in kind else given, -8, 7)
    nodes = [
        helper.make_node("Cast", ["c"], ["q"], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)), saturate=saturate),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes, "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, given.shape)],
        [numpy_helper.from_array(given, "c")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    made = load_onnx(model.SerializeToString())
    ((value, found),) = made.to_ir().constants.items()
    assert value == made.to_ir().outputs[0][1]
    limited = given
    if floats and saturate:
        numbers = np.arange(256, dtype=np.uint8).view(target).astype(np.float32)
        largest = numbers[np.isfinite(numbers)].max()
        limited = np.clip(given, -largest, largest)
    np.testing.assert_array_equal(found.array, wrapped(limited, kind).astype(target).astype(np.float32))


def test_data_of_a_wrong_size_are_refused() -> None:
    model, _ = product_with("int4")
    model.graph.initializer[0].raw_data += b"\0"
    with pytest.raises(
        ModelError, match=r"tensor 'w': its shape \(8, 12\) of data type 22 needs 48 bytes, its data have 49"
    ):
        load_onnx(model.SerializeToString())


def test_tensors_of_these_types_are_refused() -> None:
    model = model_of([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E5M2)], {}, 8)
    with pytest.raises(UnsupportedNode, match="a tensor cannot be cast to float8_e5m2"):
        load_onnx(model.SerializeToString())
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT4
    with pytest.raises(ModelError, match=r"no tensors of INT4; .*; give the input while loading: values=.'x'"):
        load_onnx(model.SerializeToString())


def test_the_greatest_of_no_elements_is_the_least_number() -> None:
    for operator, kind, wanted in (
        ("ReduceMax", np.float32, -np.inf), ("ReduceMin", np.float32, np.inf), ("ReduceMax", np.uint16, 0),
        ("ReduceMin", np.int64, 2**63 - 1), ("ReduceMin", np.bool_, True),
    ):  # fmt: skip
        number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        graph = helper.make_graph(
            [helper.make_node(operator, ["c"], ["y"], keepdims=0, axes=[0])], "g", [],
            [helper.make_tensor_value_info("y", number, (3,))], [numpy_helper.from_array(np.empty((0, 3), kind), "c")],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        ((_, found),) = load_onnx(model.SerializeToString()).to_ir().constants.items()
        np.testing.assert_array_equal(found.array, np.full(3, wanted, kind))


@pytest.mark.parametrize("kind", ["int4", "uint4", "int2", "uint2"])
def test_weights_that_the_model_quantises_are_quantised_while_loading(cache: PrimitiveProvider, kind: str) -> None:
    rng, dtype = np.random.default_rng(), ml_dtypes_type(kind)
    limits: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    weights, scales = rng.standard_normal((8, 12)).astype(np.float32) * 9, rng.uniform(0.5, 2, 12).astype(np.float32)
    points = rng.integers(int(limits.min), int(limits.max) + 1, 12)
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = model_of(nodes, {"w": weights, "s": scales, "z": points.astype(dtype)})
    x = rng.standard_normal((2, 8)).astype(np.float32)
    found = Executor(load_onnx(model.SerializeToString()), cache=cache).run(x=x)["y"]
    stored = np.clip(np.rint(weights / scales) + points, int(limits.min), int(limits.max))
    np.testing.assert_allclose(found, x @ ((stored - points) * scales), rtol=1e-4, atol=1e-3)


def test_computed_numbers_are_not_quantised_to_four_bits() -> None:
    constants = {"s": np.ones((), np.float32), "z": np.zeros((), ml_dtypes.int4)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    with pytest.raises(UnsupportedNode, match=r"'q'.*computed tensor cannot be quantised to int4"):
        load_onnx(model_of(nodes, constants, 8).SerializeToString())
