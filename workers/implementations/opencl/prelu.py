"""Parametric relu on OpenCL: implementations, best first."""

from __future__ import annotations

from ..reference.prelu import ReferencePrelu
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferencePrelu()),)
