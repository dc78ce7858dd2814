"""Convolution: implementations, best first."""

from __future__ import annotations

from .convolution_blocked import NativeBlockedConvolution

CPU_IMPLEMENTATIONS = (NativeBlockedConvolution(),)
IMPLEMENTATIONS = (*CPU_IMPLEMENTATIONS,)
