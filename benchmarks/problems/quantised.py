"""Tensors of 8-bit integers with a scale and a zero point: quantised, restored, combined and mapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from poolrt import Graph
from poolrt.graph.values import Value

from .problem import Problem

#: A result is rounded to another of 255 steps if it is nearly half-way between two.
_STEP: Final = 1.1 / 127
_SCALE: Final = np.float32(0.02)
_POINT: Final = np.uint8(128)
_OF_RESULT: Final = np.float32(0.05)
_MICROSOFT: Final = "com.microsoft"


def quantised() -> Iterator[Problem]:
    """Yield activations of BERT-base and of ResNet-50 in 8 bits."""
    for dims in ((128, 768), (1, 64, 56, 56)):
        yield Problem(
            "quantised", "quantize", dims, _quantize, "QuantizeLinear", (_SCALE, _POINT), near=_STEP,
        )  # fmt: skip
        yield Problem("quantised", "dequantize", dims, _restore, "DequantizeLinear", (_SCALE, _POINT), dtype="uint8")
        for name, node in (("add", "QLinearAdd"), ("mul", "QLinearMul")):
            yield Problem(
                "quantised", f"quantised {name}", dims,
                lambda g, x, y, name=name: _store(g, g.binary(_restore(g, x), _restore(g, y), name)),
                node, (_SCALE, _POINT, _SCALE, _POINT, _OF_RESULT, _POINT), inputs=2, dtype="uint8",
                order=(0, 2, 3, 1, 4, 5, 6, 7), near=_STEP, domain=_MICROSOFT,
            )  # fmt: skip
        yield Problem(
            "quantised", "quantised sigmoid", dims, lambda g, x: _store(g, g.eltwise(_restore(g, x), "logistic")),
            "QLinearSigmoid", (_SCALE, _POINT, _OF_RESULT, _POINT), dtype="uint8", near=_STEP, domain=_MICROSOFT,
        )  # fmt: skip


def _quantize(g: Graph, x: Value) -> Value:
    whole = g.eltwise(g.binary(x, np.full((1,) * x.ndim, _SCALE), "div"), "round")
    return g.reorder(g.binary(whole, np.full((1,) * x.ndim, _POINT, np.float32), "add"), dtype="uint8")


def _restore(g: Graph, x: Value) -> Value:
    return g.reorder(x, dtype="float32", scales={"src": np.asarray(_SCALE)}, zero_points={"src": np.int32(_POINT)})


def _store(g: Graph, x: Value) -> Value:
    return g.reorder(x, dtype="uint8", scales={"dst": np.asarray(_OF_RESULT)}, zero_points={"dst": np.int32(_POINT)})
