"""The call of launches on arrays: one kernel, which is never launched; `execution/array_call.py` calls it."""

from __future__ import annotations

from ...desc import PrimitiveAttr
from ...desc.operations.array_call import ArrayCall
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Program


class NativeArrayCall:
    """Reads arrays as NumPy's binary interface fixes them."""

    name = "native:arrays"
    engine_kind = "cpu"
    general = True

    def reject(self, op: ArrayCall, attr: PrimitiveAttr, target: Target) -> str | None:
        return None if attr == PrimitiveAttr() else "it takes no attributes"

    def complete(self, op: ArrayCall, attr: PrimitiveAttr, target: Target) -> ArrayCall:
        return op

    def program(self, op: ArrayCall, attr: PrimitiveAttr, target: Target) -> Program:
        return Program((KernelSpec.of("array_call"),), ())


IMPLEMENTATIONS = (NativeArrayCall(),)
