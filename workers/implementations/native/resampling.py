"""Resampling: the reference implementation."""

from __future__ import annotations

from ..reference.resampling import ReferenceResampling

IMPLEMENTATIONS = (ReferenceResampling(),)
