"""Normalizations and softmax."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .problem import Problem, normals


def softmaxes() -> Iterator[Problem]:
    """Yield the attention of BERT-base, the classes of ImageNet for one picture and for many, and an axis in the middle."""
    for dims, axis in (((12, 128, 128), -1), ((1, 1000), -1), ((4096, 1000), -1), ((1, 21, 128, 128), 1)):
        yield Problem(
            "softmax", "softmax", dims, lambda g, x, axis=axis: g.softmax(x, axis), "Softmax", (), {"axis": axis}
        )


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
            "group_normalization", f"group_normalization of {groups} groups", dims,
            lambda g, x, groups=groups, scale=scale, shift=shift: g.group_normalization(x, groups, scale, shift),
            node, (scale, shift), how,
        )  # fmt: skip


def root_mean_squares() -> Iterator[Problem]:
    """Yield normalizations by the root mean square, of small and large language models."""
    for rows in ((128, 768), (128, 2048), (16, 4096), (1024, 4096)):
        scale = normals(rows[-1])
        yield Problem(
            "rms_normalization", "rms_normalization", rows,
            lambda g, x, scale=scale: g.rms_normalization(x, scale), "RMSNormalization", (scale,),
            {"axis": -1, "epsilon": 1e-5},
        )  # fmt: skip


def batch_normalizations() -> Iterator[Problem]:
    """Yield batch normalizations with given statistics, of ResNet-50, and the normalization of AlexNet across channels."""
    for dims in ((1, 64, 112, 112), (8, 256, 14, 14)):
        mean, scale, shift = normals(3, dims[1])
        variance = np.abs(mean[::-1]) + np.float32(0.5)
        yield Problem(
            "batch_normalization", "batch_normalization", dims,
            lambda g, x, given=(mean, variance, scale, shift): g.batch_normalization(x, *given),
            "BatchNormalization", (scale, shift, mean, variance), {"epsilon": 1e-5},
        )  # fmt: skip
    for dims in ((1, 96, 54, 54), (1, 256, 26, 26)):
        how = {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}
        yield Problem("batch_normalization", "lrn", dims, lambda g, x: g.lrn(x, 5, 1e-4, 0.75, 1.0), "LRN", (), how)
