"""Reduction on OpenCL: implementations, best first."""

from __future__ import annotations

from ..reference.reduction import ReferenceReduction
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceReduction()),)
