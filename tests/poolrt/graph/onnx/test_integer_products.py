"""Products of bytes are NumPy's: with known and computed sides, of all types, with zero points and without."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

Array = NDArray[Any]


def model_of(
    operator: str, given: dict[str, Array], known: dict[str, Array], names: tuple[str, ...]
) -> onnx.ModelProto:
    """Return a node; an operand that is in neither is left out."""
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    stored = [numpy_helper.from_array(each, name) for name, each in known.items()]
    read = [name if name in given or name in known else "" for name in names]
    domain = "com.microsoft" if operator == "MatMulIntegerToFloat" else ""
    node = helper.make_node(operator, read, ["y"], "node", domain=domain)
    graph = helper.make_graph([node], "product", ports, [onnx.ValueInfoProto(name="y")], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("right", ["uint8", "int8"])
@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("operator", ["MatMulInteger", "ConvInteger", "MatMulIntegerToFloat"])
def test_products_of_bytes_have_any_zero_points(operator: str, left: str, right: str) -> None:
    rng = np.random.default_rng(7)
    is_window = operator == "ConvInteger"
    for is_known, first, second in itertools.product((True, False), (None, 0, 3), (None, 0, 128, 5)):
        if second == 128 and right == "int8":
            continue
        a, b = (
            rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, dims, kind, endpoint=True)
            for kind, dims in ((left, (5, 6)), (right, (6, 17)))
        )
        sums = (a.astype(np.int64) - (first or 0)) @ (b.astype(np.int64) - (second or 0))
        # A window of one element is a product.
        given = {"a": a.T.reshape(1, 6, 5, 1) if is_window else a}
        side = {"b": b.T.reshape(17, 6, 1, 1) if is_window else b}
        points = [("az", left, first), ("bz", right, second)]
        known = {name: np.asarray(number, kind) for name, kind, number in points if number is not None}
        names: tuple[str, ...] = ("a", "b", "az", "bz")
        if operator == "MatMulIntegerToFloat":
            known |= {"as": np.asarray(0.5, np.float32), "bs": np.asarray(0.25, np.float32)}
            names = ("a", "b", "as", "bs", "az", "bz")
        if is_known:
            known |= side
        else:
            given |= side
        found = run_wire(*load_onnx(model_of(operator, given, known, names)).to_wire(), given)["y"]
        want: Array = sums * 0.125 if operator == "MatMulIntegerToFloat" else sums
        want = want.T.reshape(1, 17, 5, 1) if is_window else want
        np.testing.assert_array_equal(found, want, f"{is_known} {first} {second}")


@pytest.mark.parametrize("inputs", [5, 24, 25])
@pytest.mark.parametrize("zero", [None, 128])
def test_known_uint8_of_few_inputs_are_multiplied_as_they_are(
    inputs: int, zero: int | None, cache: PrimitiveProvider
) -> None:
    rng = np.random.default_rng()
    a, b = (rng.integers(0, 256, dims, np.uint8) for dims in ((37, inputs), (inputs, 70)))
    known = {"b": b} if zero is None else {"b": b, "bz": np.asarray(zero, np.uint8)}
    graph = load_onnx(model_of("MatMulInteger", {"a": a}, known, ("a", "b", "az", "bz")))
    # Without a zero point, int8 would have one, and so need the sums of rows.
    products = sum(node.kind == "matmul" for node in graph.to_ir().nodes)
    assert products == (1 if zero == 128 or inputs <= 24 else 2)
    want = a.astype(np.int64) @ (b.astype(np.int64) - (zero or 0))
    np.testing.assert_array_equal(Executor(graph, cache=cache).run(a=a)["y"], want)
