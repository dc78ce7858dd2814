"""The problems of a cell: odd shapes in every layout, values to compute with, and how near a result must come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    Attention,
    BatchNormalization,
    Binary,
    Determinant,
    Dft,
    DynamicLstm,
    GridSample,
    GroupNormalization,
    LayerNormalization,
    NonMaxSuppression,
    OpDesc,
    Pooling,
    PrimitiveAttr,
    Reduction,
    Resampling,
    RoiAlign,
    TreeLeaves,
)
from poolrt.workers.implementations.contract import REFERENCE
from tests.references import reference
from tests.references.data_types import FLOATS, rounded
from tests.references.magnitudes import gradient_magnitudes
from tests.references.pooling import pooling_winners
from tests.workers.desc.layouts import LAYOUTS, laid_out
from tests.workers.implementations.reference.drawing import LAST_PLACE, arguments

from .descriptors import MAKERS, TYPES
from .mixed_types import permuted_triangles
from .regions import region_values
from .trees import random_trees

Array = NDArray[Any]
EPSILON: Final = 2.0**-23
#: Most elements of a product whose magnitudes of up to 6 leave it in the range of f32.
FEW_FACTORS: Final = 40
#: Their steps multiply the errors of the steps before, by up to the size of the weights.
RECURRENT: Final = ("rnn", "lstm", "gru", "dynamic_lstm")
#: Relative errors that implementations made for speed may have in f32. What is not here is exact, or rounded once.
FAST: Final = {
    "attention": 10 * EPSILON,
    "batch_normalization": 5e-7,
    "binary pow": EPSILON,
    "eltwise": 4e-6,
    "dft": 5e-7,
    "grid_sample": 7 * EPSILON,
    "roi_align": 8 * EPSILON,
    "group_normalization": 5e-7,
    "layer_normalization": 5e-7,
    "lrn": 5e-7,
    "pooling": EPSILON,
    "reduction": EPSILON,
    "resampling": 7 * EPSILON,
    "softmax": 10 * EPSILON,
    **dict.fromkeys(RECURRENT, 4e-6),
}
#: The same of functions in f64 whose values, also those that NumPy computes, are differences of nearly equal numbers.
DIFFERENCES: Final = {"eltwise": 1e-9}


class Cell(NamedTuple):
    """An operation in one propagation kind (``forward`` where it knows none) on one data type."""

    kind: str
    prop: str
    dtype: str


def cells() -> Iterator[Cell]:
    """Yield every cell of the table, supported or not."""
    for kind, (props, _) in MAKERS.items():
        for prop in props:
            for dtype in TYPES:
                yield Cell(kind, prop, dtype)


def problems(cell: Cell) -> list[OpDesc]:
    """Return the descriptors that stand for a cell: each shape in a layout, each layout with a shape.

    Implementations made for speed are made for f32, and for layouts that they choose: there each shape is also left open
    and in blocks, those of convolutions row-major, too. So are convolution and pooling of bytes, without blocks.
    """
    shapes = MAKERS[cell.kind][1](cell.prop, cell.dtype)
    layouts = [layout for layout in LAYOUTS if layout != "any" or cell.kind != "reorder"]
    count = max(len(shapes), len(layouts))
    pairs = [(number % len(shapes), layouts[number % len(layouts)]) for number in range(count)]
    if cell.dtype == "f32":
        made_for = ("any", "blocked", "plain") if cell.kind == "convolution" else ("any", "blocked")
        pairs += [(number, layout) for number in range(len(shapes)) for layout in layouts if layout in made_for]
    elif cell.kind in ("convolution", "pooling") and cell.dtype in ("u8", "s8"):
        pairs += [(number, "any") for number in range(len(shapes))]
    return [laid_out(shapes[number], layout) for number, layout in dict.fromkeys(pairs)]


def values(op: OpDesc, attr: PrimitiveAttr, seed: int) -> dict[int, Array]:
    """Return arguments that ``op`` makes sense of; sums of their products are exact in every floating-point type."""
    bound = (
        1.5 if op.kind in (*RECURRENT, "attention", "softmax") else 3.0 if op.kind.endswith("normalization") else 6.0
    )
    args = arguments(op, attr, seed, -bound, bound)
    if isinstance(op, NonMaxSuppression):
        # Others would leave no box.
        args[Arg.SRC_2] = rounded(np.array([7.0, 0.5, 0.0]), op.limits.dtype)
    if isinstance(op, GridSample):
        # Places beside src and a little outside of it, some half way between elements.
        args[Arg.SRC_1] = np.random.default_rng(seed).integers(-11, 12, op.grid.dims) / 8
    if isinstance(op, TreeLeaves):
        args[Arg.SRC_1], args[Arg.SRC_2], args[Arg.WEIGHTS] = random_trees(op, seed)
    if isinstance(op, Determinant):
        args[Arg.SRC] = permuted_triangles(op, seed)
    if isinstance(op, Reduction) and op.algorithm == "mul" and op.src.dtype in FLOATS and factors(op) > FEW_FACTORS:
        args[Arg.SRC] = factors_near_one(op, seed)
    if isinstance(op, DynamicLstm):
        # A byte that is the next one for a rounding of a state matters less than the allowed error.
        args[Arg.SCALE] = np.full(op.scales.dims, 2.0**-14)
    if isinstance(op, RoiAlign):
        args[Arg.SRC_1], args[Arg.SRC_2] = region_values(op, seed)
    if Arg.VARIANCE in args:
        args[Arg.VARIANCE] = np.abs(args[Arg.VARIANCE])
    if Arg.WORKSPACE in args and isinstance(op, Pooling):
        src = np.random.default_rng(seed).integers(-4, 5, op.src.dims).astype(np.float64)
        args[Arg.WORKSPACE] = pooling_winners(op, src)
    elif Arg.WORKSPACE in args:
        args[Arg.WORKSPACE] = np.random.default_rng(seed).integers(0, 2, args[Arg.WORKSPACE].shape)
    return args


def factors(op: Reduction) -> int:
    """Return how many elements each product has."""
    return op.src.elements // max(op.dst.elements, 1)


def factors_near_one(op: Reduction, seed: int) -> Array:
    """Return multiples of 1/64 near 1 and -1, and few zeros, for products of many.

    Of others, some products would be infinite and some 0, by chance and by their order, and together NaN.
    """
    rng = np.random.default_rng(seed)
    magnitudes = 1 + rng.integers(-8, 9, op.src.dims) / 64
    is_zero = rng.random(op.src.dims) < 0.25 / factors(op)
    return np.asarray(np.where(is_zero, 0.0, rng.choice((-1.0, 1.0), op.src.dims) * magnitudes))


def summand(op: OpDesc, args: dict[int, Array], implementation: str, arg: int) -> Array | float:
    """Return what a normalisation adds to each element of dst at last, 0 of other operations and results.

    What a step of a recurrent network adds up is about 1, however near to 0 the state is that comes of it. Fast layer and
    group normalisations have a mean with errors relative to what they add up for it, and a dst with errors relative to
    the scale: before it, the mean square is 1. What a resampling or attention weighs may cancel, and so may the terms of a
    gradient, or of a Fourier transform; a fast attention's weights have errors relative to what a score adds up.
    """
    if isinstance(op, Dft) and (not implementation.startswith(REFERENCE) or op.dst.dtype == "f64"):
        read = np.abs(np.take(np.asarray(args[Arg.SRC], np.float64), range(op.read), op.axis))
        added: Array = read.sum((op.axis, -1), keepdims=True) * (2 if op.mirrors else 1)
        return added / op.length if op.inverse else added
    if op.kind in RECURRENT:
        return 1.0
    if isinstance(op, (GridSample, Resampling, RoiAlign)) and (
        not implementation.startswith(REFERENCE) or op.algorithm == "cubic" or isinstance(op, RoiAlign)
    ):
        magnitudes = {**args, int(Arg.SRC): np.abs(args[Arg.SRC])}
        # Weights of the cubic algorithm may be negative, and cancel in float64 too; their magnitudes add up to less than 1.5
        # along a dimension. A reference rounds to other types once.
        if implementation.startswith(REFERENCE) and op.dst.dtype != "f64":
            return 0.0
        negative = 1.5 ** (op.src.ndims - 2) * float(np.abs(args[Arg.SRC]).max(initial=0.0))
        return reference(op, PrimitiveAttr(), magnitudes) + (negative if op.algorithm == "cubic" else 0.0)
    if isinstance(op, Attention):
        magnitudes = {**args, int(Arg.SRC_2): np.abs(args[Arg.SRC_2])}
        weighed = reference(op, PrimitiveAttr(), magnitudes)
        if implementation.startswith(REFERENCE) or not weighed.size:
            return weighed
        query, key = (np.abs(args[source]).max(initial=0.0) for source in (Arg.SRC, Arg.SRC_1))
        return weighed * (1.0 + float(query * key) * op.query.dims[3] * abs(op.factor))
    if not op.is_forward:
        return 0.0 if implementation.startswith(REFERENCE) else gradient_magnitudes(op, args, arg)
    fast = isinstance(op, (GroupNormalization, LayerNormalization)) and not implementation.startswith(REFERENCE)
    if fast and arg == Arg.MEAN:
        return float(np.abs(args[Arg.SRC]).max(initial=0.0))
    if arg != Arg.DST or not (fast or isinstance(op, BatchNormalization)):
        return 0.0
    added = np.abs(np.asarray(args.get(Arg.SHIFT, 0.0), np.float64))
    if fast:
        added = np.maximum(added, np.abs(np.asarray(args.get(Arg.SCALE, 1.0), np.float64)))
    if isinstance(op, LayerNormalization) or not added.ndim:
        return added
    return added.reshape(1, -1, *[1] * (len(op.memories()[Arg.DST].dims) - 2))


def threshold(op: OpDesc, dtype: str, implementation: str) -> float:
    """Return the relative error that a tensor of a data type may have: 0 of integers.

    A reference implementation computes in float64 and rounds once, as what it is compared with does by other means: at
    most to a neighbour.
    """
    kind = "binary pow" if isinstance(op, Binary) and op.algorithm == "pow" else op.kind
    if dtype == "f32" and not implementation.startswith(REFERENCE):
        if isinstance(op, Reduction) and op.algorithm == "mul" and op.dst.elements:
            # Each multiplication rounds, by at most half a unit.
            return max(FAST[kind], factors(op) * EPSILON / 2)
        return FAST.get(kind, 0.0)
    return DIFFERENCES.get(kind, LAST_PLACE[dtype]) if dtype == "f64" else LAST_PLACE.get(dtype, 0.0)
