"""Shuffle on OpenCL: implementations, best first."""

from __future__ import annotations

from ..reference.shuffle import ReferenceShuffle
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceShuffle()),)
