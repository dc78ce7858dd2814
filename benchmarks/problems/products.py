"""Matrix products, convolutions and recurrent networks: operations that sum products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from poolrt import Graph
from poolrt.graph.values import Value

from .problem import Problem, normals


def matmuls() -> Iterator[Problem]:
    """Yield the dense layers of BERT-base, ViT-B/16 and a classifier, and the products of attention."""
    for m, k, n in ((128, 768, 3072), (128, 3072, 768), (197, 768, 768), (1, 768, 3072)):
        weights = normals(k, n) / np.float32(k**0.5)
        title = f"matmul with {k}x{n}"
        yield Problem("matmul", title, (m, k), lambda g, x, weights=weights: g.matmul(x, weights), "MatMul", (weights,))
    for dims, second in (
        ((12, 128, 64), (12, 64, 128)),
        ((12, 128, 128), (12, 128, 64)),
        ((12, 197, 64), (12, 64, 197)),
        ((12, 1, 64), (12, 64, 1024)),
    ):
        title = f"batched matmul with {second[1]}x{second[2]}"
        yield Problem("matmul", title, dims, lambda g, x, y: g.matmul(x, y), "MatMul", inputs=2, second=second)
    for dims, outputs in (((1, 2048), 1000), ((8, 9216), 4096), ((128, 768), 768)):
        weights, bias = normals(outputs, dims[1]) / np.float32(dims[1] ** 0.5), normals(outputs)
        yield Problem(
            "matmul", f"inner_product to {outputs}", dims,
            lambda g, x, weights=weights, bias=bias: g.inner_product(x, weights, bias),
            "Gemm", (weights, bias), {"transB": 1},
        )  # fmt: skip


def convolutions() -> Iterator[Problem]:
    """Yield convolutions of ResNet-50, depthwise ones of MobileNets, one of ShuffleNet in groups, unusual ones of one input."""
    for dims, outputs, kernel, stride, groups in (
        ((1, 64, 56, 56), 64, 3, 1, 1), ((1, 256, 14, 14), 256, 3, 1, 1), ((1, 512, 7, 7), 512, 3, 1, 1),
        ((1, 256, 56, 56), 64, 1, 1, 1), ((1, 256, 14, 14), 1024, 1, 1, 1), ((1, 512, 28, 28), 1024, 1, 2, 1),
        ((1, 3, 224, 224), 64, 7, 2, 1), ((1, 144, 56, 56), 144, 3, 1, 144), ((1, 96, 112, 112), 96, 3, 2, 96),
        ((1, 576, 14, 14), 576, 3, 1, 576), ((1, 672, 14, 14), 672, 5, 2, 672), ((1, 272, 14, 14), 272, 1, 1, 4),
        ((1, 32, 112, 112), 64, 3, 1, 32), ((1, 64, 56, 56), 64, 31, 1, 64), ((1, 256, 14, 14), 256, 27, 1, 256),
        ((1, 1, 256, 256), 1, 5, 1, 1), ((1, 1, 256, 256), 8, 3, 1, 1),
    ):  # fmt: skip
        inner = dims[1] // groups
        weights = normals(outputs, inner, kernel, kernel) / np.float32((inner * kernel**2) ** 0.5)
        bias, padding = normals(outputs), kernel // 2
        kind = "" if groups == 1 else " depthwise" if inner == 1 else f" in {groups} groups"

        def build(
            g: Graph, x: Value, weights=weights, bias=bias, stride=stride, padding=padding, groups=groups
        ) -> Value:
            return g.convolution(x, weights, bias, strides=stride, padding=padding, groups=groups)

        how = {"strides": [stride] * 2, "pads": [padding] * 4, "group": groups, "kernel_shape": [kernel] * 2}
        yield Problem(
            "convolution",
            f"convolution {kernel}x{kernel}/{stride} to {outputs}{kind}",
            dims,
            build,
            "Conv",
            (weights, bias),
            how,
        )


def recurrences() -> Iterator[Problem]:
    """Yield a layer of a language model, of a tagger and of a filter of signals, as LSTM and as GRU."""
    for dims, hidden in (((35, 1, 650), 650), ((50, 8, 128), 256), ((100, 1, 40), 32)):
        for name, node, order in (("lstm", "LSTM", (0, 3, 1, 2)), ("gru", "GRU", (0, 1, 2))):
            wide, deep = (
                sign * normals(1, 1, size, len(order), hidden) / np.float32(hidden**0.5)
                for sign, size in ((1, dims[2]), (-1, hidden))
            )
            theirs = (_stacked(wide, order), _stacked(deep, order))

            def build(g: Graph, x: Value, name=name, wide=wide, deep=deep, hidden=hidden) -> Value:
                found = getattr(g, name)(x, wide, deep)[0]
                return g.reshape(found, (x.shape[0], 1, x.shape[1], hidden))

            yield Problem("recurrence", f"{name} of {hidden}", dims, build, node, theirs, {"hidden_size": hidden})


def _stacked(weights: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Return weights (1, 1, inputs, gates, hidden) as ONNX stores them: (1, gates hidden, inputs), in its order of gates."""
    inputs, gates, hidden = weights.shape[2:]
    chosen = weights[0, 0][:, list(order)].transpose(1, 2, 0)
    return np.ascontiguousarray(chosen.reshape(1, gates * hidden, inputs))
