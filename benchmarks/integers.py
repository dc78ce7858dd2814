"""8-bit integers beside ONNX Runtime's and beside float32, one thread: convolutions and products of networks, requantized.

Both compute the same graph: dequantise, convolve or multiply with weights that have a scale for each output, bound below
by 0, quantise. A ratio is the time of the rival divided by poolrt's. Results may differ by one where they are half-way. They
are compared with those of ONNX Runtime's option for exact sums: the kernels that it takes by itself saturate sums of two
products at 16 bits on processors without VNNI.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnx
import onnxruntime
from measure import SHORT, alternate, arguments, record
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Engine, Executor, Graph, Stream
from poolrt.cachestore import CacheStore
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]
#: Seconds of processor time that one measurement of one contestant takes at least.
_LEAST_S: Final = 0.02
_ROUNDS: Final = 9
#: Scales of src and dst; src has no zero point, as after a relu.
_SRC, _DST = 0.02, 0.05


@dataclass(frozen=True)
class Problem:
    """A convolution (inputs, outputs, kernel, stride, size) or a product (rows, depth, columns)."""

    family: str
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        if self.family == "product":
            return "x".join(map(str, self.sizes))
        inputs, outputs, kernel, stride, size = self.sizes
        return f"{kernel}x{kernel}/{stride} {inputs}->{outputs} {size}x{size}"

    def data(self) -> tuple[Array, Array, Array]:
        """Return src, weights and the scales of weights, seeded."""
        rng = np.random.default_rng(len(self.sizes))
        if self.family == "product":
            rows, depth, columns = self.sizes
            src, weights = rng.integers(0, 256, (rows, depth)), rng.integers(-127, 128, (depth, columns))
            scales = rng.uniform(0.5, 1.0, columns) / math.sqrt(depth) / 40
        else:
            inputs, outputs, kernel, _, size = self.sizes
            src = rng.integers(0, 256, (1, inputs, size, size))
            weights = rng.integers(-127, 128, (outputs, inputs, kernel, kernel))
            scales = rng.uniform(0.5, 1.0, outputs) / kernel / math.sqrt(inputs) / 40
        return src.astype(np.uint8), weights.astype(np.int8), scales.astype(np.float32)

    def graph(self, quantised: bool) -> Graph:
        """Return poolrt's graph: of u8 from src to dst, or the same in float32."""
        src, weights, scales = self.data()
        g = Graph("integers")
        x = g.input("x", src.shape, "uint8" if quantised else "float32")
        shape = (1, -1) if self.family == "product" else (-1, 1, 1, 1)
        factors: Any = weights * scales.reshape(shape)
        if quantised:
            x = g.reorder(x, dtype="float32", scales={"src": _SRC})
            factors = g.reorder(g.constant(weights), dtype="float32", scales={"src": scales.reshape(shape)})
        if self.family == "product":
            y = g.matmul(x, factors)
        else:
            y = g.convolution(x, factors, strides=self.sizes[3], padding=self.sizes[2] // 2)
        y = g.eltwise(y, "relu")
        g.output("y", g.reorder(y, dtype="uint8", scales={"dst": _DST}) if quantised else y)
        return g

    def model(self) -> bytes:
        """Return the ONNX model."""
        src, weights, scales = self.data()
        product = self.family == "product"
        stored = {
            "w": weights, "ws": scales, "wz": np.zeros(len(scales), np.int8), "xs": np.float32(_SRC),
            "xz": np.uint8(0), "ys": np.float32(_DST), "yz": np.uint8(0),
        }  # fmt: skip
        how = {} if product else {"pads": [self.sizes[2] // 2] * 4, "strides": [self.sizes[3]] * 2}
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=1 if product else 0),
            helper.make_node("MatMul" if product else "Conv", ["xf", "wf"], ["p"], **how),
            helper.make_node("Relu", ["p"], ["r"]),
            helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"]),
        ]
        source = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, src.shape)
        result = helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [None] * src.ndim)
        constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
        graph = helper.make_graph(nodes, "integers", [source], [result], constants)
        whole: bytes = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
        ).SerializeToString()
        return whole


def convolutions() -> Iterator[Problem]:
    """Yield the convolutions of ResNet-50, one of each kind."""
    for sizes in (
        (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (256, 64, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28),
        (256, 512, 1, 2, 56), (256, 256, 3, 1, 14), (1024, 256, 1, 1, 14), (512, 512, 3, 1, 7), (512, 2048, 1, 1, 7),
    ):  # fmt: skip
        yield Problem("convolution", sizes)


def products() -> Iterator[Problem]:
    """Yield products of transformers: one row, a prompt, and the last layer of an image network."""
    for sizes in ((1, 768, 3072), (128, 768, 768), (128, 768, 3072), (1, 2048, 1000), (512, 512, 512)):
        yield Problem("product", sizes)


FAMILIES: Final[dict[str, Callable[[], Iterator[Problem]]]] = {"convolution": convolutions, "product": products}


def _session(model: bytes, exact: str) -> onnxruntime.InferenceSession:
    """Return a session on one thread, "1": with exact sums on every processor."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", exact)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compare(problem: Problem, stream: Stream, cache: PrimitiveProvider) -> dict[str, float]:
    """Return seconds of processor time by contestant; raise AssertionError if results differ by more than one."""
    session, exact = (_session(problem.model(), sums) for sums in ("0", "1"))
    ours, floats = (Executor(problem.graph(quantised), stream=stream, cache=cache) for quantised in (True, False))
    src = problem.data()[0]
    same = src.astype(np.float32) * np.float32(_SRC)
    wanted: Any = exact.run(None, {"x": src})[0]
    apart = np.abs(ours.run(x=src)["y"].astype(np.int64) - wanted)
    assert apart.max() <= 1, f"{problem}: results differ by {apart.max()}"
    assert (apart > 0).mean() < 1e-2, f"{problem}: {(apart > 0).mean():.3f} of the results differ"
    contestants: dict[str, Callable[[], object]] = {
        "poolrt": lambda: ours.run(x=src),
        "float32": lambda: floats.run(x=same),
        "onnxruntime": lambda: session.run(None, {"x": src}),
    }
    return alternate({name: _measured(run) for name, run in contestants.items()}, _ROUNDS)


def _measured(run: Callable[[], object]) -> Callable[[], float]:
    """Return a measurement of the mean processor time of a call; the machine may be busy."""
    begin = time.process_time()
    for _ in range(3):
        run()
    once = max((time.process_time() - begin) / 3, 1e-7)
    repeat = 1 if SHORT else max(1, math.ceil(_LEAST_S / once))

    def measure() -> float:
        start = time.process_time()
        for _ in range(repeat):
            run()
        return (time.process_time() - start) / repeat

    return measure


def main() -> None:
    """Print a table for each family."""
    chosen = arguments(__doc__, tuple(FAMILIES))
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home, url=f"unix://{home}/none.sock") as store:
        cache, stream = PrimitiveProvider(256, store), Stream(Engine("cpu"))
        for family in chosen:
            lines = []
            products_of = {"onnxruntime": 1.0, "float32": 1.0}
            problems = list(FAMILIES[family]())
            for problem in problems:
                found = compare(problem, stream, cache)
                ratios = {name: found[name] / found["poolrt"] for name in products_of}
                for name, ratio in ratios.items():
                    products_of[name] *= ratio ** (1 / len(problems))
                lines.append(
                    f"{problem}: poolrt {1e6 * found['poolrt']:.1f} us, ONNX Runtime {1e6 * found['onnxruntime']:.1f} us, "
                    f"ratio {ratios['onnxruntime']:.2f}; float32 {1e6 * found['float32']:.1f} us, "
                    f"ratio {ratios['float32']:.2f}"
                )
            lines.append(
                f"geometric mean: ratio {products_of['onnxruntime']:.2f} to ONNX Runtime, "
                f"{products_of['float32']:.2f} to float32"
            )
            record(f"8-bit integers, {family}, one thread, processor time", lines)


if __name__ == "__main__":
    main()
