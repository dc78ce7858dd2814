"""Deconvolution on OpenCL: implementations, best first."""

from __future__ import annotations

from ..reference.convolution import ReferenceDeconvolution
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceDeconvolution()),)
