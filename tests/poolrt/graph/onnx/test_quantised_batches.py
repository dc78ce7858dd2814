"""Products of batches of computed matrices of bytes run on integers: QLinearMatMul, MatMulInteger, and products spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import Executor, load_onnx
from poolrt.graph import passes
from poolrt.workers.primitives.provider import PrimitiveProvider

from .test_quantised_sums import single

#: Each compiles kernels of its own.
pytestmark = pytest.mark.one_test_in(2)

Array = NDArray[Any]
#: Shapes of both sides: as in attention, with broadcast batches and odd sizes, and of one dimension more on the right.
SHAPES: Final = (
    ((12, 65, 32), (12, 32, 65)),
    ((2, 1, 17, 63), (1, 3, 63, 33)),
    ((17, 40), (3, 40, 33)),
)
#: Powers of two: results are halves often, and exact in float32.
LEFT, RIGHT, RESULT = 0.5, 0.25, 16.0
TYPES: Final = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


def operands(dims: Sequence[tuple[int, ...]], left: type, right: type) -> dict[str, Array]:
    """Return the largest numbers of both sides, too."""
    rng = np.random.default_rng()
    found: dict[str, Array] = {}
    for name, shape, kind in zip("ab", dims, (left, right), strict=True):
        limits = np.iinfo(kind)
        found[name] = rng.integers(limits.min, limits.max + 1, shape).astype(kind)
        found[name][..., 0, :] = limits.max
    return found


def model_of(form: str, given: dict[str, Array], points: tuple[int, int, int]) -> onnx.ModelProto:
    """Return the product of two computed matrices as one operator, or as one of floats between quantised tensors."""
    a, b = given.values()
    fixed = {
        "as": np.float32(LEFT), "az": a.dtype.type(points[0]), "bs": np.float32(RIGHT), "bz": b.dtype.type(points[1]),
        "ys": np.float32(RESULT), "yz": a.dtype.type(points[2]),
    }  # fmt: skip
    nodes = [helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])]
    if form == "qdq":
        nodes = [
            helper.make_node("DequantizeLinear", ["a", "as", "az"], ["c"]),
            helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["d"]),
            helper.make_node("MatMul", ["c", "d"], ["e"]),
            helper.make_node("QuantizeLinear", ["e", "ys", "yz"], ["y"]),
        ]
    kinds = {name: helper.np_dtype_to_tensor_dtype(each.dtype) for name, each in given.items()}
    sources = [helper.make_tensor_value_info(name, kinds[name], each.shape) for name, each in given.items()]
    result = helper.make_tensor_value_info("y", kinds["a"], None)
    initializers = [numpy_helper.from_array(np.asarray(each), name) for name, each in fixed.items()]
    graph = helper.make_graph(nodes, "batch", sources, [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def runs_on_bytes(model: onnx.ModelProto) -> bool:
    """Return whether the only product of a model reads bytes on both sides."""
    ir = passes.optimize(load_onnx(model).to_ir())
    (node,) = (node for node in ir.nodes if node.kind == "matmul")
    return all(ir.values[value].dtype in ("u8", "s8") for value in node.inputs[:2])


@pytest.mark.parametrize("form", ["operator", "qdq"])
@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
@pytest.mark.one_in(4)
def test_requantised_products_are_exact(form: str, left: type, right: type, cache: PrimitiveProvider) -> None:
    for number, dims in enumerate(SHAPES[:2]):
        # Given zero points of all three, among them those that cost nothing
        points = (3, (128 if right is np.uint8 else 0) if number else 21, 5)
        given = operands(dims, left, right)
        model = model_of(form, given, points)
        # When the product is executed
        found = Executor(load_onnx(model), cache=cache).run(**given)["y"]
        # Then it is computed on bytes, with halves rounded to even
        sums = (given["a"].astype(np.int64) - points[0]) @ (given["b"].astype(np.int64) - points[1])
        limits = np.iinfo(left)
        want = np.clip(np.rint(sums * (LEFT * RIGHT / RESULT)) + points[2], limits.min, limits.max)
        assert runs_on_bytes(model)
        assert found.dtype == left
        np.testing.assert_array_equal(found, want.astype(left))


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", TYPES)
@pytest.mark.one_in(2)
def test_whole_products_are_exact(left: type, right: type, cache: PrimitiveProvider) -> None:
    for dims in SHAPES:
        cases: tuple[dict[str, Array], ...] = (
            {},
            {"az": np.array(7, left)},
            {"az": np.array(7, left), "bz": np.array(100, right)},
        )
        for points in cases:
            # Given computed zero points, or none
            given = {**operands(dims, left, right), **points}
            model = single("MatMulInteger", given, ("y",))
            # When the product is executed
            found = Executor(load_onnx(model), cache=cache).run(**given)["y"]
            # Then its sums are those of int32, computed on bytes
            a = given["a"].astype(np.int32) - int(points.get("az", 0))
            b = given["b"].astype(np.int32) - int(points.get("bz", 0))
            assert runs_on_bytes(model)
            np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("dims", [((4, 40, 31), (4, 31, 40)), ((4, 40, 40), (4, 40, 31))], ids=str)
def test_products_by_small_matrices_are_those_of_floats(dims: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Packing the matrices takes longer than what bytes save."""
    assert not runs_on_bytes(model_of("operator", operands(dims, np.uint8, np.int8), (3, 0, 5)))


def test_a_product_whose_result_stays_a_float_is_one_of_floats() -> None:
    """Scores that a softmax of floats reads belong to an attention, which is one operation."""
    given = operands(SHAPES[0], np.uint8, np.uint8)
    model = model_of("qdq", given, (3, 7, 5))
    model.graph.node.pop()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("e", TensorProto.FLOAT, None))
    assert not runs_on_bytes(model)
