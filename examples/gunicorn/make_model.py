"""Write a small ONNX model with seeded weights, two layers and a softmax: `python make_model.py model.onnx`."""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(path: str, size: int = 64, hidden: int = 32, classes: int = 10) -> None:
    """Write the model: x float32[1, size] to y float32[1, classes]."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(size, hidden)).astype(np.float32),
        "w2": rng.normal(size=(hidden, classes)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, size))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, classes))
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "service", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


if __name__ == "__main__":
    save(sys.argv[1])
