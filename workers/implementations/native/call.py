"""Calls of native kernels of a user: the code is given, nothing is compiled."""

from __future__ import annotations

from ...desc import PrimitiveAttr
from ...desc.args import multiple_dst, multiple_src
from ...desc.operations.call import Call
from ...engines.target import ISA_LEVELS, Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program


class NativeCall:
    """One launch over the call's work; its tensors are row-major."""

    name = "user:native"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Call, attr: PrimitiveAttr, target: Target) -> str | None:
        if not op.isa:
            return f"kernel {op.function} is OpenCL C: give the node an OpenCL engine"
        if op.isa not in ISA_LEVELS:
            return f"kernel {op.function} is for the unknown ISA level {op.isa!r:.20}"
        if not target.isa_at_least(op.isa):
            return f"kernel {op.function} is for ISA level {op.isa}, the engine has {target.isa}"
        return refuse_call(op, attr)

    def complete(self, op: Call, attr: PrimitiveAttr, target: Target) -> Call:
        return op

    def program(self, op: Call, attr: PrimitiveAttr, target: Target) -> Program:
        spec = KernelSpec.of("given", code=op.code)
        return Program((spec,), (Launch(0, tuple(map(_place, op.numbers())), op.size(op.work)),))


def refuse_call(op: Call, attr: PrimitiveAttr) -> str | None:
    """Return why no implementation computes a call, or None."""
    if attr != PrimitiveAttr():
        return "a call takes no attributes"
    if any(not desc.is_plain for desc in (*op.srcs, *op.dsts)):
        return "a call takes row-major tensors only"
    return None


def _place(argument: tuple[str, int | float]) -> LaunchArgument:
    kind, value = argument
    if kind in ("i", "f"):
        return kind, value
    return "m", ((multiple_src if kind == "src" else multiple_dst)(int(value)), 0)


IMPLEMENTATIONS = (NativeCall(),)
