"""The choice of an implementation for a node: the first candidate that one made for speed takes, else a reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from poolrt.workers.desc import Arg, MemoryDesc, OpDesc, PostOp, PrimitiveAttr, Quantisation
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import (
    REFERENCE,
    PrimitiveDesc,
    UnsupportedPrimitive,
    accepted,
    unsupported,
)


@dataclass(frozen=True, slots=True)
class Attributes:
    """A node's attributes as on the wire, with the operands of its binary post-ops as they lie."""

    post_ops: Sequence[Sequence[Any]] = ()
    operands: Sequence[MemoryDesc] = ()
    quantisation: Sequence[Sequence[Any]] = ()

    def without_post_ops(self) -> Attributes:
        """Return the rest."""
        return Attributes(quantisation=self.quantisation)

    def described(self, dst: MemoryDesc | None) -> PrimitiveAttr:
        """Return the attributes of a primitive; the operands of binary post-ops lie as ``dst`` does where they can."""
        operands = iter(self.operands)
        chain = []
        for kind, algorithm, *numbers in self.post_ops:
            if kind == "binary":
                chain.append(PostOp(kind, algorithm, src1=_like(next(operands), dst)))
            else:
                alpha, beta = numbers
                chain.append(PostOp(kind, algorithm, float(alpha), float(beta)))
        parts: dict[str, list[Quantisation]] = {"scales": [], "zero_points": []}
        for what, arg, mask, _ in self.quantisation:
            parts[what].append(Quantisation(arg, mask))
        return PrimitiveAttr(tuple(chain), tuple(parts["scales"]), tuple(parts["zero_points"]))


def choose(
    candidates: Iterable[OpDesc], attributes: Attributes, target: Target, implementation: str = ""
) -> PrimitiveDesc:
    """Return the primitive descriptor to use, of implementations whose names begin with ``implementation``.

    Layouts count for less than implementations: a reference takes every layout, but a reorder and a fast one are
    faster than it. Raises UnsupportedPrimitive with why the last candidate was refused.
    """
    reference: PrimitiveDesc | None = None
    refused = UnsupportedPrimitive("there is no candidate")
    for op in candidates:
        try:
            found = _describe(op, attributes, target, implementation)
        except UnsupportedPrimitive as error:
            refused = error
            continue
        if not is_reference(found):
            return found
        reference = reference or found
    if reference is None:
        raise refused
    return reference


def is_reference(pd: PrimitiveDesc) -> bool:
    """Return whether an implementation is the one that takes everything, slowly."""
    return pd.impl_name().startswith(REFERENCE)


def _describe(op: OpDesc, attributes: Attributes, target: Target, implementation: str) -> PrimitiveDesc:
    if not attributes.operands:
        return _first(op, attributes.described(None), target, implementation)
    # The second source of a binary post-op lies as the destination does, which a first round finds out.
    unary = _first(op, attributes.without_post_ops().described(None), target, implementation)
    return _first(unary.op, attributes.described(unary.memories()[Arg.DST]), target, implementation)


def _first(op: OpDesc, attr: PrimitiveAttr, target: Target, implementation: str) -> PrimitiveDesc:
    reasons: list[str] = []
    for pd in accepted(op, attr, target, (), reasons):
        if pd.impl_name().startswith(implementation):
            return pd
        reasons.append(f"{pd.impl_name()}: its name does not begin with {implementation}")
    raise unsupported(op, target, reasons)


def _like(operand: MemoryDesc, layout: MemoryDesc | None) -> MemoryDesc:
    same = layout is not None and not layout.strides and operand.ndims == layout.ndims
    return operand.with_tag(layout.tag if same and layout is not None else "")
