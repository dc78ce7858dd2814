"""Windows over pictures: deconvolution, pooling, resampling."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .problem import Problem, normals


def deconvolutions() -> Iterator[Problem]:
    """Yield what U-Net, generators and segmentation networks enlarge with, two of them depthwise."""
    for dims, outputs, kernel, stride, padding, groups in (
        ((1, 128, 56, 56), 64, 2, 2, 0, 1), ((1, 256, 16, 16), 128, 4, 2, 1, 1), ((1, 64, 32, 32), 64, 3, 1, 1, 1),
        ((1, 64, 56, 56), 64, 4, 2, 1, 64), ((1, 100, 1, 1), 512, 4, 1, 0, 1), ((1, 21, 28, 28), 21, 16, 8, 0, 1),
        ((1, 21, 12, 12), 21, 64, 32, 0, 1), ((1, 21, 14, 14), 21, 32, 16, 8, 1), ((1, 21, 8, 8), 21, 64, 32, 16, 21),
        ((1, 32, 28, 28), 32, 10, 5, 2, 1), ((1, 512, 16, 16), 256, 4, 2, 1, 1), ((1, 128, 32, 32), 64, 3, 2, 1, 1),
    ):  # fmt: skip
        inner, outer = dims[1] // groups, outputs // groups
        weights = normals(groups, outer, inner, kernel, kernel)
        theirs = weights.transpose(0, 2, 1, 3, 4).reshape(dims[1], outer, kernel, kernel)
        own, bias = weights.reshape(outputs, inner, kernel, kernel), normals(outputs)
        yield Problem(
            "deconvolution", f"deconvolution {kernel}x{kernel}/{stride} to {outputs}{' depthwise' * (groups > 1)}", dims,
            lambda g, x, own=own, bias=bias, stride=stride, padding=padding, groups=groups: g.deconvolution(
                x, own, bias, strides=stride, padding=padding, groups=groups
            ),
            "ConvTranspose", (np.ascontiguousarray(theirs), bias),
            {"strides": [stride] * 2, "pads": [padding] * 4, "group": groups},
        )  # fmt: skip


def poolings() -> Iterator[Problem]:
    """Yield average and maximum over windows of ResNet, Inception, MobileNet and YOLO, and over whole images."""
    for dims, kernel, stride, padding in (
        ((1, 64, 112, 112), 3, 2, 1),
        ((1, 192, 28, 28), 3, 1, 1),
        ((1, 128, 56, 56), 2, 2, 0),
        ((1, 256, 20, 20), 5, 1, 2),
        ((1, 256, 20, 20), 13, 1, 6),
    ):
        how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
        for name, node in (("avg_exclude_padding", "AveragePool"), ("max", "MaxPool")):
            yield Problem(
                "pooling", f"pooling {name} {kernel}x{kernel}/{stride}", dims,
                lambda g, x, name=name, kernel=kernel, stride=stride, padding=padding: g.pooling(
                    x, name, kernel, strides=stride, padding=padding
                ),
                node, (), how,
            )  # fmt: skip
    for dims in ((1, 2048, 7, 7), (1, 512, 13, 13)):
        for name, node in (("avg_exclude_padding", "GlobalAveragePool"), ("max", "GlobalMaxPool")):
            yield Problem(
                "pooling", f"pooling global {name}", dims, lambda g, x, name=name: g.pooling(x, name, x.shape[2:]), node
            )


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


def cubic_resamplings() -> Iterator[Problem]:
    """Yield a picture made larger and smaller by cubic convolution."""
    for dims, factor in (
        ((1, 3, 256, 256), 2.0),
        ((1, 3, 512, 512), 0.5),
        ((1, 64, 56, 56), 2.0),
        ((1, 256, 28, 28), 0.5),
    ):
        how = {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"}
        yield Problem(
            "cubic", f"cubic by {factor:g}", dims, lambda g, x, factor=factor: g.resampling(x, "cubic", factors=factor),
            "Resize", (None, np.array([1.0, 1.0, factor, factor], np.float32)), how,
        )  # fmt: skip
