"""ResNet-50 of 8-bit integers, one picture, one thread: poolrt beside its own float32 and ONNX Runtime's integers.

Weights are drawn; each output of a convolution has a scale. Every tensor is quantised, as exporters do it, the results of
the convolutions before an addition too. Both compute the same graph. Times are processor time: the machine may be busy.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnx
import onnxruntime
from measure import alternate, arguments, record
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Engine, Executor, Graph, Stream
from poolrt.cachestore import CacheStore
from poolrt.graph.values import Value
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]
_ROUNDS: Final = 9
#: Scale and zero point of what may be negative, and of what a relu has bounded.
_ANY: Final = (8.0 / 255, 128)
_BOUNDED: Final = (6.0 / 255, 0)
#: Blocks of each stage, and their inner channels.
_STAGES: Final = ((3, 64), (4, 128), (6, 256), (3, 512))


class Networks:
    """The same network three times: poolrt's graph of integers, poolrt's in float32, and ONNX's nodes.

    A tensor is the triple of poolrt's two values and the name in ONNX.
    """

    def __init__(self) -> None:
        self.integers = Graph("resnet50 of integers")
        self.floats = Graph("resnet50")
        self.nodes: list[Any] = []
        self.stored: list[Any] = []
        self._rng = np.random.default_rng(0)
        self._count = 0

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node of ONNX; return the name of its result."""
        self._count += 1
        self.nodes.append(helper.make_node(kind, inputs, [f"t{self._count}"], **attributes))
        return f"t{self._count}"

    def constant(self, value: Array) -> str:
        """Add a constant of ONNX; return its name."""
        self._count += 1
        self.stored.append(numpy_helper.from_array(value, f"c{self._count}"))
        return f"c{self._count}"

    def quantised(self, x: tuple[Value, Value, str], how: tuple[float, int]) -> tuple[Value, Value, str]:
        """Quantise and dequantise a tensor."""
        scale, point = how
        stored = self.integers.reorder(x[0], dtype="uint8", scales={"dst": scale}, zero_points={"dst": point})
        restored = self.integers.reorder(stored, dtype="float32", scales={"src": scale}, zero_points={"src": point})
        numbers = [self.constant(np.asarray(scale, np.float32)), self.constant(np.asarray(point, np.uint8))]
        name = self.node("DequantizeLinear", [self.node("QuantizeLinear", [x[2], *numbers]), *numbers])
        return restored, x[1], name

    def weights(self, *dims: int, gain: float) -> tuple[Value, Array, str]:
        """Return weights with a scale for each output."""
        values = self._rng.standard_normal(dims) * gain / math.sqrt(math.prod(dims[1:]))
        scale = (np.abs(values).reshape(dims[0], -1).max(1) / 127).astype(np.float32)
        shape = (-1, *(1,) * (len(dims) - 1))
        stored = np.rint(values / scale.reshape(shape)).astype(np.int8)
        restored = self.integers.reorder(
            self.integers.constant(stored), dtype="float32", scales={"src": scale.reshape(shape)}
        )
        numbers = [self.constant(scale), self.constant(np.zeros(dims[0], np.int8))]
        name = self.node("DequantizeLinear", [self.constant(stored), *numbers], axis=0)
        return restored, (stored * scale.reshape(shape)).astype(np.float32), name

    def convolution(
        self, x: tuple[Value, Value, str], outputs: int, kernel: int, stride: int, bounded: bool
    ) -> tuple[Value, Value, str]:
        """Convolve, bound if wanted, and quantise."""
        factors = self.weights(outputs, x[1].shape[1], kernel, kernel, gain=1.4 if bounded else 0.7)
        pad = kernel // 2
        ours, floats = (
            g.convolution(source, factor, strides=stride, padding=pad)
            for g, source, factor in ((self.integers, x[0], factors[0]), (self.floats, x[1], factors[1]))
        )
        name = self.node("Conv", [x[2], factors[2]], strides=[stride] * 2, pads=[pad] * 4)
        result = (ours, floats, name)
        return self.quantised(self.relu(result) if bounded else result, _BOUNDED if bounded else _ANY)

    def relu(self, x: tuple[Value, Value, str]) -> tuple[Value, Value, str]:
        """Bound below by 0."""
        return self.integers.eltwise(x[0], "relu"), self.floats.eltwise(x[1], "relu"), self.node("Relu", [x[2]])

    def block(self, x: tuple[Value, Value, str], inner: int, stride: int) -> tuple[Value, Value, str]:
        """Add a bottleneck: three convolutions and the way past them."""
        past = x
        if stride != 1 or x[1].shape[1] != 4 * inner:
            past = self.convolution(x, 4 * inner, 1, stride, bounded=False)
        y = self.convolution(x, inner, 1, 1, bounded=True)
        y = self.convolution(y, inner, 3, stride, bounded=True)
        y = self.convolution(y, 4 * inner, 1, 1, bounded=False)
        ours, floats = self.integers.binary(y[0], past[0], "add"), self.floats.binary(y[1], past[1], "add")
        total = (ours, floats, self.node("Add", [y[2], past[2]]))
        return self.quantised(self.relu(total), _BOUNDED)

    def build(self, dims: tuple[int, ...]) -> bytes:
        """Build all; return the ONNX model."""
        x = (self.integers.input("x", dims), self.floats.input("x", dims), "x")
        x = self.convolution(self.quantised(x, _ANY), 64, 7, 2, bounded=True)
        pooled = [
            g.pooling(each, "max", 3, strides=2, padding=1) for g, each in ((self.integers, x[0]), (self.floats, x[1]))
        ]
        name = self.node("MaxPool", [x[2]], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        x = self.quantised((pooled[0], pooled[1], name), _BOUNDED)
        for stage, (count, inner) in enumerate(_STAGES):
            for number in range(count):
                x = self.block(x, inner, 2 if stage and not number else 1)
        size = x[1].shape[2]
        means = [
            g.reshape(g.pooling(each, "avg_exclude_padding", size), (dims[0], -1))
            for g, each in ((self.integers, x[0]), (self.floats, x[1]))
        ]
        name = self.node("Flatten", [self.node("GlobalAveragePool", [x[2]])])
        x = self.quantised((means[0], means[1], name), _BOUNDED)
        factors = self.weights(1000, x[1].shape[1], gain=3.0)
        self.integers.output("y", self.integers.inner_product(x[0], factors[0]))
        self.floats.output("y", self.floats.inner_product(x[1], factors[1]))
        last = self.node("Gemm", [x[2], factors[2]], transB=1)
        source = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)
        result = helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, [None, None])
        graph = helper.make_graph(self.nodes, "resnet50", [source], [result], self.stored)
        opset = [helper.make_opsetid("", 17)]
        whole: bytes = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
        return whole


def main() -> None:
    """Print the three times and two ratios."""
    networks = Networks()
    model = networks.build((1, 3, 224, 224))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    picture = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home, url=f"unix://{home}/none.sock") as store:
        cache, stream = PrimitiveProvider(256, store), Stream(Engine("cpu"))
        integers, floats = (Executor(g, stream=stream, cache=cache) for g in (networks.integers, networks.floats))
        theirs: Any = session.run(None, {"x": picture})[0]
        ours, exact = integers.run(x=picture)["y"], floats.run(x=picture)["y"]
        alike, near = (float(np.corrcoef(ours.ravel(), other.ravel())[0, 1]) for other in (theirs, exact))
        assert alike > 0.99, f"results correlate with ONNX Runtime's by {alike:.4f} only"
        contestants: dict[str, Callable[[], object]] = {
            "onnxruntime": lambda: session.run(None, {"x": picture}),
            "poolrt": lambda: integers.run(x=picture),
            "float32": lambda: floats.run(x=picture),
        }
        found = alternate({name: _measured(run) for name, run in contestants.items()}, _ROUNDS)
    record(
        "ResNet-50 of 8-bit integers, batch 1, one thread, processor time",
        [
            f"ONNX Runtime {onnxruntime.__version__}: {found['onnxruntime'] * 1e3:.1f} ms a picture",
            f"poolrt: {found['poolrt'] * 1e3:.1f} ms a picture, in float32 {found['float32'] * 1e3:.1f} ms",
            f"speed to that of ONNX Runtime, ratio {found['onnxruntime'] / found['poolrt']:.2f} (goal: at least 0.90)",
            f"speed to that of float32, ratio {found['float32'] / found['poolrt']:.2f} (goal: at least 2.00)",
            f"correlation of results with ONNX Runtime's {alike:.4f}, with float32's {near:.4f}",
        ],
    )


def _measured(run: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        start = time.process_time()
        run()
        return time.process_time() - start

    return measure


if __name__ == "__main__":
    arguments(__doc__)
    main()
