"""A model like BERT-base, of seeded weights in a separate file: what `weights.py` and its processes load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

#: Each tensor in the file begins on a page, as ONNX asks of data that is mapped.
_PAGE = 4096


class _Weights:
    """Initialisers whose data is appended to one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: list[onnx.TensorProto] = []
        self._generator = np.random.default_rng(20181011)
        self._end = 0
        path.write_bytes(b"")

    def drawn(self, name: str, *dims: int) -> str:
        """Add a tensor of small random numbers; return its name."""
        return self.given(name, self._generator.standard_normal(dims, np.float32) * np.float32(0.02))

    def given(self, name: str, array: NDArray[Any]) -> str:
        """Add a tensor; return its name. Its data is in the file unless it is small."""
        if array.nbytes < _PAGE // 4:
            self.tensors.append(onnx.numpy_helper.from_array(array, name))
            return name
        start = -(-self._end // _PAGE) * _PAGE
        with self.path.open("r+b") as file:
            file.seek(start)
            file.write(array.tobytes())
        self._end = start + array.nbytes
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        where = {"location": self.path.name, "offset": str(start), "length": str(array.nbytes)}
        for key, value in where.items():
            tensor.external_data.add(key=key, value=value)
        self.tensors.append(tensor)
        return name


def write(
    path: Path,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    words: int = 30522,
    sizes: tuple[Any, Any] = (1, 64),
) -> Path:
    """Write a model for inputs of ``sizes`` (batch and positions, numbers or names of open ones); return its path."""
    weights = _Weights(path.with_suffix(".weights"))
    nodes: list[onnx.NodeProto] = []

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def dense(x: str, name: str, wide: int, deep: int) -> str:
        product = node("MatMul", x, weights.drawn(f"{name}.weight", wide, deep))
        return node("Add", product, weights.drawn(f"{name}.bias", deep))

    def norm(x: str, name: str) -> str:
        scale = weights.given(f"{name}.scale", np.ones(width, np.float32))
        return node("LayerNormalization", x, scale, weights.drawn(f"{name}.shift", width), axis=-1, epsilon=1e-12)

    def whole(name: str, *numbers: int) -> str:
        return weights.given(name, np.array(numbers, np.int64))

    split = whole("split", 0, 0, heads, width // heads)
    joined = whole("joined", 0, 0, width)
    depth = weights.given("depth", np.array((width // heads) ** -0.5, np.float32))
    half, one, root = (
        weights.given(name, np.array(number, np.float32))
        for name, number in (("half", 0.5), ("one", 1.0), ("root", 2**-0.5))
    )
    length = node("Shape", "ids", start=1, end=2)
    table = weights.drawn("positions", 512, width)
    places = node("Slice", table, whole("first", 0), length, whole("along", 0))
    x = norm(node("Add", node("Gather", weights.drawn("words", words, width), "ids"), places), "embedded")
    for number in range(layers):
        name = f"layer{number}"
        parts = [dense(x, f"{name}.{part}", width, width) for part in ("query", "key", "value")]
        turned = zip(parts, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
        query, key, value = (node("Transpose", node("Reshape", part, split), perm=perm) for part, perm in turned)
        scores = node("Softmax", node("Mul", node("MatMul", query, key), depth), axis=-1)
        mixed = node("Reshape", node("Transpose", node("MatMul", scores, value), perm=(0, 2, 1, 3)), joined)
        x = norm(node("Add", dense(mixed, f"{name}.out", width, width), x), f"{name}.attended")
        inner = dense(x, f"{name}.up", width, 4 * width)
        gelu = node("Mul", node("Mul", inner, half), node("Add", node("Erf", node("Mul", inner, root)), one))
        x = norm(node("Add", dense(gelu, f"{name}.down", 4 * width, width), x), f"{name}.done")
    nodes.append(helper.make_node("Identity", [x], ["y"], name="y"))
    batch, positions = sizes
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [batch, positions])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, positions, width])
    graph = helper.make_graph(nodes, path.stem, [ids], [result], weights.tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path
