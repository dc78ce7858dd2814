"""Single operations beside ONNX Runtime, on one thread and on two: a graph of one node through `Executor`.

Each operation has real shapes of networks; weights are constants, as they are there. A ratio is ONNX Runtime's time
divided by poolrt's, both with what their interfaces add: checks of the inputs, memory of the outputs.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnxruntime
from measure import SHORT, alternate, arguments, record, seconds
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Engine, Executor, Graph, NativePool, Stream, StreamAttr
from poolrt.cachestore import CacheStore
from poolrt.graph.values import Value
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]
#: Seconds that one measurement of one contestant takes at least.
_LEAST_S: Final = 0.02
_ROUNDS: Final = 9
#: ONNX Runtime's threads spin for some tens of milliseconds after a run.
_REST_S: Final = 0.1
_OPSET: Final = 23


@dataclass(frozen=True)
class Problem:
    """One operation on one shape: how poolrt's graph computes it, and ONNX's node, whose further inputs are constants."""

    family: str
    name: str
    dims: tuple[int, ...]
    build: Callable[..., Value]
    node: str
    constants: tuple[Array | None, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    #: How many inputs of the same shape the operation combines.
    inputs: int = 1
    #: The data type of the inputs.
    dtype: str = "float32"
    #: The order of inputs and constants, in numbers of them, unless inputs come first.
    order: tuple[int, ...] = ()
    #: Integer inputs are below this, unless it is 0.
    below: int = 0

    def __str__(self) -> str:
        kind = "" if self.dtype == "float32" else f"{self.dtype} "
        return f"{kind}{self.name} {'x'.join(map(str, self.dims))}"

    def model(self) -> bytes:
        """Return the ONNX model."""
        given = [(f"c{number}", value) for number, value in enumerate(self.constants)]
        names = [*self.arrays(), *(name if value is not None else "" for name, value in given)]
        names = [names[place] for place in self.order] or names
        made = helper.make_node(self.node, names, ["y"], **self.attributes)
        stored = [numpy_helper.from_array(value, name) for name, value in given if value is not None]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        sources = [helper.make_tensor_value_info(name, kind, self.dims) for name in self.arrays()]
        result = helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph([made], "operation", sources, [result], stored)
        opset = [helper.make_opsetid("", _OPSET)]
        whole: bytes = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
        return whole

    def graph(self) -> Graph:
        """Return poolrt's graph."""
        g = Graph("operation")
        g.output("y", self.build(g, *(g.input(name, self.dims, self.dtype) for name in self.arrays())))
        return g

    def arrays(self) -> dict[str, Array]:
        """Return the inputs by name."""
        if self.below:
            return {"x0": np.random.default_rng(0).integers(0, self.below, self.dims, self.dtype)}
        values = normals(*self.dims)
        if np.dtype(self.dtype).kind in "iu":
            values = np.abs(50.0 * values).round()
        return {f"x{number}": values.astype(self.dtype) for number in range(self.inputs)}


def normals(*dims: int) -> Array:
    """Return values drawn from a seed."""
    return np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)


def eltwises() -> Iterator[Problem]:
    """Yield functions of one variable, on the hidden layer of BERT-base and on activations of MobileNet."""
    for dims in ((128, 3072), (197, 3072), (1, 64, 112, 112)):
        for name, node, alpha, beta, how in (
            ("gelu_erf", "Gelu", 0.0, 0.0, {}),
            ("tanh", "Tanh", 0.0, 0.0, {}),
            ("exp", "Exp", 0.0, 0.0, {}),
            ("logistic", "Sigmoid", 0.0, 0.0, {}),
            ("gelu_tanh", "Gelu", 0.0, 0.0, {"approximate": "tanh"}),
            ("mish", "Mish", 0.0, 0.0, {}),
            ("hardswish", "HardSwish", 1 / 6, 0.5, {}),
        ):
            yield Problem("eltwise", name, dims, _eltwise(name, alpha, beta), node, (), dict(how))
    for dims in ((1, 64, 56, 56), (1, 128, 28, 28), (1, 3072, 16, 1)):
        slope = normals(dims[1], 1, 1)
        yield Problem("prelu", "prelu", dims, lambda g, x, slope=slope: g.prelu(x, slope[None]), "PRelu", (slope,))


def _eltwise(name: str, alpha: float, beta: float) -> Callable[[Graph, Value], Value]:
    return lambda g, x: g.eltwise(x, name, alpha, beta)


def normalizations() -> Iterator[Problem]:
    """Yield layer, group and instance normalization."""
    for rows in ((128, 768), (197, 768), (1, 50257), (1024, 1024)):
        scale, shift = normals(rows[-1]), normals(rows[-1])[::-1].copy()
        yield Problem(
            "layer_normalization", "layer_normalization", rows,
            lambda g, x, scale=scale, shift=shift: g.layer_normalization(x, scale, shift),
            "LayerNormalization", (scale, shift), {"axis": -1, "epsilon": 1e-5},
        )  # fmt: skip
    for dims, groups in (((1, 320, 64, 64), 32), ((2, 128, 32, 32), 32), ((1, 64, 128, 128), 64)):
        scale, shift = normals(dims[1]), normals(dims[1])[::-1].copy()
        node = "InstanceNormalization" if groups == dims[1] else "GroupNormalization"
        how = {"epsilon": 1e-5} | ({} if groups == dims[1] else {"num_groups": groups})
        yield Problem(
            "group_normalization", f"{groups} groups", dims,
            lambda g, x, groups=groups, scale=scale, shift=shift: g.group_normalization(x, groups, scale, shift),
            node, (scale, shift), how,
        )  # fmt: skip


def resamplings() -> Iterator[Problem]:
    """Yield what decoders enlarge, and a picture made smaller."""
    for dims, factor in (((1, 256, 32, 32), 2.0), ((1, 64, 128, 128), 2.0), ((1, 3, 512, 512), 0.5)):
        for algorithm in ("linear", "nearest"):
            how = {"mode": algorithm, "coordinate_transformation_mode": "half_pixel"}
            yield Problem(
                "resampling", f"{algorithm} by {factor:g}", dims,
                lambda g, x, algorithm=algorithm, factor=factor: g.resampling(x, algorithm, factors=factor),
                "Resize", (None, np.array([1.0, 1.0, factor, factor], np.float32)),
                how | ({"nearest_mode": "round_prefer_ceil"} if algorithm == "nearest" else {}),
            )  # fmt: skip


def deconvolutions() -> Iterator[Problem]:
    """Yield what U-Net, a generator and a segmentation network enlarge with, the last one depthwise."""
    for dims, outputs, kernel, stride, padding, groups in (
        ((1, 128, 56, 56), 64, 2, 2, 0, 1), ((1, 256, 16, 16), 128, 4, 2, 1, 1), ((1, 64, 32, 32), 64, 3, 1, 1, 1),
        ((1, 64, 56, 56), 64, 4, 2, 1, 64),
    ):  # fmt: skip
        inner, outer = dims[1] // groups, outputs // groups
        weights = normals(groups, outer, inner, kernel, kernel)
        theirs = weights.transpose(0, 2, 1, 3, 4).reshape(dims[1], outer, kernel, kernel)
        own, bias = weights.reshape(outputs, inner, kernel, kernel), normals(outputs)
        yield Problem(
            "deconvolution", f"{kernel}x{kernel}/{stride} to {outputs}{' depthwise' * (groups > 1)}", dims,
            lambda g, x, own=own, bias=bias, stride=stride, padding=padding, groups=groups: g.deconvolution(
                x, own, bias, strides=stride, padding=padding, groups=groups
            ),
            "ConvTranspose", (np.ascontiguousarray(theirs), bias),
            {"strides": [stride] * 2, "pads": [padding] * 4, "group": groups},
        )  # fmt: skip


def softmaxes() -> Iterator[Problem]:
    """Yield the attention of BERT-base, the classes of ImageNet for one picture and for many, and an axis in the middle."""
    for dims, axis in (((12, 128, 128), -1), ((1, 1000), -1), ((4096, 1000), -1), ((1, 21, 128, 128), 1)):
        yield Problem(
            "softmax", "softmax", dims, lambda g, x, axis=axis: g.softmax(x, axis), "Softmax", (), {"axis": axis}
        )


def binaries() -> Iterator[Problem]:
    """Yield sums of two inputs of one shape, and sums and products with a row, a channel and a scalar."""
    for dims in ((128, 768), (1, 256, 56, 56), (1, 1024)):
        yield Problem("binary", "add", dims, lambda g, x, y: g.binary(x, y, "add"), "Add", inputs=2)
    for name, node, dims, shape in (
        ("add", "Add", (128, 768), (768,)), ("add", "Add", (1, 256, 56, 56), (256, 1, 1)),
        ("mul", "Mul", (1, 32, 112, 112), (1, 32, 1, 1)), ("mul", "Mul", (12, 128, 128), (1,)),
        ("add", "Add", (12, 128, 128), (1, 128, 128)),
    ):  # fmt: skip
        other = normals(*shape)
        title = f"{name} of {'x'.join(map(str, shape))} to"
        build = _binary(name, other)
        yield Problem("binary", title, dims, build, node, (other,))


def _binary(name: str, other: Array) -> Callable[[Graph, Value], Value]:
    return lambda g, x: g.binary(x, other, name)


def reductions() -> Iterator[Problem]:
    """Yield reductions of rows, of columns and of images."""
    for dims, axes in (
        ((128, 768), (1,)),
        ((4096, 1024), (0,)),
        ((1, 256, 56, 56), (2, 3)),
        ((8, 64, 56, 56), (0, 2, 3)),
    ):
        for name, node in (("sum", "Sum"), ("mean", "Mean"), ("max", "Max"), ("norm_lp_sum", "L2")):
            yield Problem(
                "reduction", f"{name} of {axes}", dims,
                lambda g, x, name=name, axes=axes: g.reduction(x, name, axes),
                f"Reduce{node}", (np.array(axes, np.int64),),
            )  # fmt: skip


def transposes() -> Iterator[Problem]:
    """Yield the heads of attention to and fro, a matrix, and pictures with channels first and last."""
    for dims, perm in (
        ((1, 128, 12, 64), (0, 2, 1, 3)), ((1, 128, 12, 64), (0, 2, 3, 1)), ((1024, 1024), (1, 0)),
        ((1, 64, 56, 56), (0, 2, 3, 1)), ((1, 224, 224, 3), (0, 3, 1, 2)),
    ):  # fmt: skip
        yield Problem(
            "transpose",
            f"to {perm}",
            dims,
            lambda g, x, perm=perm: g.transpose(x, perm),
            "Transpose",
            (),
            {"perm": perm},
        )


def poolings() -> Iterator[Problem]:
    """Yield average and maximum over windows of ResNet, Inception and MobileNet, and over whole images."""
    for dims, kernel, stride, padding in (
        ((1, 64, 112, 112), 3, 2, 1),
        ((1, 192, 28, 28), 3, 1, 1),
        ((1, 128, 56, 56), 2, 2, 0),
    ):
        how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
        for name, node in (("avg_exclude_padding", "AveragePool"), ("max", "MaxPool")):
            yield Problem(
                "pooling", f"{name} {kernel}x{kernel}/{stride}", dims,
                lambda g, x, name=name, kernel=kernel, stride=stride, padding=padding: g.pooling(
                    x, name, kernel, strides=stride, padding=padding
                ),
                node, (), how,
            )  # fmt: skip
    for dims in ((1, 2048, 7, 7), (1, 512, 13, 13)):
        for name, node in (("avg_exclude_padding", "GlobalAveragePool"), ("max", "GlobalMaxPool")):
            yield Problem(
                "pooling", f"global {name}", dims, lambda g, x, name=name: g.pooling(x, name, x.shape[2:]), node
            )


def root_mean_squares() -> Iterator[Problem]:
    """Yield normalizations by the root mean square, of small and large language models."""
    for rows in ((128, 768), (128, 2048), (16, 4096), (1024, 4096)):
        scale = normals(rows[-1])
        yield Problem(
            "rms_normalization", "rms_normalization", rows,
            lambda g, x, scale=scale: g.rms_normalization(x, scale), "RMSNormalization", (scale,),
            {"axis": -1, "epsilon": 1e-5},
        )  # fmt: skip


def cubic_resamplings() -> Iterator[Problem]:
    """Yield a picture made larger and smaller by cubic convolution."""
    for dims, factor in (((1, 3, 256, 256), 2.0), ((1, 3, 512, 512), 0.5), ((1, 64, 56, 56), 2.0)):
        how = {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"}
        yield Problem(
            "cubic", f"cubic by {factor:g}", dims, lambda g, x, factor=factor: g.resampling(x, "cubic", factors=factor),
            "Resize", (None, np.array([1.0, 1.0, factor, factor], np.float32)), how,
        )  # fmt: skip


def types() -> Iterator[Problem]:
    """Yield operations on other types than float32, and conversions between types."""
    for dtype in ("float16", "float64"):
        scale, shift = normals(768), normals(768)[::-1].copy()
        small = {name: value.astype(dtype) for name, value in (("scale", scale), ("shift", shift))}
        yield Problem("types", "exp", (128, 3072), _eltwise("exp", 0.0, 0.0), "Exp", dtype=dtype)
        yield Problem("types", "tanh", (128, 3072), _eltwise("tanh", 0.0, 0.0), "Tanh", dtype=dtype)
        yield Problem(
            "types", "softmax", (12, 128, 128), lambda g, x: g.softmax(x, -1), "Softmax", (), {"axis": -1}, dtype=dtype
        )
        yield Problem(
            "types", "layer_normalization", (128, 768),
            lambda g, x, scale=scale, shift=shift: g.layer_normalization(x, scale, shift),
            "LayerNormalization", tuple(small.values()), {"axis": -1, "epsilon": 1e-5}, dtype=dtype,
        )  # fmt: skip
        yield Problem(
            "types", "max 3x3/2", (1, 64, 112, 112), lambda g, x: g.pooling(x, "max", 3, strides=2, padding=1), "MaxPool", (),
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, dtype=dtype,
        )  # fmt: skip
    weights = normals(768, 768).astype(np.float16)
    yield Problem(
        "types",
        "matmul with 768x768",
        (128, 768),
        lambda g, x: g.matmul(x, weights),
        "MatMul",
        (weights,),
        dtype="float16",
    )
    for dtype in ("float16", "float64", "int32", "int64"):
        yield Problem("types", "add", (128, 768), lambda g, x, y: g.binary(x, y, "add"), "Add", inputs=2, dtype=dtype)
        yield Problem(
            "types", "sum of (1,)", (128, 768), lambda g, x: g.reduction(x, "sum", (1,)),
            "ReduceSum", (np.array([1], np.int64),), dtype=dtype,
        )  # fmt: skip
    for source, target in (
        ("float32", "float16"), ("float16", "float32"), ("uint8", "float32"), ("int64", "int32"), ("float64", "float32"),
    ):  # fmt: skip
        to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        yield Problem(
            "types", f"to {target}", (1, 64, 112, 112), lambda g, x, target=target: g.reorder(x, dtype=target), "Cast", (),
            {"to": to}, dtype=source,
        )  # fmt: skip


def gathers() -> Iterator[Problem]:
    """Yield the embeddings of BERT-base, of one prompt and of a batch, and rows, columns and elements of activations."""
    for dims, table in (((1, 128), (30522, 768)), ((32, 128), (30522, 768)), ((1, 2048), (32000, 2048))):
        weights = normals(*table)
        yield Problem(
            "gather", f"rows of {table[0]}x{table[1]}", dims,
            lambda g, x, weights=weights: g.gather(weights, x), "Gather", (weights,), dtype="int64", order=(1, 0), below=table[0],
        )  # fmt: skip
    for dims, axis in (((1, 197, 768), 1), ((64, 1000), 1)):
        chosen = np.random.default_rng(1).integers(0, dims[axis], 100)
        yield Problem(
            "gather", f"100 along axis {axis}", dims,
            lambda g, x, chosen=chosen, axis=axis: g.gather(x, chosen, axis), "Gather", (chosen,), {"axis": axis},
        )  # fmt: skip
    chosen = np.random.default_rng(1).integers(0, 1000, (64, 1000))
    yield Problem(
        "gather", "elements", (64, 1000), lambda g, x, chosen=chosen: g.gather_elements(x, chosen, 1), "GatherElements",
        (chosen,), {"axis": 1},
    )  # fmt: skip
    pairs = np.random.default_rng(1).integers(0, 56, (500, 2))
    yield Problem(
        "gather",
        "500 pairs of indices",
        (56, 56, 64),
        lambda g, x, pairs=pairs: g.gather_nd(x, pairs),
        "GatherND",
        (pairs,),
    )


def selects() -> Iterator[Problem]:
    """Yield a comparison of attention's size and of an image's, with a number and with a tensor, and a choice by a mask."""
    for dims in ((12, 128, 128), (1, 64, 56, 56)):
        zero = np.zeros((), np.float32)
        yield Problem(
            "select", "x < 0", dims, lambda g, x, zero=zero: g.binary(x, zero, "lt", dtype=bool), "Less", (zero,)
        )
        yield Problem("select", "x < y", dims, lambda g, x, y: g.binary(x, y, "lt", dtype=bool), "Less", inputs=2)
    yield Problem(
        "select",
        "x == 0",
        (32, 128),
        lambda g, x: g.binary(x, 0, "eq", dtype=bool),
        "Equal",
        (np.zeros((), np.int64),),
        dtype="int64",
        below=9,
    )
    for dims, shape in (((12, 128, 128), (1, 128, 128)), ((1, 256, 56, 56), (1, 1, 56, 56))):
        mask, low = normals(*shape) > 0, np.float32(-1e9)
        yield Problem(
            "select", f"mask of {'x'.join(map(str, shape))}", dims,
            lambda g, x, mask=mask, low=low: g.select(mask, x, low), "Where", (mask, np.asarray(low)), order=(1, 0, 2),
        )  # fmt: skip


def arg_reductions() -> Iterator[Problem]:
    """Yield the best class of one picture and of many, the next token, and a segmentation's classes."""
    for dims, axis in (((1, 1000), 1), ((4096, 1000), 1), ((1, 50257), 1), ((1, 21, 128, 128), 1)):
        yield Problem(
            "arg_reduction", f"arg_max along {axis}", dims, lambda g, x, axis=axis: g.arg_max(x, axis), "ArgMax", (),
            {"axis": axis},
        )  # fmt: skip


def pads() -> Iterator[Problem]:
    """Yield margins of images: zeros around them, and mirrored ones."""
    for dims, width, mode in (
        ((1, 64, 56, 56), 1, "constant"), ((1, 3, 224, 224), 3, "constant"), ((1, 64, 128, 128), 1, "reflect"),
        ((1, 64, 128, 128), 1, "edge"),
    ):  # fmt: skip
        pads = np.array([0, 0, width, width] * 2, np.int64)
        yield Problem(
            "pad", f"{mode} {width}", dims,
            lambda g, x, width=width, mode=mode: g.pad(x, (0, 0, width, width), mode), "Pad", (pads,), {"mode": mode},
        )  # fmt: skip


def scatters() -> Iterator[Problem]:
    """Yield rows of a cache replaced, and elements added."""
    rows, updates = np.random.default_rng(1).integers(0, 2048, (64, 1)), normals(64, 1024)
    yield Problem(
        "scatter", "64 rows", (2048, 1024), lambda g, x: g.scatter_nd(x, rows, updates), "ScatterND", (rows, updates)
    )
    chosen, added = np.random.default_rng(1).integers(0, 1000, (64, 500)), normals(64, 500)
    yield Problem(
        "scatter", "elements added", (64, 1000), lambda g, x: g.scatter_elements(x, chosen, added, 1, "add"),
        "ScatterElements", (chosen, added), {"axis": 1, "reduction": "add"},
    )  # fmt: skip


FAMILIES: Final[dict[str, Callable[[], Iterator[Problem]]]] = {
    "eltwise": eltwises,
    "softmax": softmaxes,
    "binary": binaries,
    "reduction": reductions,
    "transpose": transposes,
    "pooling": poolings,
    "normalization": normalizations,
    "resampling": resamplings,
    "deconvolution": deconvolutions,
    "rms_normalization": root_mean_squares,
    "cubic": cubic_resamplings,
    "types": types,
    "gather": gathers,
    "select": selects,
    "arg_reduction": arg_reductions,
    "pad": pads,
    "scatter": scatters,
}


def compare(problem: Problem, stream: Stream, threads: int, cache: PrimitiveProvider) -> tuple[str, float, float]:
    """Return the implementation, and poolrt's and ONNX Runtime's seconds; raise AssertionError if results differ."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(problem.model(), options, providers=["CPUExecutionProvider"])
    executor = Executor(problem.graph(), stream=stream, cache=cache)
    given = problem.arrays()
    wanted: Any = session.run(None, given)[0]
    near = 1e-2 if problem.dtype == "float16" else 1e-3
    np.testing.assert_allclose(executor.run(**given)["y"], wanted, rtol=near, atol=near / 10, err_msg=str(problem))
    contestants: dict[str, Callable[[], object]] = {
        "poolrt": lambda: executor.run(**given),
        "onnxruntime": lambda: session.run(None, given),
    }

    def measured(run: Callable[[], object]) -> Callable[[], float]:
        repeat = 1 if SHORT else max(1, math.ceil(_LEAST_S / seconds(run, 3)))

        def once() -> float:
            if threads > 1 and not SHORT:
                time.sleep(_REST_S)
            run()
            return seconds(run, repeat)

        return once

    found = alternate({name: measured(run) for name, run in contestants.items()}, _ROUNDS)
    return ", ".join(_names(problem, stream)), found["poolrt"], found["onnxruntime"]


def _names(problem: Problem, stream: Stream) -> list[str]:
    """Return the implementations of a problem's primitives."""
    from poolrt.graph.lower import lower
    from poolrt.graph.passes import optimize

    lowered = lower(optimize(problem.graph().to_ir()), {"cpu": stream.target})
    return [pd.impl_name() for pd in lowered.primitives]


def main() -> None:
    """Print a table for each number of threads."""
    chosen = arguments(__doc__, tuple(FAMILIES))
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home, url=f"unix://{home}/none.sock") as store:
        cache, engine = PrimitiveProvider(256, store), Engine("cpu")
        for threads in (1, 2):
            with NativePool(threads) as pool:
                attr = StreamAttr("cpu")
                attr.set_threadpool(pool)
                stream = Stream(engine, attr)
                for name in chosen:
                    lines, ratios = [], []
                    for problem in FAMILIES[name]():
                        found, ours, theirs = compare(problem, stream, threads, cache)
                        ratios.append(theirs / ours)
                        lines.append(
                            f"{problem}: poolrt {1e6 * ours:.1f} us ({found}), "
                            f"ONNX Runtime {1e6 * theirs:.1f} us, ratio {theirs / ours:.2f}"
                        )
                    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                    lines.append(f"geometric mean: ratio {mean:.2f}")
                    record(f"Operations: {name}, {threads} thread{'s' * (threads > 1)}", lines)


if __name__ == "__main__":
    main()
