"""Attention beside ONNX Runtime's, on one thread and on two: as one operation, and spelled out in matrices.

Shapes are those of BERT-base, ViT-B/16 and GPT-2: 12 heads of depth 64, query, key and value as products make them, (batch,
rows, 768); a decoding query has 1024 keys and values of 12 heads. ONNX Runtime computes `MultiHeadAttention`, ONNX's
`Attention` and the spelled out graph, poolrt the operation and the same graph without recognising it. A ratio is the time of
the fastest rival divided by poolrt's, all with the copies of inputs and outputs that their interfaces make.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnx
import onnxruntime
from measure import SHORT, alternate, arguments, record, seconds, settle
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Engine, Executor, Graph, NativePool, Stream, StreamAttr
from poolrt.cachestore import CacheStore
from poolrt.graph.values import Value
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]
HEADS: Final = 12
DEPTH: Final = 64
WIDTH: Final = HEADS * DEPTH
#: Seconds that one measurement of one contestant takes at least.
_LEAST_S: Final = 0.02
_ROUNDS: Final = 9
_MICROSOFT: Final = "com.microsoft"


@dataclass(frozen=True)
class Problem:
    """One attention: ``causal`` or not, of keys as products make them or (batch, heads, keys, depth) if ``decoding``."""

    name: str
    batch: int
    rows: int
    keys: int
    causal: bool = False
    decoding: bool = False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs."""
        cached = (self.batch, HEADS, self.keys, DEPTH)
        keys = cached if self.decoding else (self.batch, self.keys, WIDTH)
        return {"q": (self.batch, self.rows, WIDTH), "k": keys, "v": keys}

    def mask(self) -> Array:
        """Return what the spelled out graph adds to causal scores."""
        seen = np.tri(self.rows, self.keys, self.keys - self.rows, bool)
        return np.where(seen, 0.0, -np.inf).astype(np.float32)

    def graph(self, spelled: bool) -> Graph:
        """Return poolrt's graph, as one operation or ``spelled`` out so that it is not recognised."""
        g = Graph("attention")
        q, k, v = (self._heads(g, g.input(name, dims)) for name, dims in self.shapes().items())
        if not spelled:
            y = g.attention(q, k, v, causal=self.causal)
        else:
            # Nodes with an implementation of their own are left alone.
            scores = g.matmul(q, g.transpose(k, (0, 1, 3, 2)), implementation="native:")
            scores = g.binary(scores, 1 / math.sqrt(DEPTH), "mul", implementation="native:")
            if self.causal:
                scores = g.binary(scores, self.mask(), "add", implementation="native:")
            y = g.matmul(g.softmax(scores, implementation="native:"), v, implementation="native:")
        g.output("y", g.reshape(g.transpose(y, (0, 2, 1, 3)), (self.batch, self.rows, WIDTH)))
        return g

    def _heads(self, g: Graph, x: Value) -> Value:
        return x if x.ndim == 4 else g.transpose(g.reshape(x, (self.batch, x.shape[1], HEADS, DEPTH)), (0, 2, 1, 3))

    def models(self) -> dict[str, bytes]:
        """Return ONNX Runtime's models by name."""
        one = {"num_heads": HEADS, "unidirectional": int(self.causal)}
        found = {
            "MultiHeadAttention": self._model(
                [helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain=_MICROSOFT, **one)], {}
            ),
            "spelled out": self._spelled(),
        }
        if not self.decoding:
            how = {"q_num_heads": HEADS, "kv_num_heads": HEADS, "is_causal": int(self.causal)}
            found["Attention"] = self._model([helper.make_node("Attention", ["q", "k", "v"], ["y"], **how)], {})
        return found

    def _spelled(self) -> bytes:
        numbers: dict[str, Array] = {
            "scale": np.array(1 / math.sqrt(DEPTH), np.float32),
            "flat": np.array([self.batch, self.rows, WIDTH]),
            "split": np.array([self.batch, -1, HEADS, DEPTH]),
        }
        nodes = []
        for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            if self.decoding and name != "q":
                perm = [0, 1, 3, 2] if name == "k" else [0, 1, 2, 3]
                nodes.append(helper.make_node("Transpose", [name], [f"{name}t"], perm=perm))
                continue
            nodes.append(helper.make_node("Reshape", [name, "split"], [f"{name}s"]))
            nodes.append(helper.make_node("Transpose", [f"{name}s"], [f"{name}t"], perm=perm))
        nodes += [helper.make_node("MatMul", ["qt", "kt"], ["s"]), helper.make_node("Mul", ["s", "scale"], ["m"])]
        if self.causal:
            numbers["mask"] = self.mask()
            nodes.append(helper.make_node("Add", ["m", "mask"], ["a"]))
        nodes += [
            helper.make_node("Softmax", ["a" if self.causal else "m"], ["p"], axis=-1),
            helper.make_node("MatMul", ["p", "vt"], ["o"]),
            helper.make_node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", ["ot", "flat"], ["y"]),
        ]
        return self._model(nodes, numbers)

    def _model(self, nodes: list[onnx.NodeProto], numbers: dict[str, Array]) -> bytes:
        kind = onnx.TensorProto.FLOAT
        inputs = [helper.make_tensor_value_info(name, kind, dims) for name, dims in self.shapes().items()]
        stored = [numpy_helper.from_array(value, name) for name, value in numbers.items()]
        graph = helper.make_graph(nodes, "attention", inputs, [helper.make_tensor_value_info("y", kind, None)], stored)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(_MICROSOFT, 1)]
        whole: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return whole


PROBLEMS: Final = {
    "bert": (Problem("BERT-base, 128 rows", 1, 128, 128), Problem("BERT-base, 384 rows", 1, 384, 384)),
    "vit": (Problem("ViT-B/16, 197 rows", 1, 197, 197),),
    "prompt": (
        Problem("GPT-2, a prompt of 128", 1, 128, 128, True),
        Problem("GPT-2, a prompt of 1024", 1, 1024, 1024, True),
    ),
    "decoding": (Problem("GPT-2, a query of 1024 keys", 1, 1, 1024, False, True),),
}


def compare(problem: Problem, stream: Stream, threads: int, cache: PrimitiveProvider) -> dict[str, float]:
    """Return the seconds of each contestant; raise AssertionError if results differ."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    draw = np.random.default_rng(1)
    inputs: dict[str, Array] = {n: draw.standard_normal(d).astype(np.float32) for n, d in problem.shapes().items()}
    contestants: dict[str, Callable[[], Any]] = {}
    for name, spelled in (("poolrt", False), ("poolrt, spelled out", True)):
        executor = Executor(problem.graph(spelled), stream=stream, cache=cache)
        contestants[name] = lambda executor=executor: executor.run(**inputs)["y"]
    for name, model in problem.models().items():
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        contestants[f"ONNX Runtime, {name}"] = lambda session=session: session.run(None, inputs)[0]
    wanted = contestants["ONNX Runtime, spelled out"]()
    for name, run in contestants.items():
        np.testing.assert_allclose(run(), wanted, rtol=1e-3, atol=1e-5, err_msg=f"{problem.name}: {name}")

    def measured(run: Callable[[], object]) -> Callable[[], float]:
        repeat = 1 if SHORT else max(1, math.ceil(_LEAST_S / seconds(run, 3)))

        def once() -> float:
            if threads > 1:
                settle()
            run()
            return seconds(run, repeat)

        return once

    return alternate({name: measured(run) for name, run in contestants.items()}, _ROUNDS)


def main() -> None:
    """Print a table for each number of threads."""
    chosen = arguments(__doc__, tuple(PROBLEMS))
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home, url=f"unix://{home}/none.sock") as store:
        cache, engine = PrimitiveProvider(256, store), Engine("cpu")
        for threads in (1, 2):
            with NativePool(threads) as pool:
                attr = StreamAttr("cpu")
                attr.set_threadpool(pool)
                stream = Stream(engine, attr)
                lines = []
                for problem in (each for name in chosen for each in PROBLEMS[name]):
                    found = compare(problem, stream, threads, cache)
                    best = min(time for name, time in found.items() if name != "poolrt")
                    times = ", ".join(f"{name} {1e6 * time:.0f} us" for name, time in found.items())
                    lines.append(f"{problem.name}: {times}; ratio {best / found['poolrt']:.2f}")
                record(f"Attention, {threads} thread{'s' * (threads > 1)}", lines)


if __name__ == "__main__":
    main()
