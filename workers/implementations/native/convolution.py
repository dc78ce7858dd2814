"""Convolution: implementations, best first."""

from __future__ import annotations

from ..nested.convolution import NestedConvolution
from .convolution_blocked import NativeBlockedConvolution
from .convolution_depthwise import NativeDepthwiseConvolution
from .convolution_direct import NativeDirectConvolution
from .convolution_few import NativeFewChannelsConvolution
from .convolution_few_outputs import NativeFewOutputsConvolution
from .convolution_gathered import NativeGatheredConvolution
from .convolution_grouped import NativeGroupedConvolution
from .convolution_integer import NativeIntegerConvolution
from .convolution_integer_depthwise import NativeIntegerDepthwise
from .convolution_planes import NativePlanesConvolution
from .convolution_points import NativePointsConvolution
from .convolution_winograd import NativeIntegerWinograd

IMPLEMENTATIONS = (
    NativeFewChannelsConvolution(),
    NativePointsConvolution(),
    NativePlanesConvolution(),
    NativeFewOutputsConvolution(),
    NativeDepthwiseConvolution(),
    NativeBlockedConvolution(),
    NativeGroupedConvolution(),
    NativeGatheredConvolution(),
    NativeIntegerDepthwise("vnni"),
    NativeIntegerDepthwise(),
    NativeIntegerConvolution("amx"),
    NativeIntegerConvolution("vnni"),
    NativeIntegerWinograd(),
    NativeIntegerConvolution("pairs"),
    NestedConvolution("cpu"),
    NativeDirectConvolution(),
)
