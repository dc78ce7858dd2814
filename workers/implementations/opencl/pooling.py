"""Pooling on OpenCL, in one to three spatial dimensions."""

from __future__ import annotations

from ...desc import Arg, Pooling, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec, Value
from ..program import Program
from .grid import LIGHT, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation
from .windows import Window


class OpenClPooling(OpenClImplementation[Pooling]):
    """One item a float of dst, or a vector if rows are long enough to fill it."""

    name = "opencl:window"

    def reject(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> str | None:
        if len(op.kernel) > 3:
            return "at most 3 spatial dimensions"
        return super().reject(op, attr, target)

    def describe(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> Program:
        local, window, width = group(target, LIGHT), Window.of(op, op.kernel), vector_width(target)
        row = op.dst.dims[-1]
        vectors = 4 * row >= 3 * width
        items = op.dst.elements // row * -(-row // width) if vectors else op.dst.elements
        params: dict[str, Value] = {
            "v": width, "maximum": op.algorithm == "max", "inside": op.algorithm == "avg_exclude_padding",
            "post_ops": (), "local": local,
        }  # fmt: skip
        kernel = KernelSpec.of("pooling_row", **params) if vectors else KernelSpec.of("pooling", **params)
        numbers = integers(
            op.dst.elements // row if vectors else items,
            *window.source, *window.output, *window.kernel, *window.stride, *window.step, *window.pad,
        )  # fmt: skip
        return Program((kernel,), (launch(0, items, local, memory(Arg.SRC), memory(Arg.DST), *numbers),))


IMPLEMENTATIONS = (OpenClPooling(),)
