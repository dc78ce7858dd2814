"""Reduction: the reference implementation."""

from __future__ import annotations

from .reference.reduction import ReferenceReduction

IMPLEMENTATIONS = (ReferenceReduction(),)
