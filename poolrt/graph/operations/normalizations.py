"""Normalisations and softmax."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from poolrt.workers.desc.typed import to_float, to_integer

from ..ir import Attribute
from ..node_builder import NodeBuilder
from ..shapes import normalize_axis
from ..values import NodeOptions, Operand, Value
from .family import Family


class Normalizations(Family):
    """Batch, layer and group normalization, LRN, softmax. Statistics, scale and shift are float32 throughout."""

    def batch_normalization(
        self,
        src: Operand,
        mean: Operand | None = None,
        variance: Operand | None = None,
        scale: Operand | None = None,
        shift: Operand | None = None,
        *,
        epsilon: float = 1e-5,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Return (src - mean) / sqrt(variance + epsilon) * scale + shift for src (N, C, ...); the others are (C,).

        By default ``mean`` and ``variance`` are those of the batch, ``scale`` is 1 and ``shift`` 0.
        """
        with self._build("batch_normalization", **options) as node:
            value = node.operand("src", src)
            if mean is not None:
                channels = value.shape[1:2]
                scale = np.ones(channels, np.float32) if scale is None else scale
                shift = np.zeros(channels, np.float32) if shift is None else shift
            return _normalize(node, value, (mean, variance), (scale, shift), {"epsilon": to_float("epsilon", epsilon)})

    def layer_normalization(
        self,
        src: Operand,
        scale: Operand | None = None,
        shift: Operand | None = None,
        *,
        mean: Operand | None = None,
        variance: Operand | None = None,
        epsilon: float = 1e-5,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Normalise src (..., C) along its last dimension, then multiply by scale (C,) and add shift (C,).

        ``mean`` and ``variance`` (...) may be given instead of being computed.
        """
        with self._build("layer_normalization", **options) as node:
            value = node.operand("src", src)
            return _normalize(node, value, (mean, variance), (scale, shift), {"epsilon": to_float("epsilon", epsilon)})

    def rms_normalization(
        self,
        src: Operand,
        scale: Operand | None = None,
        *,
        epsilon: float = 1e-5,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Divide src (..., C) by the root of epsilon plus the mean square along its last dimension, then multiply by scale (C,).

        This is a layer normalization with the flag ``rms_norm``.
        """
        with self._build("layer_normalization", **options) as node:
            value = node.operand("src", src)
            attrs: dict[str, Attribute] = {"epsilon": to_float("epsilon", epsilon)}
            return _normalize(node, value, (None, None), (scale, None), attrs, ("rms_norm",))

    def group_normalization(
        self,
        src: Operand,
        groups: int,
        scale: Operand | None = None,
        shift: Operand | None = None,
        *,
        mean: Operand | None = None,
        variance: Operand | None = None,
        epsilon: float = 1e-5,
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Normalise src (N, C, ...) over groups of C / groups channels, then multiply by scale (C,) and add shift (C,).

        One group a channel is instance normalization. ``mean`` and ``variance`` (N, groups) may be given.
        """
        with self._build("group_normalization", **options) as node:
            value = node.operand("src", src)
            attrs: dict[str, Attribute] = {
                "groups": to_integer("groups", groups),
                "epsilon": to_float("epsilon", epsilon),
            }
            return _normalize(node, value, (mean, variance), (scale, shift), attrs)

    def lrn(
        self,
        src: Operand,
        local_size: int = 5,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
        algorithm: str = "across_channels",
        **options: Unpack[NodeOptions],
    ) -> Value:
        """Return src / (k + alpha / count * s) ** beta for src (N, C, ...).

        s is the sum of squares over the ``local_size`` channels around each, or with ``within_channel`` over as many
        elements along each spatial dimension; count is the number of elements in such a window.
        """
        with self._build("lrn", **options) as node:
            attrs: dict[str, Attribute] = {
                "local_size": to_integer("local_size", local_size),
                "alpha": to_float("alpha", alpha),
                "beta": to_float("beta", beta),
                "k": to_float("k", k),
                "algorithm": algorithm,
            }
            return node.add([node.operand("src", src)], **attrs)

    def softmax(
        self, src: Operand, axis: int = -1, algorithm: str = "accurate", **options: Unpack[NodeOptions]
    ) -> Value:
        """Normalise exponentials along an axis (negative: from the end); ``algorithm="log"`` gives their logarithm."""
        with self._build("softmax", **options) as node:
            value = node.operand("src", src)
            return node.add([value], axis=normalize_axis(axis, value.ndim), algorithm=algorithm)


def _normalize(
    node: NodeBuilder,
    src: Value,
    statistics: tuple[Operand | None, Operand | None],
    affine: tuple[Operand | None, Operand | None],
    attrs: dict[str, Attribute],
    flags: tuple[str, ...] = (),
) -> Value:
    mean, variance = statistics
    if (mean is None) != (variance is None):
        raise ValueError("variance: expect mean and variance, or neither")
    given = {"mean": mean, "variance": variance, "scale": affine[0], "shift": affine[1]}
    used = {"use_global_stats": mean, "use_scale": affine[0], "use_shift": affine[1]}
    operands = [node.operand(name, operand) for name, operand in given.items() if operand is not None]
    return node.add(
        [src, *operands], **attrs, flags=(*flags, *(name for name, operand in used.items() if operand is not None))
    )
