"""Layer normalisation on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import LayerNormalization
from ..reference.normalization import ReferenceNormalization
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceNormalization[LayerNormalization]("layer_normalization")),)
