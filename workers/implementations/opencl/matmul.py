"""Matmul on OpenCL: items of some rows by one vector of columns, weights in place."""

from __future__ import annotations

from math import prod

from ...desc import Arg, Matmul, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program
from .grid import HEAVY, REGISTER_ROWS, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation
from .layouts import contiguous_strides, merged
from .post_ops import chain_arguments, chain_parameter


class OpenClMatmul(OpenClImplementation[Matmul]):
    """Row-major operands, up to three batch dimensions after merging."""

    name = "opencl:registers"
    takes_post_ops = True

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        if len(_batch(op)[0]) > 3:
            return "at most 3 batch dimensions"
        if not op.bias_is_row:
            return f"bias {op.bias}; only one value a column"
        return super().reject(op, attr, target)

    def describe(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        width, local = vector_width(target), group(target, HEAVY)
        m, n, k = op.dst.dims[-2], op.dst.dims[-1], op.src.dims[-1]
        rows = min(REGISTER_ROWS, 1 << (m - 1).bit_length())
        sizes, (src, weights) = _batch(op)
        fill = 3 - len(sizes)
        sizes, src, weights = ([pad] * fill + v for pad, v in ((1, sizes), (0, src), (0, weights)))
        kernel = KernelSpec.of(
            "matmul", v=width, rows=rows, bias=op.bias is not None, post_ops=chain_parameter(attr), local=local
        )
        items = prod(sizes) * -(-m // rows) * -(-n // width)
        run = launch(
            0,
            items,
            local,
            memory(Arg.SRC),
            memory(Arg.WEIGHTS),
            memory(Arg.DST),
            *integers(items, m, n, k, *sizes[1:], *src, *weights),
            *([memory(Arg.BIAS)] if op.bias else []),
            *chain_arguments(attr),
        )
        return Program((kernel,), (run,))


def _batch(op: Matmul) -> tuple[list[int], list[list[int]]]:
    """Return the merged batch sizes and the strides of src and weights over them."""
    strides = [
        [0 if size == 1 else step for size, step in zip(d.dims[:-2], contiguous_strides(d.dims), strict=False)]
        for d in (op.src, op.weights)
    ]
    return merged(op.dst.dims[:-2], *strides)


IMPLEMENTATIONS = (OpenClMatmul(),)
