"""Convolution on OpenCL: every tap at a fixed distance, positions numbered through whole planes.

If strides or padding prevent that, the source is first copied into the scratchpad, with its padding and split
into stride phases; a dense unpadded convolution, a pointwise one above all, reads its source as it is.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable
from math import prod

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..nested.convolution import NestedConvolution
from ..program import Launch, LaunchArgument, Program
from .grid import HEAVY, LIGHT, REGISTER_ROWS, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation
from .post_ops import chain_arguments, chain_parameter
from .windows import Triple, Window


class OpenClConvolution(OpenClImplementation[Convolution]):
    """Any groups, strides, dilations and paddings, in one to three spatial dimensions."""

    name = "opencl:planes"
    takes_post_ops = True

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if len(op.strides) > 3:
            return "at most 3 spatial dimensions"
        return super().reject(op, attr, target)

    def describe(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        width = vector_width(target)
        window = Window.of(op, op.weights.dims[2:])
        grid = Planes.of(window)
        batch, channels = op.src.dims[:2]
        ic, oc = channels // op.groups, op.dst.dims[1] // op.groups
        rows = min(REGISTER_ROWS, 1 << (oc - 1).bit_length())
        direct = grid.is_source(window) and grid.length >= width
        kernels, launches = [_main_kernel(op, attr, rows, target)], []
        source: LaunchArgument = memory(Arg.SRC)
        scratchpad = 0
        if not direct:
            source = ("s", 0)
            # A vector may read beyond the last position that counts.
            scratchpad = (batch * channels * grid.plane + width) * 4
            kernels.append(KernelSpec.of("pad", v=width, post_ops=(), local=group(target, LIGHT)))
            launches.append(_pad(1, batch * channels, window, grid, target))
        items = batch * op.groups * -(-oc // rows) * -(-grid.length // width)
        launches.append(
            launch(
                0,
                items,
                group(target, HEAVY),
                source,
                memory(Arg.WEIGHTS),
                memory(Arg.DST),
                ("t", 0),
                *integers(items, ic, oc, op.groups, window.taps, grid.plane),
                *integers(grid.length, grid.length - width if direct else grid.length),
                *integers(grid.size[2], grid.size[1], window.output[2], window.output[1], prod(window.output)),
                *([memory(Arg.BIAS)] if op.bias else []),
                *chain_arguments(attr),
            )
        )
        return Program(tuple(kernels), tuple(launches), array("i", grid.distances(window)).tobytes(), scratchpad)


@dataclass(frozen=True, slots=True)
class Planes:
    """The layout of one channel for the main kernel: phases and sizes of (depth, height, width)."""

    phases: Triple
    size: Triple
    length: int

    @classmethod
    def of(cls, window: Window) -> Planes:
        """Return the layout in which every tap of a window is at a fixed distance."""
        phases = _triple(1 if k == 1 else s for k, s in zip(window.kernel, window.stride, strict=True))
        size = _triple(
            out + (k - 1) * step // stride
            for out, k, step, stride in zip(window.output, window.kernel, window.step, window.stride, strict=True)
        )
        last = [out - 1 for out in window.output]
        return cls(phases, size, (last[0] * size[1] + last[1]) * size[2] + last[2] + 1)

    @property
    def plane(self) -> int:
        """Floats of one channel."""
        return prod(self.phases) * prod(self.size)

    def is_source(self, window: Window) -> bool:
        """Return whether the source itself has this layout."""
        return window.stride == (1, 1, 1) and window.pad == (0, 0, 0) and self.size == window.source

    def distances(self, window: Window) -> list[int]:
        """Return for each tap, in the order of the weights, its distance from a position."""
        found = []
        for tap in itertools.product(*map(range, window.kernel)):
            phase = shift = 0
            for at, step, stride, phases, size in zip(
                tap, window.step, window.stride, self.phases, self.size, strict=True
            ):
                phase = phase * phases + at * step % stride
                shift = shift * size + at * step // stride
            found.append(phase * prod(self.size) + shift)
        return found


def _main_kernel(op: Convolution, attr: PrimitiveAttr, rows: int, target: Target) -> KernelSpec:
    return KernelSpec.of(
        "convolution",
        v=vector_width(target),
        rows=rows,
        pointwise=prod(op.weights.dims[2:]) == 1,
        bias=op.bias is not None,
        post_ops=chain_parameter(attr),
        local=group(target, HEAVY),
    )


def _pad(kernel: int, planes: int, window: Window, grid: Planes, target: Target) -> Launch:
    rows = planes * prod(grid.phases) * grid.size[0] * grid.size[1]
    items = rows * -(-grid.size[2] // vector_width(target))
    numbers = integers(rows, *window.source, *grid.phases, *grid.size, *window.stride, *window.pad)
    return launch(kernel, items, group(target, LIGHT), memory(Arg.SRC), ("s", 0), *numbers)


def _triple(values: Iterable[int]) -> Triple:
    a, b, c = values
    return a, b, c


IMPLEMENTATIONS = (OpenClConvolution(), NestedConvolution("opencl"))
