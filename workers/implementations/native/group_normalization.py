"""Group normalization, instance normalization included: the channels of a group follow one another in memory."""

from __future__ import annotations

import math

from ...desc import GroupNormalization, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import NativeImplementation
from .normalization_rows import normalize, refuse_rows


class NativeGroupNormalization(NativeImplementation[GroupNormalization]):
    """Row-major src and dst; vectors along the positions of a channel."""

    name = "native:rows"
    stays_inside = True

    def reject(self, op: GroupNormalization, attr: PrimitiveAttr, target: Target) -> str | None:
        return refuse_rows(self.complete(op, attr, target), attr)

    def program(self, op: GroupNormalization, attr: PrimitiveAttr, target: Target) -> Program:
        batch, channels, *spatial = op.dst.dims
        sizes = (op.groups, channels // op.groups, math.prod(spatial))
        return normalize(op, attr, "group", batch * op.groups, sizes)


IMPLEMENTATIONS = (NativeGroupNormalization(),)
