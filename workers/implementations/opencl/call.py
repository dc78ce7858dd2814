"""Calls of OpenCL kernels of a user: a kernel of ours calls the user's with places in buffers and with literal numbers."""

from __future__ import annotations

import math

from ...desc import PrimitiveAttr
from ...desc.args import multiple_dst, multiple_src
from ...desc.operations.call import Call
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..native.call import refuse_call
from ..program import Launch, Program


class OpenClCall:
    """One launch over the call's ND-range; its tensors are row-major."""

    name = "user:opencl"
    engine_kind = "opencl"
    general = True

    def reject(self, op: Call, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.isa:
            return f"kernel {op.function} is native code: give the node the engine cpu"
        return refuse_call(op, attr)

    def complete(self, op: Call, attr: PrimitiveAttr, target: Target) -> Call:
        return op

    def program(self, op: Call, attr: PrimitiveAttr, target: Target) -> Program:
        memories = op.memories()
        places: list[int] = []
        parameters, passed = [], []
        for kind, value in op.numbers():
            if kind in ("i", "f"):
                passed.append(_literal(value))
                continue
            arg = (multiple_src if kind == "src" else multiple_dst)(int(value))
            name = f"poolrt_{len(places)}"
            parameters.append(f"__global char *{name}, long {name}_offset")
            passed.append(f"(__global void *)({name} + {name}_offset)")
            places.append(arg)
        sizes = tuple(map(op.size, op.global_size))
        spec = KernelSpec.of(
            "poolrt_call",
            code=op.code,
            options=op.options,
            function=op.function,
            parameters=", ".join(parameters),
            arguments=", ".join(passed),
            nbytes=tuple(memories[arg].nbytes for arg in places),
            global_size=sizes,
            local=op.local_size,
        )
        launch = Launch(0, tuple(("m", (arg, 0)) for arg in places), 1, sizes, op.local_size)
        return Program((spec,), (launch,))


def _literal(value: int | float) -> str:
    """Return a number as OpenCL C text, which the compiler converts to the type of the parameter."""
    if isinstance(value, int):
        return f"({value + 1}L - 1)" if value < 0 else f"{value}L"
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return value.hex()


IMPLEMENTATIONS = (OpenClCall(),)
