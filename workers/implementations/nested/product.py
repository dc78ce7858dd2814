"""The products of matrices that inner products and convolutions are, forward and backward, on matmul.

All are described by src (R, K), weights (O, K), bias (O,) and dst (R, O), in their own layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ...desc import Arg, Convolution, InnerProduct, Matmul, MemoryDesc, PrimitiveAttr, Reduction
from ...desc.equivalence import same_bytes
from ...engines.target import Target
from ..primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc
from ..program import LaunchArgument
from .builder import NestedBuilder, memory, nested_attributes
from .layouts import transposed

_FORWARD: Final = (Arg.SRC, Arg.WEIGHTS, Arg.BIAS, Arg.DST)
#: The data types of weights that products convert in registers.
_NARROW: Final = ("f16", "bf16")
#: The arguments that are src, weights, bias and dst in the other propagation kinds.
_BACKWARD: Final = {
    "backward_data": (Arg.DIFF_SRC, Arg.WEIGHTS, Arg.BIAS, Arg.DIFF_DST),
    "backward_weights": (Arg.SRC, Arg.DIFF_WEIGHTS, Arg.DIFF_BIAS, Arg.DIFF_DST),
}


class NotNested(ValueError):
    """A descriptor that cannot be computed on other primitives. Says why."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix: its layout and its place."""

    md: MemoryDesc
    at: LaunchArgument

    def transposed(self) -> Operand:
        """Return the transposed view."""
        return Operand(transposed(self.md), self.at)


@dataclass(frozen=True, slots=True)
class MatrixView:
    """A tensor, a layout wanted of it, and the matrix that it is in that layout."""

    md: MemoryDesc
    wanted: MemoryDesc
    matrix: MemoryDesc

    def read(self, build: NestedBuilder, at: LaunchArgument) -> Operand:
        """Return the matrix of a tensor at a place, reordered if its layout is another."""
        return Operand(self.matrix, build.reorder_once(self.md, at, self.wanted))

    @contextmanager
    def written(self, build: NestedBuilder, at: LaunchArgument) -> Iterator[Operand]:
        """Yield a matrix to compute into; add its reorder to the tensor's place, if that is another."""
        if same_bytes(self.md, self.wanted):
            yield Operand(self.matrix, at)
            return
        to = build.book(self.wanted.nbytes)
        yield Operand(self.matrix, to)
        build.move(self.wanted, to, self.md, at)


def places(prop: str) -> tuple[LaunchArgument, ...]:
    """Return the places of src, weights, bias and dst, or of their gradients, in a propagation kind."""
    return tuple(memory(arg) for arg in _BACKWARD.get(prop, _FORWARD))


def refuse_types(op: InnerProduct | Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
    """Return why no fast product computes with an operation's data types or attributes, or None if one may."""
    types = {desc.dtype for desc in op.memories().values()}
    if types == {"f64"} and target.engine_kind != "cpu":
        return "data type f64"
    if op.is_forward and target.engine_kind == "cpu" and op.weights.dtype in _NARROW and types <= {"f32", *_NARROW}:
        if attr.zero_points:
            return f"zero points of {op.src.dtype}"
    elif types not in ({"f32"}, {"f64"}):
        if not (op.is_forward and target.engine_kind == "cpu" and op.src.dtype in ("u8", "s8")):
            return f"data types {', '.join(sorted(types))}"
        if op.weights.dtype != "s8":
            return f"weights of {op.weights.dtype}"
    elif attr.zero_points:
        return f"zero points of {op.src.dtype}"
    if attr.scales:
        return "scales are not supported"
    if not op.is_forward and (attr.post_ops or not attr.is_plain):
        return "a backward operation takes no scales, zero points or post-ops"
    return None


def fast_matmul(op: Matmul, attr: PrimitiveAttr, target: Target) -> PrimitiveDesc:
    """Return the primitive descriptor of a product by a fast implementation that needs the fewest operands moved.

    Raises NotNested if there is none: a reference implementation of the whole would be as good.
    """
    *narrower, widest = _choices(op, attr)
    try:
        # A product that is declined with all layouts open is declined with fewer too.
        found = primitive_desc(widest, attr, target, references=False)
    except UnsupportedPrimitive as error:
        raise NotNested(f"there is no fast product for it: {error}") from error
    for choice in narrower:
        with suppress(UnsupportedPrimitive):
            return primitive_desc(choice, attr, target, references=False)
    return found


def multiply(
    build: NestedBuilder, left: Operand, right: Operand, bias: Operand | None, dst: Operand, attr: PrimitiveAttr
) -> None:
    """Add dst = left (R, K) by right (K, O) plus bias (1, O), with attributes whose arguments are the primitive's own."""
    attr = nested_attributes(attr)
    op = Matmul(left.md, right.md, None if bias is None else bias.md, dst.md)
    pd = fast_matmul(op, attr, build.target)
    args = {int(arg): memory(arg) for arg in attr.memories(op.memories())}
    described = pd.op.memories()
    for arg, operand in ((Arg.SRC, left), (Arg.WEIGHTS, right), (Arg.BIAS, bias)):
        if operand is not None:
            args[arg] = build.reorder_once(operand.md, operand.at, described[arg])
    computed = described[Arg.DST]
    if same_bytes(computed, dst.md):
        build.execute(pd, {**args, Arg.DST: dst.at})
    else:
        to = build.book(computed.nbytes)
        build.execute(pd, {**args, Arg.DST: to})
        build.move(computed, to, dst.md, dst.at)


def bias_row(bias: MemoryDesc) -> MemoryDesc:
    """Return a bias (O,) as a row (1, O). Raises NotNested if its elements are not adjacent."""
    if not bias.is_plain:
        raise NotNested(f"layout {bias} of bias")
    return MemoryDesc((1, *bias.dims), bias.dtype)


def add_rows(build: NestedBuilder, rows: Operand, row: Operand) -> None:
    """Add the sum of the rows of a matrix (R, O), written as a row (1, O)."""
    build.compute(Reduction(rows.md, row.md, "sum"), {Arg.SRC: rows.at, Arg.DST: row.at})


def transposed_attributes(attr: PrimitiveAttr) -> PrimitiveAttr:
    """Return attributes whose masks for weights (O, K) are those for the transpose (K, O).

    Raises NotNested if zero points vary along other dimensions than that of the outputs.
    """
    for item in attr.zero_points:
        if item.arg == Arg.WEIGHTS and item.mask > 1:
            raise NotNested(f"zero points of weights with mask {item.mask}")
    turned = tuple(replace(q, mask=2 * q.mask) if q.arg == Arg.WEIGHTS else q for q in attr.zero_points)
    return replace(attr, zero_points=turned)


def _choices(op: Matmul, attr: PrimitiveAttr) -> Iterator[Matmul]:
    """Yield the product with as few layouts as possible left to the implementation; post-ops read dst in its own layout."""
    given = (op.src, op.weights, op.dst)
    keeps_dst = any(step.kind != "eltwise" for step in attr.post_ops)
    for opened in sorted(range(8), key=lambda bits: (bits.bit_count(), bits)):
        chosen = [bool(opened >> bit & 1) for bit in range(3)]
        if (keeps_dst and chosen[2]) or any(md.is_any and left for md, left in zip(given, chosen, strict=True)):
            continue
        src, weights, dst = (md.with_tag("any") if left else md for md, left in zip(given, chosen, strict=True))
        yield replace(op, src=src, weights=weights, dst=dst)
