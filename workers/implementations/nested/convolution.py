"""Convolution on reorder and matmul, in every propagation kind: each pixel of dst is a row of a product.

Kernels of 1 multiply the pixels as they are; others multiply windows, which are unfolded into scratchpad before.
"""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, Matmul, MemoryDesc, PostOp, PrimitiveAttr, item_size
from ...desc.equivalence import same_bytes
from ...engines.target import EXTENSIONS, Target
from ..primitive_desc import UnsupportedPrimitive
from ..program import LaunchArgument, Program
from .builder import NestedBuilder, nested_attributes, shifted
from .layouts import collapsed, expanded, transposed
from .pixels import Pixels, channels_last, matrices
from .product import (
    MatrixView,
    NotNested,
    Operand,
    add_rows,
    bias_row,
    fast_matmul,
    multiply,
    places,
    refuse_types,
    transposed_attributes,
)
from .windows import fold, unfold, unfolded_bytes

#: Each group has a product of its own: with more, starting them takes longer than computing.
_GROUPS: Final = 32
#: Bytes of unfolded windows at most.
_UNFOLDED: Final = 1 << 30


class NestedConvolution:
    """Any layouts. Kernels larger than 1, groups, padding and backward strides in f32 and f64 only."""

    name = "nested:matmul"
    general = True
    nests = True
    extensions = tuple(EXTENSIONS)

    def __init__(self, engine_kind: str) -> None:
        self.engine_kind = engine_kind

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        why = refuse_types(op, attr, target) or _refuse_shape(op, attr)
        if why is not None:
            return why
        try:
            self.program(self.complete(op, attr, target), attr, target)
        except (NotNested, UnsupportedPrimitive) as error:
            return str(error)
        return None

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        src = op.src
        if src.is_any:
            src = src.with_tag("") if _unfolds(op) else channels_last(src)
        dst = channels_last(op.dst) if op.dst.is_any else op.dst
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        op = replace(op, src=src, bias=bias, dst=dst)
        return replace(op, weights=self._weights(op, attr, target)) if op.weights.is_any else op

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestedBuilder(target)
        src, weights, bias, dst = places(op.prop)
        results, kernels = Pixels(op.dst, op.groups), _kernels(op)
        if op.is_forward:
            rows, right = _rows(build, op, src), _each(op, kernels.read(build, weights))
            with results.written(build, dst) as to:
                for group in range(op.groups):
                    row = _bias(op, bias, group)
                    multiply(build, rows[group], right[group].transposed(), row, to[group], _attributes(op, attr))
        elif op.prop == "backward_data":
            errors, right = results.read(build, dst), _each(op, kernels.read(build, weights))
            if _unfolds(op):
                _fold_into(build, op, attr, (errors, right), src)
            else:
                with Pixels(op.src, op.groups).written(build, src) as images:
                    for group in range(op.groups):
                        multiply(build, errors[group], right[group], None, images[group], attr)
        else:
            rows, errors = _rows(build, op, src), results.read(build, dst)
            with kernels.written(build, weights) as whole:
                for group, gradient in enumerate(_each(op, whole)):
                    multiply(build, errors[group].transposed(), rows[group], None, gradient, attr)
            for group in range(op.groups):
                row = _bias(op, bias, group)
                if row is not None:
                    add_rows(build, errors[group], row)
        return build.program()

    def _weights(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> MemoryDesc:
        """Return the layout of weights that the product chooses, row-major if no tensor has it."""
        plain = op.weights.with_tag("")
        if op.groups > 1 or not op.is_forward:
            return plain
        outputs, depth = _kernels(replace(op, weights=plain)).matrix.dims
        to = Pixels(op.dst).together.matrix
        rows = MemoryDesc((to.dims[0], depth), op.src.dtype)
        right = MemoryDesc((depth, outputs), plain.dtype, "any")
        product = Matmul(rows, right, None if op.bias is None else bias_row(op.bias), to)
        liked = fast_matmul(product, _attributes(op, attr), target).op.memories()[Arg.WEIGHTS]
        return expanded(transposed(liked), plain.dims, tuple(range(1, plain.ndims)))


def _refuse_shape(op: Convolution, attr: PrimitiveAttr) -> str | None:
    """Return why the shape or attributes of a convolution allow no product, or None."""
    if (_unfolds(op) or op.groups > 1) and op.src.dtype not in ("f32", "f64"):
        return f"{op.src.dtype} takes kernels of 1 without groups and padding only"
    if op.groups > _GROUPS:
        return f"{op.groups} groups are more than {_GROUPS}"
    if op.groups > 1 and any(step.kind != "eltwise" for step in attr.post_ops):
        return "with groups, only eltwise post-ops are supported"
    if op.src.ndims > 5:
        return "more than 3 spatial dimensions"
    if _unfolds(op) and unfolded_bytes(op) > _UNFOLDED:
        return f"the windows take {unfolded_bytes(op)} bytes, more than {_UNFOLDED}"
    return None


def _unfolds(op: Convolution) -> bool:
    """Return whether rows are made of windows, rather than pixels as they are."""
    if any(size != 1 for size in op.weights.dims[2:]) or any((*op.padding_l, *op.padding_r)):
        return True
    # Pixels that strides leave out are not read, but their gradients are written. Blocks cannot be stepped over.
    steps = any(step != 1 for step in op.strides)
    return steps and (op.prop == "backward_data" or (not op.src.is_any and bool(op.src.layout.blocks)))


def _rows(build: NestedBuilder, op: Convolution, src: LaunchArgument) -> list[Operand]:
    """Return the left matrix of each group: a row for each pixel of dst."""
    if not _unfolds(op):
        return Pixels(_sampled(op), op.groups).read(build, src)
    return _windows(op, unfold(build, op, build.reorder_once(op.src, src, op.src.with_tag(""))))


def _windows(op: Convolution, at: LaunchArgument) -> list[Operand]:
    """Return unfolded windows as a matrix for each group."""
    depth = _kernels(op).matrix.dims[1]
    return matrices(MemoryDesc((Pixels(op.dst).together.matrix.dims[0], depth), op.src.dtype), at, op.groups)


def _fold_into(
    build: NestedBuilder, op: Convolution, attr: PrimitiveAttr, factors: tuple[list[Operand], list[Operand]],
    src: LaunchArgument,
) -> None:  # fmt: skip
    """Add the gradients of all windows, products of errors and weights, and their sum into src."""
    windows = build.book(unfolded_bytes(op))
    for left, right, to in zip(*factors, _windows(op, windows), strict=True):
        multiply(build, left, right, None, to, attr)
    plain = op.src.with_tag("")
    with MatrixView(op.src, plain, plain).written(build, src) as images:
        fold(build, op, windows, images.at)


def _sampled(op: Convolution) -> MemoryDesc:
    """Return the pixels of src that are read."""
    if all(step == 1 for step in op.strides):
        return op.src
    steps = op.src.outer_strides()
    strides = (*steps[:2], *(s * step for s, step in zip(steps[2:], op.strides, strict=True)))
    return MemoryDesc((*op.src.dims[:2], *op.dst.dims[2:]), op.src.dtype, strides=strides)


def _kernels(op: Convolution) -> MatrixView:
    """Return weights as a matrix (outputs, inputs and window), in place if possible; groups need them row-major."""
    md, plain = op.weights, op.weights.with_tag("")
    inner = tuple(range(1, md.ndims))
    found = collapsed(md, inner) if op.groups == 1 or md.is_plain else None
    if found is not None:
        return MatrixView(md, md, found)
    whole = collapsed(plain, inner)
    if whole is None:
        raise TypeError(f"row-major {plain} is no matrix")
    return MatrixView(md, plain, whole)


def _each(op: Convolution, whole: Operand) -> list[Operand]:
    """Return the part of each group of weights or their gradient."""
    if op.groups == 1:
        return [whole]
    outputs, depth = whole.md.dims
    return matrices(MemoryDesc((outputs // op.groups, depth), whole.md.dtype), whole.at, op.groups)


def _bias(op: Convolution, at: LaunchArgument, group: int) -> Operand | None:
    """Return the part of a group of the bias or its gradient, as a row."""
    if op.bias is None:
        return None
    row = bias_row(op.bias)
    each = row.dims[1] // op.groups
    return Operand(MemoryDesc((1, each), row.dtype), shifted(at, group * each * item_size(row.dtype)))


def _attributes(op: Convolution, attr: PrimitiveAttr) -> PrimitiveAttr:
    """Return the attributes of the product of a forward convolution. Raises NotNested for any that it cannot have."""
    for item in attr.zero_points:
        if item.mask not in {Arg.WEIGHTS: (0, 1), Arg.DST: (0, 2)}.get(Arg(item.arg), (0,)):
            raise NotNested(f"zero points of argument {item.arg} with mask {item.mask}")
    results = Pixels(op.dst).together
    if any(step.kind == "sum" for step in attr.post_ops) and not same_bytes(op.dst, results.wanted):
        raise NotNested(f"a sum post-op on dst in layout {op.dst}")
    chain = tuple(step if step.src1 is None else _row_operand(step, step.src1, results) for step in attr.post_ops)
    return transposed_attributes(replace(nested_attributes(attr), post_ops=chain))


def _row_operand(step: PostOp, src1: MemoryDesc, results: MatrixView) -> PostOp:
    """Return a binary post-op whose second source is seen as the matrix that dst is."""
    sizes = (1, src1.dims[1], *(1,) * (src1.ndims - 2))
    if src1.dims == results.wanted.dims:
        layout, rows = channels_last(src1), results.matrix.dims
    elif src1.dims == sizes:
        layout, rows = src1.with_tag(""), (1, src1.dims[1])
    else:
        raise NotNested(f"a post-op with second source {src1}")
    if not same_bytes(src1, layout):
        raise NotNested(f"a post-op with second source {src1}")
    return replace(step, src1=MemoryDesc(rows, src1.dtype))
