"""Batch normalisation with given statistics on OpenCL."""

from __future__ import annotations

from math import prod

from ...desc import Arg, BatchNormalization, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program
from .grid import LIGHT, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation
from .post_ops import chain_arguments, chain_parameter


class OpenClBatchNormalization(OpenClImplementation[BatchNormalization]):
    """One item a vector of one channel."""

    name = "opencl:vector"
    takes_post_ops = True

    def describe(self, op: BatchNormalization, attr: PrimitiveAttr, target: Target) -> Program:
        width, local = vector_width(target), group(target, LIGHT)
        batch, channels, *spatial = op.dst.dims
        rows, inner = batch * channels, prod(spatial)
        kernel = KernelSpec.of("batch_normalization", v=width, post_ops=chain_parameter(attr), local=local)
        memories = (Arg.SRC, Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT, Arg.DST)
        run = launch(
            0,
            rows * -(-inner // width),
            local,
            *map(memory, memories),
            *integers(rows, channels, inner),
            ("f", float(op.epsilon)),
            *chain_arguments(attr),
        )
        return Program((kernel,), (run,))


IMPLEMENTATIONS = (OpenClBatchNormalization(),)
