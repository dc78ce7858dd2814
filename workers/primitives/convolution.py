"""Convolution: implementations, best first."""

from __future__ import annotations

from .convolution_blocked import NativeBlockedConvolution
from .opencl.convolution import OPENCL_IMPLEMENTATIONS

CPU_IMPLEMENTATIONS = (NativeBlockedConvolution(),)
IMPLEMENTATIONS = (*CPU_IMPLEMENTATIONS, *OPENCL_IMPLEMENTATIONS)
