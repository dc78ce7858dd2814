"""Operators of windows that are movements of elements, against NumPy: blocks side by side, and maxima put back."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from poolrt import Graph, load_onnx
from poolrt.graph.passes import optimize

from .node_tests import Array, interpret


def imported(node: onnx.NodeProto, given: Mapping[str, Array], stored: Mapping[str, Array]) -> Graph:
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    tensors = [numpy_helper.from_array(each, name) for name, each in stored.items()]
    graph = helper.make_graph([node], "windows", ports, [helper.make_empty_tensor_value_info("y")], tensors)
    return load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


@pytest.mark.parametrize(
    ("block", "counts", "behind"),
    [((2, 2), (3, 4), (0, 0)), ((3, 1), (2, 5), (2, 0)), ((4,), (6,), (3,)), ((2, 3, 2), (2, 1, 3), (1, 0, 1))],
)
def test_blocks_side_by_side_are_moved(
    block: tuple[int, ...], counts: tuple[int, ...], behind: tuple[int, ...]
) -> None:
    axes, image = len(block), [n * size + more for n, size, more in zip(counts, block, behind, strict=True)]
    x = np.random.default_rng().standard_normal((2, 3 * math.prod(block), math.prod(counts))).astype(np.float32)
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], strides=block)
    model = imported(node, {"x": x}, {"image": np.array(image), "block": np.array(block)})
    wanted = np.zeros((2, 3, *image), np.float32)
    blocks = x.reshape(2, 3, *block, *counts)
    for place in np.ndindex(*block, *counts):
        inner, outer = place[:axes], place[axes:]
        at = tuple(n * size + each for n, size, each in zip(outer, block, inner, strict=True))
        wanted[..., *at] = blocks[..., *place]
    np.testing.assert_array_equal(interpret(model, {"x": x})["y"], wanted)
    wire, _ = model.to_wire()
    assert "deconvolution" not in str(wire)


def test_maxima_are_put_among_zeros_that_are_not_stored() -> None:
    rng = np.random.default_rng()
    x = rng.standard_normal((2, 3, 20, 30)).astype(np.float32)
    where = np.argsort(rng.random((2 * 3 * 40 * 60,)))[: x.size].reshape(x.shape)
    node = helper.make_node("MaxUnpool", ["x", "where"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    model = imported(node, {"x": x, "where": where}, {})
    wanted = np.zeros(2 * 3 * 40 * 60, np.float32)
    wanted[where.reshape(-1)] = x.reshape(-1)
    np.testing.assert_array_equal(interpret(model, {"x": x, "where": where})["y"], wanted.reshape(2, 3, 40, 60))
    assert all(math.prod(each.dims) == 1 for each in optimize(model.to_ir()).constants.values())
