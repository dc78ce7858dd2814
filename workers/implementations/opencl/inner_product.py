"""Inner product on OpenCL: both operands run along the input channels, sums are vectors along them."""

from __future__ import annotations

from typing import Final

from ...desc import Arg, InnerProduct, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..nested.inner_product import NestedInnerProduct
from ..program import Program
from .grid import HEAVY, group, integers, launch, memory, vector_width
from .implementation import OpenClImplementation
from .post_ops import chain_arguments, chain_parameter

#: Rows of weights an item; a vector has at least as many lanes.
_COLUMNS: Final = 4


class OpenClInnerProduct(OpenClImplementation[InnerProduct]):
    """One row of src an item for a batch of one, else four."""

    name = "opencl:dot"
    takes_post_ops = True

    def describe(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> Program:
        local, (n, ic), oc = group(target, HEAVY), op.src.dims, op.dst.dims[1]
        rows = 1 if n == 1 else 4
        kernel = KernelSpec.of(
            "inner_product",
            v=vector_width(target),
            rows=rows,
            columns=_COLUMNS,
            bias=op.bias is not None,
            post_ops=chain_parameter(attr),
            local=local,
        )
        items = -(-n // rows) * -(-oc // _COLUMNS)
        run = launch(
            0,
            items,
            local,
            memory(Arg.SRC),
            memory(Arg.WEIGHTS),
            memory(Arg.DST),
            *integers(items, n, ic, oc),
            *([memory(Arg.BIAS)] if op.bias else []),
            *chain_arguments(attr),
        )
        return Program((kernel,), (run,))


IMPLEMENTATIONS = (OpenClInnerProduct(), NestedInnerProduct("opencl"))
