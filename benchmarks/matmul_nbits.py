"""Products by weights of 4 and 8 bits beside ONNX Runtime's MatMulNBits and poolrt's own product in float32, on one thread.

Weights are 4096 x 4096 with a scale and a zero point for each block of 32 inputs, as a decoder's layers have them. Numbers of
rows are those of decoding (1), of several sequences or a draft (2 to 16), and of a prompt (32, 128). Times are processor time
of the thread that computes. A ratio is the time of ONNX Runtime, or of poolrt in float32, divided by poolrt's.
"""

from __future__ import annotations

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
from measure import SHORT, alternate, arguments, record, sized
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import Executor, Graph, load_onnx
from poolrt.cachestore import CacheStore
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]
SIZE: Final = sized(4096, 128)
BLOCK: Final = 32
ROWS: Final = sized((1, 2, 4, 8, 16, 32, 128), (1, 17))
_LEAST_S: Final = 0.05
_ROUNDS: Final = 9


def model(rows: int, bits: int, rng: np.random.Generator) -> tuple[bytes, Array]:
    """Return ONNX Runtime's model, which poolrt imports, and its weights in float32."""
    blocks = SIZE // BLOCK
    packed = rng.integers(0, 256, (SIZE, blocks, BLOCK * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.001, 0.002, (SIZE, blocks)).astype(np.float32)
    points = rng.integers(0, 256, (SIZE, blocks * bits // 8)).astype(np.uint8)
    fixed = {"b": packed, "scales": scales, "points": points}
    node = helper.make_node(
        "MatMulNBits", ["x", *fixed], ["y"], domain="com.microsoft", K=SIZE, N=SIZE, bits=bits, block_size=BLOCK
    )
    source, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, SIZE)) for name in ("x", "y"))
    graph = helper.make_graph(
        [node], "nbits", [source], [result], [numpy_helper.from_array(a, n) for n, a in fixed.items()]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def numbers(stored: Array) -> Array:
        return np.stack([stored >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)], -1).astype(np.float32)

    zero = numbers(points).reshape(SIZE, blocks, 1)
    wide = (numbers(packed).reshape(SIZE, blocks, BLOCK) - zero) * scales[:, :, None]
    return made.SerializeToString(), wide.reshape(SIZE, SIZE)


def compare(rows: int, bits: int, cache: PrimitiveProvider) -> dict[str, float]:
    """Return the seconds of processor time of each contestant."""
    rng = np.random.default_rng(1)
    text, wide = model(rows, bits, rng)
    x = rng.standard_normal((rows, SIZE)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    plain = Graph("plain")
    plain.output("y", plain.matmul(plain.input("x", (rows, SIZE), "float32"), wide.T.copy()))
    packed, floats = (Executor(graph, cache=cache) for graph in (load_onnx(text), plain))
    contestants: dict[str, Callable[[], Any]] = {
        "poolrt": lambda: packed.run(x=x)["y"],
        "ONNX Runtime": lambda: session.run(None, {"x": x})[0],
        "float32": lambda: floats.run(x=x)["y"],
    }
    wanted = x @ wide.T
    for name, run in contestants.items():
        np.testing.assert_allclose(run(), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max(), err_msg=name)

    def measured(run: Callable[[], object]) -> Callable[[], float]:
        def once() -> float:
            start, count = time.thread_time(), 0
            while count == 0 or (time.thread_time() - start < _LEAST_S and not SHORT):
                run()
                count += 1
            return (time.thread_time() - start) / count

        return once

    return alternate({name: measured(run) for name, run in contestants.items()}, _ROUNDS)


def main() -> None:
    """Print a line for each number of rows."""
    arguments(__doc__)
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home, url=f"unix://{home}/none.sock") as store:
        cache = PrimitiveProvider(256, store)
        for bits in (4, 8):
            lines = []
            for rows in ROWS:
                found = compare(rows, bits, cache)
                mine = found["poolrt"]
                times = ", ".join(f"{name} {1e6 * each:.0f} us" for name, each in found.items())
                speed = SIZE * SIZE * bits / 8 / mine / 1e9
                rivals = f"ratio {found['ONNX Runtime'] / mine:.2f}, to float32 {found['float32'] / mine:.2f}"
                lines.append(f"{rows} rows: {times} ({speed:.1f} GB/s of weights); {rivals}")
            record(f"Weights of {bits} bits, 1 thread", lines)


if __name__ == "__main__":
    main()
