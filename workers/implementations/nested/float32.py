"""Operations on f16 and bf16 by the implementations for f32: operands are converted, and so are the results.

A result is rounded twice, to float32 and then to its data type. Limitation: operands are converted in each execution, weights
too, and their copies in f32 are in the scratchpad.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from poolrt.cachestore.deferred_dataclass import fields, replace

from ...desc import MemoryDesc, OpDesc, PrimitiveAttr
from ...engines.target import EXTENSIONS, Target
from ..primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc
from ..program import LaunchArgument, Program
from .builder import NestedBuilder, memory, nested_attributes

_NARROW: Final = ("f16", "bf16")


class NestedFloat32:
    """Any operation that fast implementations compute in f32; with ``gradients`` only its gradients."""

    name = "nested:f32"
    general = True
    nests = True
    extensions = tuple(EXTENSIONS)

    def __init__(self, engine_kind: str, gradients: bool = False) -> None:
        self.engine_kind = engine_kind
        self._gradients = gradients

    def reject(self, op: OpDesc, attr: PrimitiveAttr, target: Target) -> str | None:
        described = op.memories()
        if not any(md.dtype in _NARROW for md in described.values()):
            return "only f16 and bf16 are converted"
        if self._gradients and op.is_forward:
            return "only gradients are supported"
        if attr.scales or attr.zero_points or any(p.kind == "sum" for p in attr.post_ops):
            return "scales, zero points and sum post-ops are not supported"
        try:
            _in_float32(op, attr, target)
        except UnsupportedPrimitive as error:
            return str(error)
        return None

    def complete(self, op: Any, attr: PrimitiveAttr, target: Target) -> Any:
        inner = _in_float32(op, attr, target).op
        layouts = {f.name: getattr(inner, f.name) for f in fields(op)}
        chosen = {
            name: replace(layouts[name], dtype=md.dtype)
            for name in layouts
            if isinstance(md := getattr(op, name), MemoryDesc) and md.is_any
        }
        return replace(op, **chosen)

    def program(self, op: OpDesc, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestedBuilder(target)
        inner = _in_float32(op, attr, target)
        described = {**op.memories(), **attr.memories(op.memories())}
        results = op.outputs()
        places: dict[int, LaunchArgument] = {}
        for arg, wide in inner.memories().items():
            places[arg] = memory(arg)
            if described[arg] != wide and arg not in results:
                places[arg] = build.reorder_once(described[arg], memory(arg), wide)
            elif described[arg] != wide:
                places[arg] = build.book(wide.nbytes)
        build.execute(inner, places)
        for arg in results:
            if places[arg] != memory(arg):
                build.move(inner.memories()[arg], places[arg], described[arg], memory(arg))
        return build.program()


@lru_cache(maxsize=1024)
def _in_float32(op: OpDesc, attr: PrimitiveAttr, target: Target) -> PrimitiveDesc:
    """Return the primitive that computes an operation in f32. Raises UnsupportedPrimitive."""
    changed = {f.name: _widened(getattr(op, f.name)) for f in fields(op)}
    steps = tuple(p if p.src1 is None else replace(p, src1=_widened(p.src1)) for p in attr.post_ops)
    attributes = replace(nested_attributes(attr), post_ops=steps)
    return primitive_desc(replace(op, **changed), attributes, target, references=False)


def _widened(value: Any) -> Any:
    """Return a descriptor in f32 if it is in f16 or bf16, in the same layout without gaps."""
    if not isinstance(value, MemoryDesc) or value.dtype not in _NARROW:
        return value
    return replace(value.with_tag("") if value.strides else value, dtype="f32")
