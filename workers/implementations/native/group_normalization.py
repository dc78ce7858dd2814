"""Group normalisation: implementations, best first."""

from __future__ import annotations

from ...desc import GroupNormalization
from ..reference.normalization import ReferenceNormalization

IMPLEMENTATIONS = (ReferenceNormalization[GroupNormalization]("group_normalization"),)
