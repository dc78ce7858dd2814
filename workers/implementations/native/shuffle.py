"""Shuffle: the reference implementation."""

from __future__ import annotations

from ..reference.shuffle import ReferenceShuffle

IMPLEMENTATIONS = (ReferenceShuffle(),)
