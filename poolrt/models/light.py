"""Build the networks: the onnx package's light graphs with their constant weights replaced by seeded ones.

As shipped, every weight is 0.02 and every output is the same number, which hides wrong arithmetic.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.cachestore.folders import make_folder

from ..graph.errors import ModelError
from ..graph.onnx.model_file import onnx_package, read_model
from .expected_output import load_expected
from .seeded import fingerprint, spread, uniform

_FILES: Final[Mapping[str, str]] = {
    "alexnet": "light_bvlc_alexnet",
    "densenet121": "light_densenet121",
    "inception_v1": "light_inception_v1",
    "inception_v2": "light_inception_v2",
    "resnet50": "light_resnet50",
    "shufflenet": "light_shufflenet",
    "squeezenet": "light_squeezenet",
    "vgg19": "light_vgg19",
    "zfnet512": "light_zfnet512",
}
NAMES: Final = tuple(_FILES)
#: Factor on the last layer of networks whose logits differ so much that softmax would give one class everything: the
#: inverse of their standard deviation for the sample input.
_LOGIT_SCALE: Final[Mapping[str, float]] = {
    "inception_v1": 1 / 6.97282457,
    "inception_v2": 1 / 0.173385009,
    "resnet50": 1 / 33.0924873,
    "shufflenet": 1 / 395.552887,
}
_IR_VERSION: Final = 8


def write(name: str, path: str | os.PathLike[str]) -> Path:
    """Write the network to a file, in full or not at all; return its path. Raises OSError and the errors of `build`."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(build(name).SerializeToString())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def provide(name: str, folder: str | os.PathLike[str]) -> Path:
    """Return a file of the network in a folder; creates those that are missing.

    The file's name contains the fingerprint of the weights, so that other weights have another file. Raises the errors
    of `write`.
    """
    target = Path(folder) / f"{name}-{load_expected(name).fingerprint[:12]}.onnx"
    if not target.is_file():
        make_folder(str(target.parent.absolute()))
        write(name, target)
    return target


def build(name: str, check: bool = True) -> Any:
    """Return a network as an ``onnx.ModelProto``.

    Raises ValueError for an unknown name, and ModelError if onnx is missing, ships no such graph, or (with ``check``)
    if the expected output was computed with other weights.
    """
    model = read_model(_graph_file(name)).proto
    graph = model.graph
    weights = dict(_weights(name, graph))
    if check and fingerprint(weights.items()) != load_expected(name).fingerprint:
        raise ModelError(
            f"{name}: the seeded weights differ from those its expected output was computed with; "
            "this NumPy generates another PCG64 stream, or the onnx package ships another graph"
        )
    _keep(graph.node, lambda node: node.op_type != "ConstantOfShape")
    read = {each for node in graph.node for each in node.input}
    _keep(graph.initializer, lambda initializer: initializer.name in read)
    for tensor_name, values in weights.items():
        proto = graph.initializer.add(name=tensor_name, data_type=onnx_package().TensorProto.FLOAT, dims=values.shape)
        proto.raw_data = values.tobytes()
    constant = {initializer.name for initializer in graph.initializer}
    _keep(graph.input, lambda declared: declared.name in read - constant)
    model.ir_version = _IR_VERSION
    return model


def weights_of(name: str) -> dict[str, NDArray[np.float32]]:
    """Return the seeded weights of a network by name."""
    model = read_model(_graph_file(name)).proto
    return dict(_weights(name, model.graph))


def _graph_file(name: str) -> Path:
    if name not in _FILES:
        raise ValueError(f"unknown network {name!r}; known: {', '.join(NAMES)}")
    package = onnx_package().__file__
    if package is None:
        raise ModelError("the onnx package has no folder")
    return Path(package).parent / "backend" / "test" / "data" / "light" / f"{_FILES[name]}.onnx"


def _weights(name: str, graph: Any) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the values for each ConstantOfShape, which depend on the reader of its result."""
    shapes = {i.name: onnx_package().numpy_helper.to_array(i) for i in graph.initializer}
    readers: dict[str, tuple[Any, int]] = {}
    for node in graph.node:
        for index, each in enumerate(node.input):
            readers.setdefault(each, (node, index))
    last = [node for node in graph.node if node.op_type == "Gemm"][-1:]
    constants = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    for stream, node in enumerate(constants):
        shape = tuple(int(size) for size in shapes[node.input[0]])
        reader, index = _real_reader(node.output[0], readers)
        values = _values(stream, shape, reader.op_type, index)
        if reader in last and name in _LOGIT_SCALE:
            values *= np.float32(_LOGIT_SCALE[name])
        yield node.output[0], values


def _real_reader(name: str, readers: Mapping[str, tuple[Any, int]]) -> tuple[Any, int]:
    node, index = readers[name]
    while node.op_type in ("Unsqueeze", "Reshape"):
        node, index = readers[node.output[0]]
    return node, index


def _values(stream: int, shape: Sequence[int], operator: str, index: int) -> NDArray[np.float32]:
    """Return weights that keep the variance of activations, and statistics of a plausible batch normalization."""
    match operator, index:
        case "Conv", 1:
            return spread(stream, shape, math.sqrt(2.0 / math.prod(shape[1:])))
        case "Gemm", 1:
            return spread(stream, shape, math.sqrt(1.0 / shape[-1]))
        case "BatchNormalization", 1:
            return uniform(stream, shape, 0.5, 1.0)
        case "BatchNormalization", 4:
            return uniform(stream, shape, 0.5, 1.5)
        case "Mul", _:
            return uniform(stream, shape, 0.5, 1.2)
        case _:
            return spread(stream, shape, 0.1)


def _keep(repeated: Any, wanted: Any) -> None:
    kept = [each for each in repeated if wanted(each)]
    del repeated[:]
    repeated.extend(kept)
