"""Layer normalisation: implementations, best first."""

from __future__ import annotations

from ...desc import LayerNormalization
from ..reference.normalization import ReferenceNormalization

IMPLEMENTATIONS = (ReferenceNormalization[LayerNormalization]("layer_normalization"),)
