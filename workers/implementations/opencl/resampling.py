"""Resampling on OpenCL: implementations, best first."""

from __future__ import annotations

from ..reference.resampling import ReferenceResampling
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceResampling()),)
