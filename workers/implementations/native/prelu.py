"""Prelu: the reference implementation."""

from __future__ import annotations

from ..reference.prelu import ReferencePrelu

IMPLEMENTATIONS = (ReferencePrelu(),)
