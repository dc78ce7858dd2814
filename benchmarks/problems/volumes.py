"""Operations on volumes, of video and of scans: windows in three dimensions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from poolrt import Graph
from poolrt.graph.values import Value

from .problem import Problem, normals


def volumes() -> Iterator[Problem]:
    """Yield convolutions of a video network, apart in space and in time too, depthwise and in groups; then of a 3-D U-Net."""
    for dims, outputs, kernel, stride, groups in (
        ((1, 64, 8, 28, 28), 64, (3, 3, 3), (1, 1, 1), 1), ((1, 64, 16, 28, 28), 64, (3, 3, 3), (1, 1, 1), 64),
        ((1, 256, 4, 7, 7), 256, (3, 3, 3), (1, 1, 1), 1), ((1, 32, 16, 28, 28), 64, (3, 3, 3), (2, 2, 2), 1),
        ((1, 3, 16, 56, 56), 64, (3, 7, 7), (1, 2, 2), 1), ((1, 64, 16, 28, 28), 128, (1, 1, 1), (1, 1, 1), 1),
        ((1, 64, 8, 28, 28), 64, (1, 3, 3), (1, 1, 1), 1), ((1, 64, 8, 28, 28), 64, (3, 1, 1), (1, 1, 1), 1),
        ((1, 32, 16, 56, 56), 32, (3, 3, 3), (2, 2, 2), 32), ((1, 108, 8, 20, 20), 108, (5, 1, 1), (1, 1, 1), 108),
        ((1, 96, 4, 7, 7), 96, (3, 3, 3), (1, 1, 1), 96), ((1, 128, 8, 14, 14), 128, (3, 3, 3), (1, 1, 1), 32),
    ):  # fmt: skip
        inner = dims[1] // groups
        weights = normals(outputs, inner, *kernel) / np.float32((inner * np.prod(kernel)) ** 0.5)
        bias, padding = normals(outputs), tuple(size // 2 for size in kernel)
        kind = "" if groups == 1 else " depthwise" if inner == 1 else f" in {groups} groups"

        def build(
            g: Graph, x: Value, weights=weights, bias=bias, stride=stride, padding=padding, groups=groups
        ) -> Value:
            return g.convolution(x, weights, bias, strides=stride, padding=padding, groups=groups)

        how = {"strides": stride, "pads": padding * 2, "group": groups, "kernel_shape": kernel}
        size, step = ("x".join(map(str, numbers)) for numbers in (kernel, stride))
        title = f"convolution {size}/{step} to {outputs}{kind}"
        yield Problem("volumes", title, dims, build, "Conv", (weights, bias), how)
    own, bias = normals(32, 64, 2, 2, 2), normals(32)
    yield Problem(
        "volumes", "deconvolution 2x2x2/2 to 32", (1, 64, 8, 14, 14), lambda g, x: g.deconvolution(x, own, bias, strides=2),
        "ConvTranspose", (np.ascontiguousarray(own.swapaxes(0, 1)), bias), {"strides": [2, 2, 2]},
    )  # fmt: skip
    for name, node in (("max", "MaxPool"), ("avg_exclude_padding", "AveragePool")):
        for dims, size, step, pad in (((1, 64, 16, 28, 28), 2, 2, 0), ((1, 256, 8, 7, 7), 3, 1, 1)):
            yield Problem(
                "volumes", f"pooling {name} {size}x{size}x{size}/{step}", dims,
                lambda g, x, how=(name, size, step, pad): g.pooling(x, *how[:2], strides=how[2], padding=how[3]), node, (),
                {"kernel_shape": [size] * 3, "strides": [step] * 3, "pads": [pad] * 6},
            )  # fmt: skip
