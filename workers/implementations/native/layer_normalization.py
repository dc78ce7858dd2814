"""Layer normalization: rows of any length, statistics computed, written or given."""

from __future__ import annotations

import math

from ...desc import LayerNormalization, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import NativeImplementation
from .normalization_rows import normalize, refuse_rows


class NativeLayerNormalization(NativeImplementation[LayerNormalization]):
    """Row-major src and dst; vectors along a row."""

    name = "native:rows"

    def reject(self, op: LayerNormalization, attr: PrimitiveAttr, target: Target) -> str | None:
        return refuse_rows(self.complete(op, attr, target), attr)

    def program(self, op: LayerNormalization, attr: PrimitiveAttr, target: Target) -> Program:
        return normalize(op, attr, "layer", math.prod(op.dst.dims[:-1]), (op.dst.dims[-1],))


IMPLEMENTATIONS = (NativeLayerNormalization(),)
