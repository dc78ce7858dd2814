"""Deconvolution: implementations, best first."""

from __future__ import annotations

from ..reference.convolution import ReferenceDeconvolution

IMPLEMENTATIONS = (ReferenceDeconvolution(),)
