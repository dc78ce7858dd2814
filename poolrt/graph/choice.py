"""The choice of an implementation for a node: the first candidate that a fast one accepts, else a reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from poolrt.cachestore.deferred_dataclass import dataclass, field, replace
from poolrt.workers.desc import Arg, MemoryDesc, OpDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.contract import REFERENCE
from poolrt.workers.implementations.primitive_desc import (
    PrimitiveDesc,
    UnsupportedPrimitive,
    find_accepting,
    unsupported_error,
)

from .ir import PostOpUse


@dataclass(frozen=True, slots=True)
class Attributes:
    """The post-ops of a node, the operands of the binary ones in the layouts that they have, and the quantisation."""

    post_ops: Sequence[PostOpUse] = ()
    operands: Sequence[MemoryDesc] = ()
    quantisation: PrimitiveAttr = field(default_factory=PrimitiveAttr)

    def describe(self, dst: MemoryDesc | None) -> PrimitiveAttr:
        """Return the attributes of a primitive; operands of binary post-ops have the layout of ``dst`` if they can."""
        operands = iter(self.operands)
        chain = []
        for use in self.post_ops:
            src1 = _adopt_layout(next(operands), dst) if use.kind == "binary" else None
            chain.append(PostOp(use.kind, use.algorithm, use.alpha, use.beta, src1))
        return replace(self.quantisation, post_ops=tuple(chain))


def choose(
    candidates: Iterable[OpDesc], attributes: Attributes, target: Target, implementation: str = ""
) -> PrimitiveDesc:
    """Return the primitive descriptor to use, of implementations whose names begin with ``implementation``.

    A fast implementation after a reorder beats a reference without one, so that implementations count for more than
    layouts. Raises UnsupportedPrimitive with the reason why the last candidate was refused.
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
    """Return whether an implementation is a reference, which accepts everything and is slow."""
    return pd.impl_name().startswith(REFERENCE)


def _describe(op: OpDesc, attributes: Attributes, target: Target, implementation: str) -> PrimitiveDesc:
    if not attributes.operands:
        return _find_accepting(op, attributes.describe(None), target, implementation)
    # The second source of a binary post-op has the layout of the destination, which a first round finds out.
    unary = _find_accepting(op, attributes.quantisation, target, implementation)
    return _find_accepting(unary.op, attributes.describe(unary.memories()[Arg.DST]), target, implementation)


@lru_cache(maxsize=512)
def _find_accepting(op: OpDesc, attr: PrimitiveAttr, target: Target, implementation: str) -> PrimitiveDesc:
    """Return the descriptor of the first implementation that accepts. Kept, because layers of a network are alike."""
    reasons: list[str] = []
    for pd in find_accepting(op, attr, target, (), reasons):
        if pd.impl_name().startswith(implementation):
            return pd
        reasons.append(f"{pd.impl_name()}: its name does not begin with {implementation}")
    raise unsupported_error(op, target, reasons)


def _adopt_layout(operand: MemoryDesc, other: MemoryDesc | None) -> MemoryDesc:
    same = other is not None and not other.strides and operand.ndims == other.ndims
    return operand.with_tag(other.tag if same and other is not None else "")
