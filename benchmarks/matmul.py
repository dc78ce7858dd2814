"""Matrix products beside OpenBLAS (NumPy), oneDNN and ONNX Runtime, on one thread and on two.

`sgemm` multiplies NumPy matrices, and so do *odd*, whose sizes are no multiples of vectors, and *thin*, with few rows, columns or
inputs; *weights* are products with constants and *attention* products of two inputs, through
`Executor`. *goal* compares products of bf16 with those of f32 and names the instructions; with AMX, they are to be twice as
fast at 1024. *narrow* compares products of f16 with those of f32 and of bf16, and with ONNX Runtime's of f16. A ratio is the time
of the best rival divided by poolrt's; for f16, poolrt's f32 is a rival too. oneDNN multiplies in buffers of its own, with weights
in a layout of its choice; poolrt, NumPy and ONNX Runtime also make and copy what their interfaces need. Each number of
threads has a process of its own, because OpenBLAS and oneDNN read it when they are loaded. Times on one thread are the
processor's, which other programs on the machine disturb less.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onednn
import onnxruntime
from measure import alternate, arguments, record, settle, sized
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Engine, Executor, Graph, NativePool, Stream, StreamAttr, sgemm
from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Matmul, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.isa import cpu_flags
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc

Array = NDArray[Any]
Contestants = dict[str, Callable[[], Any]]
#: The variable that says how many threads a process measures.
_THREADS: Final = "MATMUL_THREADS"
#: Seconds that one measurement of one contestant takes at least.
_LEAST_S: Final = 0.01
_ROUNDS: Final = 15
_OPSET: Final = 21
#: How many times as fast as a product of f32 one of bf16 is to be at 1024, on a processor with AMX.
_GOAL: Final = 2.0


@dataclass(frozen=True)
class Problem:
    """A product of (batch, M, K) and (batch, K, N); ``form`` is sgemm, weights or attention."""

    form: str
    batch: int
    m: int
    k: int
    n: int
    transposed: tuple[bool, bool] = (False, False)

    def __str__(self) -> str:
        how = "".join(f", {name} transposed" for name, yes in zip("ab", self.transposed, strict=True) if yes)
        return f"{f'{self.batch} times ' if self.batch > 1 else ''}{self.m}x{self.k}x{self.n}{how}"

    def factors(self) -> tuple[Array, Array]:
        """Return both factors as they are given: transposed ones with their last two dimensions exchanged."""
        rng = np.random.default_rng(self.m + self.n)
        found = []
        for dims, turned in zip(((self.m, self.k), (self.k, self.n)), self.transposed, strict=True):
            outer = (self.batch,) if self.form == "attention" else ()
            found.append(rng.standard_normal((*outer, *(dims[::-1] if turned else dims)), np.float32))
        return found[0], found[1]

    def turned(self, a: Array, b: Array) -> list[Array]:
        """Return the factors as they are multiplied."""
        return [np.swapaxes(x, -1, -2) if yes else x for x, yes in zip((a, b), self.transposed, strict=True)]


def sgemms() -> Iterator[Problem]:
    """Yield square matrices, transposed ones among them, and the shapes of transformers."""
    for size in (64, 128, 256, 512, 1024, 2048):
        yield Problem("sgemm", 1, size, size, size)
    for turned in ((True, False), (False, True)):
        yield Problem("sgemm", 1, 512, 512, 512, turned)
    for m in (1, 128):
        for k, n in ((768, 768), (768, 3072), (3072, 768)):
            yield Problem("sgemm", 1, m, k, n)


def odd() -> Iterator[Problem]:
    """Yield matrices whose sizes are no multiples of a vector, transposed ones among them."""
    for size in (15, 33, 65, 100, 127, 257, 500, 513, 1000):
        yield Problem("sgemm", 1, size, size, size)
    for turned in ((True, False), (False, True)):
        yield Problem("sgemm", 1, 127, 127, 127, turned)
    for m, k, n in ((127, 513, 1000), (1000, 127, 513), (17, 300, 300), (300, 300, 17)):
        yield Problem("sgemm", 1, m, k, n)


def thin() -> Iterator[Problem]:
    """Yield products with few columns, rows or inputs, and of rows that are a multiple of 4 KiB apart."""
    for n in (1, 2, 4, 8, 16, 17, 32, 64):
        yield Problem("sgemm", 1, 1024, 1024, n)
    for m in (1, 2, 4, 8, 16):
        yield Problem("sgemm", 1, m, 1024, 1024)
        yield Problem("sgemm", 1, m, 1024, 1024, (False, True))
    for k in (1, 4, 16):
        yield Problem("sgemm", 1, 512, k, 512)
    yield Problem("sgemm", 1, 4096, 64, 2)


def weights() -> Iterator[Problem]:
    """Yield the products of BERT-base and of a vision transformer with constants."""
    for m in (1, 16, 128, 197):
        for k, n in ((768, 768), (768, 3072), (3072, 768)):
            yield Problem("weights", 1, m, k, n)


def attentions() -> Iterator[Problem]:
    """Yield the products of 12 heads of attention: scores and sums, for 128 rows and for one."""
    for m in (128, 1):
        yield Problem("attention", 12, m, 64, 128)
        yield Problem("attention", 12, m, 64, 128, (False, True))
        yield Problem("attention", 12, m, 128, 64)


def narrow() -> Iterator[Problem]:
    """Yield products with constants of 16 bits, of one row and more."""
    for m in (1, 4, 16, 128):
        for k, n in ((768, 768), (768, 3072), (4096, 4096)):
            yield Problem("narrow", 1, m, k, n)
    yield Problem("narrow", 1, 1024, 1024, 1024)


def goal() -> Iterator[Problem]:
    """Yield products with constants of bf16 and f32."""
    for size in (1024, 512, 2048):
        yield Problem("goal", 1, size, size, size)


FORMS: Final[dict[str, Callable[[], Iterator[Problem]]]] = {
    "sgemm": sgemms,
    "odd": odd,
    "thin": thin,
    "weights": weights,
    "attention": attentions,
    "narrow": narrow,
    "goal": goal,
}


def our_graph(problem: Problem, a: Array, b: Array, stream: Stream) -> Callable[[], Any]:
    """Return a run of poolrt's graph."""
    g = Graph("product")
    left = g.input("a", a.shape)
    right = b if problem.form == "weights" else g.input("b", b.shape)
    if problem.transposed[1]:
        right = g.transpose(right, (0, 2, 1))
    g.output("y", g.matmul(left, right))
    executor = Executor(g, stream=stream)
    if problem.form == "weights":
        return lambda: executor.run(a=a)["y"]
    return lambda: executor.run(a=a, b=b)["y"]


def onnx_model(problem: Problem, a: Array, b: Array) -> bytes:
    """Return the same as an ONNX model."""
    kind = helper.np_dtype_to_tensor_dtype(a.dtype)
    inputs = [helper.make_tensor_value_info("a", kind, a.shape)]
    nodes, right, stored = [], "b", []
    if problem.form == "weights":
        stored = [numpy_helper.from_array(b, "b")]
    else:
        inputs.append(helper.make_tensor_value_info("b", kind, b.shape))
    if problem.transposed[1]:
        nodes, right = [helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1])], "t"
    nodes.append(helper.make_node("MatMul", ["a", right], ["y"]))
    result = helper.make_tensor_value_info("y", kind, [None] * a.ndim)
    graph = helper.make_graph(nodes, "product", inputs, [result], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
    whole: bytes = model.SerializeToString()
    return whole


def narrow_graph(a: Array, b: Array, dtype: str, stream: Stream) -> Callable[[], Any]:
    """Return a run of poolrt's graph of a product with a constant in a data type."""
    g = Graph("product")
    g.output("y", g.matmul(g.input("a", a.shape, dtype), g.constant(b, dtype)))
    executor = Executor(g, stream=stream)
    # The upper halves of float32: near enough to rounded for a measurement.
    given = (a.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else a.astype(dtype)
    return lambda: executor.run(a=given)["y"]


def widened(result: Array) -> Array:
    """Return bits of bfloat16 as float32, other results as they are."""
    return (result.astype(np.uint32) << 16).view(np.float32) if result.dtype == np.uint16 else result


def narrow_contestants(problem: Problem, a: Array, b: Array, stream: Stream, threads: int) -> Contestants:
    """Return one call of poolrt in each data type, and of ONNX Runtime in f16."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    half_a, half_b = a.astype(np.float16), b.astype(np.float16)
    session = onnxruntime.InferenceSession(
        onnx_model(replace(problem, form="weights"), half_a, half_b), options, providers=["CPUExecutionProvider"]
    )
    return {
        **{dtype: narrow_graph(a, b, dtype, stream) for dtype in ("float32", "float16", "bfloat16")},
        "ONNX Runtime float16": lambda: session.run(None, {"a": half_a})[0],
    }


def goal_contestants(a: Array, b: Array, stream: Stream) -> Contestants:
    """Return one call of poolrt in bf16 and one in f32."""
    return {dtype: narrow_graph(a, b, dtype, stream) for dtype in ("bfloat16", "float32")}


def instructions_of(problem: Problem) -> str:
    """Return what computes products of bf16, and why AMX does not."""
    dims = {"src": (problem.m, problem.k), "weights": (problem.k, problem.n), "dst": (problem.m, problem.n)}
    mds = {name: MemoryDesc(value, "bf16", "any" * (name == "weights")) for name, value in dims.items()}
    pd = primitive_desc(Matmul(mds["src"], mds["weights"], None, mds["dst"]), PrimitiveAttr(), cpu_target())
    found = f"{pd.impl_name()} on {cpu_target().instructions}"
    if "amx_bf16" in cpu_target().extensions:
        return found
    why = "the system does not let this process use tiles" if "amx_bf16" in cpu_flags() else "the processor lists none"
    return f"{found}, no AMX here: {why}"


def contestants(problem: Problem, a: Array, b: Array, stream: Stream, dnnl: onednn.OneDnn, threads: int) -> Contestants:
    """Return one call of poolrt and of each rival."""
    left, right = problem.turned(a, b)
    found: Contestants = {"NumPy": lambda: np.matmul(left, right)}
    found["oneDNN"] = onednn.product(dnnl, left, right, problem.form == "weights")
    if problem.form == "sgemm":
        pool = stream.attr.get_threadpool() if threads > 1 else None
        turned_a, turned_b = problem.transposed
        return {"poolrt": lambda: sgemm(a, b, transa=turned_a, transb=turned_b, threadpool=pool), **found}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(onnx_model(problem, a, b), options, providers=["CPUExecutionProvider"])
    given = {"a": a} if problem.form == "weights" else {"a": a, "b": b}
    found["ONNX Runtime"] = lambda: session.run(None, given)[0]
    return {"poolrt": our_graph(problem, a, b, stream), **found}


def compare(problem: Problem, found: Contestants, wanted: Array, threads: int) -> dict[str, float]:
    """Return the seconds of each contestant. Raises AssertionError if a result is wrong."""
    for name, run in found.items():
        # Factors and results of 16 bits have errors of 2**-8 each; those of a sum are as its root.
        exact, near = (1e-3, 1e-2), (0.05, 0.05 * math.sqrt(problem.k))
        relative, absolute = near if problem.form in ("narrow", "goal") else exact
        np.testing.assert_allclose(widened(run()), wanted, rtol=relative, atol=absolute, err_msg=f"{name}: {problem}")

    now = time.process_time if threads == 1 else time.perf_counter

    def seconds(run: Callable[[], Any], repeat: int) -> float:
        start = now()
        for _ in range(repeat):
            run()
        return (now() - start) / repeat

    def measured(run: Callable[[], Any]) -> Callable[[], float]:
        # First calls prepare later ones: three of poolrt's take 0.8 ms each for a product of 8 us. Of few calls after a rest, all
        # find a slow processor and cold caches; of many, some do.
        repeat = sized(3, 1)
        for _ in range(sized(3, 0)):
            repeat = max(1, math.ceil(_LEAST_S / seconds(run, repeat)))

        def once() -> float:
            if threads > 1:
                settle()
            run()
            return seconds(run, repeat)

        return once

    return alternate({name: measured(run) for name, run in found.items()}, _ROUNDS)


def measure(forms: list[str], threads: int) -> None:
    """Print a table for each form."""
    dnnl = onednn.OneDnn(threads)
    with NativePool(threads) as pool:
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        stream = Stream(Engine("cpu"), attr)
        for form in forms:
            lines, ratios = [], []
            for problem in list(FORMS[form]())[: sized(None, 2)]:
                a, b = problem.factors()
                left, right = problem.turned(a, b)
                us = {"narrow": "float16", "goal": "bfloat16"}.get(form, "poolrt")
                if form == "goal":
                    compared = goal_contestants(a, b, stream)
                elif form == "narrow":
                    compared = narrow_contestants(problem, a, b, stream, threads)
                else:
                    compared = contestants(problem, a, b, stream, dnnl, threads)
                found = compare(problem, compared, left.astype(np.float64) @ right.astype(np.float64), threads)
                ours = found.pop(us)
                ratios.append(min(other for name, other in found.items() if name != "bfloat16") / ours)
                speed = 2e-9 * problem.batch * problem.m * problem.k * problem.n / ours
                theirs = ", ".join(f"{name} {1e6 * other:.1f} us ({other / ours:.2f})" for name, other in found.items())
                lines.append(
                    f"{problem}: {us} {1e6 * ours:.1f} us ({speed:.0f} GFLOP/s), {theirs}, ratio {ratios[-1]:.2f}"
                )
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"geometric mean: ratio {mean:.2f}, least {min(ratios):.2f}")
            if form == "goal":
                lines.append(f"at 1024: ratio {ratios[0]:.2f}, goal with AMX {_GOAL:.1f}; {instructions_of(problem)}")
            record(f"Products: {form}, {threads} thread{'s' * (threads > 1)}", lines)


def main() -> None:
    """Measure each number of threads in a process of its own."""
    chosen = arguments(__doc__, tuple(FORMS))
    if os.environ.get(_THREADS):
        measure(chosen, int(os.environ[_THREADS]))
        return
    with tempfile.TemporaryDirectory() as home:
        try:
            for threads in ("1", "2"):
                names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", _THREADS)
                env = {**os.environ, "POOLRT_HOME": home, **dict.fromkeys(names, threads)}
                subprocess.run([sys.executable, *sys.argv], env=env, check=True)
        finally:
            with CacheStore.connect(home=home) as store:
                store.down()


if __name__ == "__main__":
    main()
