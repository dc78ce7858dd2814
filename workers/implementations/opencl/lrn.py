"""Local response normalisation across channels on OpenCL."""

from __future__ import annotations

from math import prod

from ...desc import Arg, Lrn, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program
from .grid import LIGHT, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation


class OpenClLrn(OpenClImplementation[Lrn]):
    """One item a vector of one channel; the window of channels reaches (size - 1) // 2 back and size // 2 ahead."""

    name = "opencl:vector"

    def describe(self, op: Lrn, attr: PrimitiveAttr, target: Target) -> Program:
        width, local = vector_width(target), group(target, LIGHT)
        batch, channels, *spatial = op.dst.dims
        rows, inner = batch * channels, prod(spatial)
        kernel = KernelSpec.of("lrn", v=width, post_ops=(), local=local)
        run = launch(
            0,
            rows * -(-inner // width),
            local,
            memory(Arg.SRC),
            memory(Arg.DST),
            *integers(rows, channels, inner, (op.local_size - 1) // 2, op.local_size // 2),
            ("f", op.alpha / op.local_size),
            ("f", float(op.beta)),
            ("f", float(op.k)),
        )
        return Program((kernel,), (run,))


IMPLEMENTATIONS = (OpenClLrn(),)
