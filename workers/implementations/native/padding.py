"""Padding: the reference implementation."""

from __future__ import annotations

from ..reference.padding import ReferencePadding

IMPLEMENTATIONS = (ReferencePadding(),)
