"""Group normalisation on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import GroupNormalization
from ..reference.normalization import ReferenceNormalization
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceNormalization[GroupNormalization]("group_normalization")),)
