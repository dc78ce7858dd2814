"""Integers of models beyond what float64 holds, computed and folded, against NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

#: Each compiles kernels of its own.
pytestmark = pytest.mark.one_test_in(2)

Array = NDArray[Any]
LARGE = 2**53 + 1
SMALL_PRODUCT = np.array([300**2, 300**2, 32767**2, 32768**2], np.int64).__lshift__(21).astype(np.int32)


def results(model: Any, given: Mapping[str, Array], cache: PrimitiveProvider) -> list[Array]:
    """Return the output with all inputs open, and with all of them known."""
    data = model.SerializeToString()
    open_inputs, known = load_onnx(data), load_onnx(data, values=given)
    return [Executor(open_inputs, cache=cache).run(**given)["y"], Executor(known, cache=cache).run()["y"]]


def model_of(operator: str, given: Mapping[str, Array], wanted: Array, **attributes: Any) -> Any:
    """Return a model of one node on arrays."""
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in {**given, "y": wanted}.items()
    ]
    node = helper.make_node(operator, list(given), ["y"], **attributes)
    graph = helper.make_graph([node], "g", ports[:-1], ports[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _cases() -> list[Any]:
    signed = np.array([LARGE, -LARGE, 2**63 - 1, -(2**63), 5, -(2**31) - 1], np.int64)
    unsigned = np.array([LARGE, 2**64 - 1, 2**63, 7], np.uint64)
    places = np.array([1, 63, 64, 0], np.uint64)
    small = np.array([300, -300, 32767, -32768], np.int16)
    bases = np.array([3, -7, 46341, 2, -2, 0, 2, 1, -1], np.int32)
    exponents = np.array([40, 11, 2, 2**32, 31, 0, 31, 2**40, 2**40 + 1], np.int64)
    return [
        ("Cast", {"x": signed}, signed.astype(np.int32), {"to": TensorProto.INT32}),
        ("Cast", {"x": signed}, signed.astype(np.uint64), {"to": TensorProto.UINT64}),
        ("Cast", {"x": unsigned}, unsigned.astype(np.int64), {"to": TensorProto.INT64}),
        ("Cast", {"x": small}, small.astype(np.uint8), {"to": TensorProto.UINT8}),
        ("Add", {"x": small, "z": small}, small + small, {}),
        ("Mul", {"x": unsigned, "z": unsigned}, unsigned * unsigned, {}),
        ("Div", {"x": signed, "z": np.array([3, 3, -7, 2, -2, 2], np.int64)},
         np.array([LARGE // 3, -(LARGE // 3), -((2**63 - 1) // 7), -(2**62), -2, -(2**30)]), {}),
        ("Mod", {"x": unsigned, "z": np.array([10, 10, 10, 10], np.uint64)}, unsigned % np.uint64(10), {}),
        ("Max", {"x": signed, "z": signed - 1}, np.maximum(signed, signed - 1), {}),
        ("Neg", {"x": signed}, -signed, {}),
        ("Abs", {"x": signed}, np.abs(signed), {}),
        ("Abs", {"x": unsigned}, unsigned, {}),
        ("BitShift", {"x": unsigned, "z": places}, np.right_shift(unsigned, places), {"direction": "RIGHT"}),
        ("BitwiseXor", {"x": signed, "z": signed[::-1].copy()}, signed ^ signed[::-1], {}),
        ("BitwiseNot", {"x": unsigned}, ~unsigned, {}),
        ("Less", {"x": signed, "z": signed + np.array([1, 1, 0, 1, 0, -1])},
         np.array([True, True, False, True, False, False]), {}),
        ("Sum", {"x": small, "z": small, "w": small}, small * np.int16(3), {}),
        ("ReduceSum", {"x": unsigned}, np.array(int(unsigned.astype(object).sum()) % 2**64, np.uint64), {"keepdims": 0}),
        ("ReduceMin", {"x": unsigned}, np.array(7, np.uint64), {"keepdims": 0}),
        ("Pow", {"x": bases, "z": exponents}, np.power(bases.astype(np.int64), exponents).astype(np.int32), {}),
        ("Mul", {"x": small.astype(np.int32) << 12, "z": small.astype(np.int32) << 9}, SMALL_PRODUCT, {}),
    ]  # fmt: skip


_SHOWN = ("Cast-0", "Mul-5", "BitShift-12", "Pow-19")
_NAMED = [(f"{case[0]}-{number}", case) for number, case in enumerate(_cases())]


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=n, marks=() if n in _SHOWN else pytest.mark.slow) for n, c in _NAMED]
)
def test_every_bit_of_an_integer_counts(
    cache: PrimitiveProvider, case: tuple[str, dict[str, Array], Array, Any]
) -> None:
    operator, given, wanted, attributes = case
    for found in results(model_of(operator, given, wanted, **attributes), given, cache):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_powers_and_paddings_are_exact(cache: PrimitiveProvider) -> None:
    x = np.array([[3, -7, 2_000_000_011]], np.int64)
    graph = helper.make_graph(
        [helper.make_node("Pow", ["x", "three"], ["cube"]), helper.make_node("Pad", ["cube", "ends", "number"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, (1, 4))],
        [
            numpy_helper.from_array(np.array(given), name)
            for name, given in (("three", 3), ("ends", [0, 0, 0, 1]), ("number", LARGE))
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    for found in results(model, {"x": x}, cache):
        np.testing.assert_array_equal(found, np.append(x**3, LARGE)[None])


@pytest.mark.parametrize("kind", ["int32", "int8", "uint8"])
def test_sums_differences_and_products_wrap(kind: str) -> None:
    # Given pairs of all limits of a type, and numbers between them
    limits = np.iinfo(kind)
    numbers = np.array([limits.min, limits.max, limits.min + 1, 3, 100, limits.max // 2 + 1], kind)
    x, z = np.repeat(numbers, 6), np.tile(numbers, 6)
    cases: dict[str, tuple[dict[str, Array], Array]] = {
        "Add": ({"x": x, "z": z}, x + z), "Sub": ({"x": x, "z": z}, x - z), "Mul": ({"x": x, "z": z}, x * z),
        "Abs": ({"x": x}, np.abs(x)), "Sum": ({"x": x, "z": z, "w": z}, x + z + z),
        "Mean": ({"x": x, "z": z}, np.trunc((x.astype("f8") + z) / 2).astype(kind)),
    }  # fmt: skip
    if limits.min < 0:
        cases["Neg"] = ({"x": x}, -x)
    for operator, (given, wanted) in cases.items():
        # When a model combines them, then the result is NumPy's
        graph = load_onnx(model_of(operator, given, wanted).SerializeToString())
        found = run_wire(*graph.to_wire(), given)["y"]
        np.testing.assert_array_equal(found.astype(kind), wanted, err_msg=operator)


def _reductions(x: Array) -> dict[str, Array]:
    """Return results of reductions of a matrix along its rows, modulo the numbers of its type."""
    exact = x.astype(object)
    bits = 8 * x.itemsize

    def wrapped(values: Any) -> Array:
        lost = np.array([[int(each) % 2**bits] for each in values], np.uint64)
        return lost.astype(x.dtype)

    return {
        "ReduceSum": wrapped(exact.sum(1)),
        "ReduceProd": wrapped(exact.prod(1)),
        "ReduceL1": wrapped(np.abs(exact).sum(1)),
        "ReduceSumSquare": wrapped((exact**2).sum(1)),
    }


@pytest.mark.parametrize(
    "kind", ["int32", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("uint32", "int64", "uint64"))]
)
def test_reductions_products_and_running_sums_wrap(kind: str, cache: PrimitiveProvider) -> None:
    # Given rows with sums beyond the limits of a type, and the limits themselves
    limits = np.iinfo(kind)
    drawn = np.random.default_rng(7).integers(limits.min, limits.max, (5, 6), kind, endpoint=True)
    drawn[0], drawn[1, :2] = limits.max, limits.min
    axes = np.array([1], np.int64)
    for operator, wanted in _reductions(drawn).items():
        attributes = {} if operator == "ReduceSum" else {"axes": [1]}
        given = {"x": drawn, "axes": axes} if operator == "ReduceSum" else {"x": drawn}
        opset = 13 if operator == "ReduceSum" else 11
        model = model_of(operator, given, wanted, **attributes)
        model.opset_import[0].version = opset
        data = model.SerializeToString()
        values = {"axes": axes} if operator == "ReduceSum" else {}
        # When a model reduces them, then the result is exact but for the high bits
        found = Executor(load_onnx(data, values=values), cache=cache).run(x=drawn)["y"]
        np.testing.assert_array_equal(found, wanted, err_msg=operator, strict=True)
    with np.errstate(over="ignore"):
        matrix = drawn[:, :5].T.copy()
        cases: dict[str, tuple[dict[str, Array], Array, Any]] = {
            "MatMul": ({"x": drawn[:, :5].copy(), "z": matrix}, drawn[:, :5] @ matrix, {}),
            "CumSum": ({"x": drawn, "axis": np.array(1)}, np.cumsum(drawn, 1, kind), {}),
        }
    for operator, (given, wanted, attributes) in cases.items():
        data = model_of(operator, given, wanted, **attributes).SerializeToString()
        values = {name: array for name, array in given.items() if name == "axis"}
        feeds = {name: array for name, array in given.items() if name != "axis"}
        found = Executor(load_onnx(data, values=values), cache=cache).run(**feeds)["y"]
        np.testing.assert_array_equal(found, wanted, err_msg=operator, strict=True)
        if operator == "MatMul" or limits.min < 0:
            session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
            np.testing.assert_array_equal(session.run(None, given)[0], wanted, err_msg=operator)
