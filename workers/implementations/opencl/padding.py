"""Padding on OpenCL: the reference implementation."""

from __future__ import annotations

from ..reference.padding import ReferencePadding
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferencePadding()),)
