"""Descriptors of odd shapes for every operation, propagation kind and data type, all of them row-major.

Sizes are no multiples of blocks; there are groups, dilations, paddings unlike on both sides, and tensors without elements.
Weights of u8 and bool are s8, and sums of products of s8, u8 and bool are s32; all other tensors have the cell's type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from poolrt.workers.desc import (
    FORWARD,
    Attention,
    BatchNormalization,
    Binary,
    Concat,
    CumulativeSum,
    Eltwise,
    Gather,
    GridSample,
    GroupNormalization,
    InnerProduct,
    LayerNormalization,
    Lrn,
    Matmul,
    MemoryDesc,
    OpDesc,
    Pad,
    Prelu,
    Reduction,
    Reorder,
    Resampling,
    Scatter,
    Select,
    Shuffle,
    Softmax,
    Sum,
)
from poolrt.workers.desc.operations.eltwise import FROM_DST
from poolrt.workers.desc.operations.grid_sample import GRID_TYPES
from poolrt.workers.desc.operations.reduction import REDUCTION_ALGORITHMS
from tests.workers.desc.windows import Channels, Sizes, Window, convolution, deconvolution, pooling

from .mixed_types import (
    SHAPES,
    arg_reductions,
    determinants,
    dfts,
    dynamic_quantises,
    matmuls_nbits,
    non_max_suppressions,
    non_zeros,
    top_ks,
)
from .networks import grus, lstms, rnns
from .quantised_states import dynamic_lstms
from .regions import folds, roi_aligns
from .rotations import rotaries
from .trees import trees_of

TYPES: Final = ("f64", "f32", "f16", "bf16", "s64", "u64", "s32", "u32", "s16", "u16", "s8", "u8", "bool")
#: Some with groups, dilations and paddings unlike on both sides at once: of a few channels, of whole blocks, of one each,
#: and of one element.
WINDOWS: Final = (
    (Channels(2, 2, 5, 17), Window((5, 6), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1))),
    (Channels(1, 1, 17, 23), Window((6, 5), (3, 2), (2, 1), (1, 2), (2, 1), (1, 0))),
    (Channels(2, 1, 3, 20), Window((7, 9), (3, 3), (2, 2), (0, 0), (0, 1), (2, 1))),
    (Channels(1, 19, 1, 1), Window((6, 7), (3, 3), (2, 1), (0, 0), (1, 1), (1, 1))),
    (Channels(1, 1, 5, 7), Window((11,), (4,), (3,), (1,), (2,), (0,))),
    (Channels(1, 2, 2, 3), Window((4, 3, 5), (2, 3, 1), (2, 1, 2), (0, 0, 1), (0, 1, 0), (1, 2, 0))),
    (Channels(0, 1, 16, 16), Window((4, 4), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1))),
    (Channels(2, 3, 3, 2), Window((6, 7), (2, 3), (1, 2), (2, 1), (2, 1), (0, 2))),
    (Channels(1, 2, 16, 32), Window((6, 7), (3, 2), (2, 1), (0, 1), (1, 0), (2, 1))),
    (Channels(2, 17, 1, 1), Window((6, 7), (3, 2), (1, 1), (1, 2), (2, 0), (0, 3))),
    (Channels(1, 1, 20, 18), Window((4, 5, 6), (2, 3, 2), (1, 2, 1), (1, 0, 2), (1, 1, 2), (2, 1, 0))),
    (Channels(1, 18, 1, 1), Window((5, 4, 7), (3, 2, 3), (2, 1, 1), (0, 1, 0), (1, 0, 2), (1, 2, 1))),
    (Channels(2, 3, 3, 5), Window((6, 7), (1, 1), (1, 2), (0, 0), (0, 0), (0, 0))),
)
#: Counts of elements that averages divide by are powers of two: gradients of integers are exact in any order.
POOLED: Final = (
    ("max", 2, 19, Window((7, 6), (3, 2), (2, 1), (1, 0), (2, 0), (0, 1))),
    ("avg_include_padding", 1, 17, Window((5, 6), (2, 2), (1, 2), (0, 1), (1, 0), (0, 1))),
    ("avg_exclude_padding", 2, 5, Window((6, 5), (2, 2), (2, 1), (0, 0), (1, 1), (1, 0))),
    ("max", 3, 3, Window((9,), (4,), (3,), (0,), (1,), (2,))),
    ("avg_exclude_padding", 1, 18, Window((4, 3, 4), (2, 1, 2), (2, 1, 1), (0, 0, 1), (0, 0, 1), (1, 0, 0))),
    ("max", 0, 16, Window((4, 4), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1))),
)


def product_types(prop: str, dtype: str) -> tuple[str, str, str]:
    """Return the data types of src, weights and results of a product of src of a type."""
    if prop not in FORWARD or dtype not in ("s8", "u8", "bool"):
        return dtype, dtype, dtype
    return dtype, "s8", "s32"


def convolutions(prop: str, dtype: str) -> list[OpDesc]:
    types = product_types(prop, dtype)
    return [
        convolution(w, c, prop, types, prop != "backward_data" and number != 1) for number, (c, w) in enumerate(WINDOWS)
    ]


def deconvolutions(prop: str, dtype: str) -> list[OpDesc]:
    types = product_types(prop, dtype)
    windows = (
        *WINDOWS,
        # A kernel as long as the stride, and strides as long as vectors
        (Channels(2, 1, 3, 5), Window((6, 8), (2, 2), (2, 2), (0, 0), (0, 0), (0, 0))),
        (Channels(1, 3, 1, 1), Window((4, 49), (2, 17), (2, 16), (0, 0), (0, 0), (0, 0))),
    )
    return [deconvolution(w, c, prop, types, number != 1) for number, (c, w) in enumerate(windows)]


def inner_products(prop: str, dtype: str) -> list[OpDesc]:
    _, weights, result = product_types(prop, dtype)
    found: list[OpDesc] = []
    inputs: tuple[tuple[int, Sizes, int], ...] = (
        (3, (5,), 17), (2, (3, 2, 5), 7), (1, (33,), 19), (4, (2, 3), 1), (3, (0,), 5), (0, (5,), 3)
    )  # fmt: skip
    for batch, rest, outputs in inputs:
        bias = MemoryDesc((outputs,), result) if prop != "backward_data" and outputs != 7 else None
        src, kernel = MemoryDesc((batch, *rest), dtype), MemoryDesc((outputs, *rest), weights)
        found.append(InnerProduct(src, kernel, bias, MemoryDesc((batch, outputs), result), prop))
    return found


def matmuls(prop: str, dtype: str) -> list[OpDesc]:
    _, weights, result = product_types(FORWARD[0], dtype)
    shapes: tuple[tuple[Sizes, Sizes, Sizes], ...] = (
        ((3, 5), (5, 17), (3, 17)), ((2, 1, 3, 6), (1, 4, 6, 7), (2, 4, 3, 7)), ((19, 33), (33, 21), (19, 21)),
        ((5, 2, 3), (1, 3, 4), (5, 2, 4)), ((3, 0), (0, 4), (3, 4)), ((0, 3), (3, 4), (0, 4)),
    )  # fmt: skip
    found: list[OpDesc] = []
    for number, (left, right, out) in enumerate(shapes):
        # A row, and what broadcasts otherwise
        row = (*(1,) * (len(out) - 1), out[-1])
        dims = {1: row, 3: (out[0], 1, *out[2:]), 4: out, 5: row}.get(number)
        bias = None if dims is None else MemoryDesc(dims, result)
        found.append(Matmul(MemoryDesc(left, dtype), MemoryDesc(right, weights), bias, MemoryDesc(out, result)))
    return found


def poolings(prop: str, dtype: str) -> list[OpDesc]:
    return [pooling(w, batch, channels, algorithm, prop, dtype) for algorithm, batch, channels, w in POOLED]


def eltwises(prop: str, dtype: str) -> list[OpDesc]:
    chosen = (
        ("relu", 0.25, 0.0), ("gelu_erf", 0.0, 0.0), ("clip_v2", -1.0, 4.0), ("logistic", 0.0, 0.0),
        ("linear", 1.5, -0.5), ("square", 0.0, 0.0),
    )  # fmt: skip
    found: list[OpDesc] = []
    for number, (dims, (algorithm, alpha, beta)) in enumerate(zip(SHAPES, chosen, strict=True)):
        md, use_dst = MemoryDesc(dims, dtype), prop not in FORWARD and algorithm in FROM_DST and number % 2 == 0
        found.append(Eltwise(md, md, algorithm, alpha, beta, prop, use_dst=use_dst))
    return found


def binaries(prop: str, dtype: str) -> list[OpDesc]:
    pairs: tuple[tuple[str, Sizes, Sizes], ...] = (
        ("add", (2, 19, 5, 3), (2, 19, 5, 3)), ("mul", (2, 17, 3), (1, 17, 1)), ("max", (3, 1), (1, 33)),
        ("sub", (1, 16, 3, 3), (1, 16, 1, 1)), ("ge", (2, 5, 3, 2), (1, 1, 1, 1)), ("min", (0, 4), (1, 4)),
        ("mod", (5, 33), (5, 33)), ("trunc_div", (3, 17), (1, 17)), ("xor", (2, 5, 3), (2, 1, 3)),
    )  # fmt: skip
    found: list[OpDesc] = []
    for algorithm, left, right in pairs:
        out = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
        src0, src1, dst = (MemoryDesc(dims, dtype) for dims in (left, right, out))
        found.append(Binary(src0, src1, dst, algorithm))
    return found


def sums(prop: str, dtype: str) -> list[OpDesc]:
    scales: tuple[tuple[float, ...], ...] = ((), (1.0, -0.5), (2.0, 1.0, 0.25))
    found: list[OpDesc] = []
    for number, dims in enumerate(SHAPES):
        md, chosen = MemoryDesc(dims, dtype), scales[number % 3]
        found.append(Sum((md,) * (len(chosen) or 2), md, chosen))
    return found


def concats(prop: str, dtype: str) -> list[OpDesc]:
    found: list[OpDesc] = []
    for number, dims in enumerate(SHAPES):
        axis = number % len(dims)
        parts = [(*dims[:axis], size, *dims[axis + 1 :]) for size in (dims[axis], 1 + number, 0)]
        joined = (*dims[:axis], dims[axis] + 1 + number, *dims[axis + 1 :])
        found.append(Concat(tuple(MemoryDesc(part, dtype) for part in parts), MemoryDesc(joined, dtype), axis))
    return found


def reorders(prop: str, dtype: str) -> list[OpDesc]:
    others = (dtype, "f32", "s8", "bf16", dtype, "u8", "f64")
    return [Reorder(MemoryDesc(d, dtype), MemoryDesc(d, o)) for d, o in zip((*SHAPES, (4, 17)), others, strict=True)]


def _normalized(prop: str, dtype: str, known: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return what normalisations differ in; gradients of bool have given statistics.

    With those of the batch, gradients are differences, and it is chance which of them that should be 0 are: all that bool
    can tell.
    """
    given = ("use_global_stats", "use_scale", "use_shift")
    flags = [known, (), ("use_global_stats", "use_scale"), given, ("use_scale", "use_shift"), known]
    if dtype == "bool" and prop not in FORWARD:
        flags = [(*f, "use_global_stats") for f in flags]
    return [{"epsilon": 0.5, "flags": f, "prop": prop} for f in flags]


def batch_normalizations(prop: str, dtype: str) -> list[OpDesc]:
    shapes: tuple[Sizes, ...] = ((2, 19, 5, 3), (4, 17), (3, 5, 7), (2, 18, 3, 3), (2, 3, 2, 3, 2), (0, 4, 2, 2))
    known = ("fuse_norm_relu", "use_global_stats", "use_scale", "use_shift")
    tensors = (MemoryDesc(dims, dtype) for dims in shapes)
    return [BatchNormalization(md, md, **how) for md, how in zip(tensors, _normalized(prop, dtype, known), strict=True)]


def layer_normalizations(prop: str, dtype: str) -> list[OpDesc]:
    shapes: tuple[Sizes, ...] = ((3, 4, 17), (33,), (2, 3, 2, 7), (2, 19), (7, 1, 3), (0, 5))
    known = ("use_global_stats", "use_scale", "use_shift")
    options = [*_normalized(prop, dtype, known), *_normalized(prop, dtype, known)[1:3]]
    for how in options[-2:]:
        how["flags"] = ("rms_norm", "use_scale", *how["flags"])
    tensors = (MemoryDesc(dims, dtype) for dims in (*shapes, (3, 33), (37,)))
    return [LayerNormalization(md, md, **how) for md, how in zip(tensors, options, strict=True)]


def group_normalizations(prop: str, dtype: str) -> list[OpDesc]:
    shapes: tuple[tuple[int, Sizes], ...] = (
        (1, (2, 19, 5, 3)), (17, (3, 17, 4)), (3, (2, 6, 7)), (2, (1, 18, 3, 3)), (5, (2, 5, 2, 3, 2)), (2, (0, 4, 2)),
    )  # fmt: skip
    known = ("use_global_stats", "use_scale", "use_shift")
    tensors = ((groups, MemoryDesc(dims, dtype)) for groups, dims in shapes)
    return [
        GroupNormalization(md, md, groups, **how)
        for (groups, md), how in zip(tensors, _normalized(prop, dtype, known), strict=True)
    ]


def lrns(prop: str, dtype: str) -> list[OpDesc]:
    shapes = (*SHAPES[:2], (2, 3, 33), *SHAPES[3:])
    algorithms = ("across_channels", "across_channels", "within_channel") * 2
    tensors = (MemoryDesc(dims, dtype) for dims in shapes)
    return [Lrn(md, md, 3, 0.5, 0.75, 1.25, a, prop) for md, a in zip(tensors, algorithms, strict=True)]


def softmaxes(prop: str, dtype: str) -> list[OpDesc]:
    found: list[OpDesc] = []
    for number, dims in enumerate(SHAPES):
        md = MemoryDesc(dims, dtype)
        found.append(Softmax(md, md, (number + 1) % len(dims), ("accurate", "log")[number % 2], prop))
    return found


def reductions(prop: str, dtype: str) -> list[OpDesc]:
    outs: tuple[tuple[Sizes, Sizes], ...] = (
        ((2, 19, 5, 3), (2, 1, 5, 3)), ((3, 17), (3, 1)), ((33,), (1,)), ((1, 16, 3, 3), (1, 16, 1, 1)),
        ((2, 5, 3, 2, 4), (2, 5, 1, 2, 1)), ((4, 17), (4, 17)), ((2, 4, 8), (1, 4, 8)), ((2, 3), (1, 3)), ((0, 4), (0, 1)),
    )  # fmt: skip
    return [
        Reduction(MemoryDesc(src, dtype), MemoryDesc(dst, dtype), algorithm, p=2.0, eps=0.5)
        for (src, dst), algorithm in zip(outs, REDUCTION_ALGORITHMS, strict=True)
    ]


def resamplings(prop: str, dtype: str) -> list[OpDesc]:
    sizes: tuple[tuple[str, Sizes, Sizes, Sizes], ...] = (
        ("nearest", (2, 19), (5, 3), (7, 7)), ("linear", (1, 17), (3, 5), (6, 10)), ("nearest", (3, 2), (9,), (4,)),
        ("linear", (2, 3), (8, 2, 3), (4, 4, 3)), ("linear", (1, 5), (6,), (12,)), ("linear", (0, 3), (4, 4), (2, 2)),
    )  # fmt: skip
    found: list[OpDesc] = [
        Resampling(MemoryDesc((*outer, *src), dtype), MemoryDesc((*outer, *dst), dtype), algorithm, prop)
        for algorithm, outer, src, dst in sizes
    ]
    small, large = MemoryDesc((2, 3, 4, 5), dtype), MemoryDesc((2, 3, 8, 7), dtype)
    found.append(Resampling(small, large, "cubic", prop, "asymmetric", factors=(2.0, 1.5)))
    found.append(Resampling(small, large, "cubic", prop, "align_corners", exclude_outside=True))
    roi = (0.25, -0.25, 0.75, 0.75)
    found.append(Resampling(small, large, "linear", prop, "tf_crop_and_resize", "floor", roi=roi, extrapolation=3.0))
    return found


def grid_samples(prop: str, dtype: str) -> list[OpDesc]:
    """Grids have the type of src, f32 if that has no fractions."""
    shapes: tuple[tuple[str, str, bool, Sizes, Sizes, Sizes], ...] = (
        # algorithm, padding, corners, images and channels, src, dst
        ("linear", "zeros", False, (2, 19), (5, 3), (7, 7)), ("nearest", "reflection", True, (1, 17), (3, 5), (6, 10)),
        ("linear", "border", True, (2, 3), (8, 2, 3), (4, 4, 3)), ("cubic", "zeros", False, (2, 3), (4, 5), (5, 7)),
        ("cubic", "reflection", True, (1, 2), (3, 4, 2), (2, 3, 2)), ("linear", "reflection", False, (3, 2), (9,), (21,)),
        ("nearest", "zeros", False, (0, 3), (4, 4), (2, 2)), ("linear", "zeros", True, (2, 2), (6, 1), (3, 3)),
        ("nearest", "border", False, (2, 1), (3, 2, 5), (2, 3, 40)),
    )  # fmt: skip
    found: list[OpDesc] = []
    for algorithm, padding, corners, outer, src, dst in shapes:
        grid = MemoryDesc((outer[0], *dst, len(dst)), dtype if dtype in GRID_TYPES else "f32")
        image, sampled = MemoryDesc((*outer, *src), dtype), MemoryDesc((*outer, *dst), dtype)
        found.append(GridSample(image, grid, sampled, algorithm, padding, corners))
    return found


def prelus(prop: str, dtype: str) -> list[OpDesc]:
    weights: tuple[Sizes, ...] = ((1, 19, 1, 1), (3, 17), (1,), (1, 1, 1, 1), (1, 5, 3, 1, 4), (1, 4, 1, 1))
    tensors = ((MemoryDesc(dims, dtype), MemoryDesc(slope, dtype)) for dims, slope in zip(SHAPES, weights, strict=True))
    return [Prelu(md, slope, md, prop) for md, slope in tensors]


def shuffles(prop: str, dtype: str) -> list[OpDesc]:
    found: list[OpDesc] = []
    for dims, axis, group in (
        ((2, 18, 5, 3), 1, 3), ((3, 15), 1, 5), ((34,), 0, 17), ((1, 16, 3, 4), 3, 2), ((4, 5, 3), 0, 2), ((0, 4), 1, 2)
    ):  # fmt: skip
        md = MemoryDesc(dims, dtype)
        found.append(Shuffle(md, md, axis, group, prop))
    return found


def attentions(prop: str, dtype: str) -> list[OpDesc]:
    """Masks have the data type of the cell, and bool in the others."""
    shapes: tuple[tuple[Sizes, int, int, int, Sizes | None, str, bool], ...] = (
        # (B, H, S, T), heads of keys, D, E, mask, its type, causal
        ((2, 4, 5, 7), 2, 3, 5, (2, 1, 1, 7), dtype, False), ((1, 2, 19, 33), 2, 17, 16, None, "", True),
        ((2, 3, 1, 21), 1, 5, 19, (1, 3, 1, 21), "bool", False), ((1, 2, 18, 5), 1, 4, 7, (1, 2, 18, 5), dtype, True),
        ((1, 1, 3, 2), 1, 2, 1, (1, 1, 3, 2), "bool", True), ((0, 2, 3, 4), 1, 5, 6, None, "", False),
        ((1, 2, 3, 0), 1, 5, 6, None, "", False),
    )  # fmt: skip
    found: list[OpDesc] = []
    for (batch, heads, rows, keys), groups, depth, width, mask, kind, causal in shapes:
        query, dst = MemoryDesc((batch, heads, rows, depth), dtype), MemoryDesc((batch, heads, rows, width), dtype)
        key, value = (MemoryDesc((batch, groups, keys, size), dtype) for size in (depth, width))
        added = None if mask is None else MemoryDesc(mask, kind)
        found.append(Attention(query, key, value, added, dst, 0.25, causal))
    return found


def gathers(prop: str, dtype: str) -> list[OpDesc]:
    """Indices are s32 and s64 in turn, some out of range."""
    shapes: tuple[tuple[str, int, int, Sizes, Sizes, Sizes], ...] = (
        # algorithm, axis, batch dimensions, src, indices, dst
        ("rows", 0, 0, (7, 19), (2, 3), (2, 3, 19)), ("rows", 2, 0, (2, 3, 6), (5,), (2, 3, 5)),
        ("elements", 1, 0, (3, 6, 5), (2, 9, 4), (2, 9, 4)), ("nd", 0, 0, (5, 6, 17), (3, 2), (3, 17)),
        ("nd", 0, 1, (2, 5, 3), (2, 4, 1), (2, 4, 3)), ("nd", 0, 0, (5, 4), (2, 7, 2), (2, 7)),
        ("rows", 1, 0, (2, 5, 70), (), (2, 70)), ("rows", 0, 0, (0, 4), (3,), (3, 4)), ("elements", 0, 0, (6,), (0,), (0,)),
    )  # fmt: skip
    found: list[OpDesc] = []
    for number, (algorithm, axis, batch, src, indices, dst) in enumerate(shapes):
        chosen = MemoryDesc(indices, ("s32", "s64")[number % 2])
        found.append(Gather(MemoryDesc(src, dtype), chosen, MemoryDesc(dst, dtype), algorithm, axis, batch))
    return found


def selects(prop: str, dtype: str) -> list[OpDesc]:
    """Conditions are bool, u8 and of the cell's type."""
    shapes: tuple[tuple[Sizes, Sizes, Sizes], ...] = (
        ((2, 19, 5, 3), (2, 19, 5, 3), (2, 19, 5, 3)), ((3, 1), (1, 1), (3, 70)), ((33,), (33,), (1,)),
        ((1, 16, 1, 3), (2, 1, 3, 3), (1, 16, 3, 1)), ((1, 5), (7, 1), (1, 1)), ((0, 4), (1, 4), (0, 1)),
    )  # fmt: skip
    found: list[OpDesc] = []
    for number, parts in enumerate(shapes):
        condition, src0, src1 = (
            MemoryDesc(dims, kind)
            for dims, kind in zip(parts, (("bool", "u8", dtype)[number % 3], dtype, dtype), strict=True)
        )
        dst = tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*parts, strict=True))
        found.append(Select(condition, src0, src1, MemoryDesc(dst, dtype)))
    return found


def pads(prop: str, dtype: str) -> list[OpDesc]:
    shapes: tuple[tuple[Sizes, Sizes, Sizes, str, float], ...] = (
        ((2, 3, 5, 7), (0, 1, 2, 3), (1, 0, 1, 2), "constant", 1.0), ((3, 17), (-1, 2), (4, -3), "edge", 0.0),
        ((4, 5), (3, 9), (2, 0), "reflect", 0.0), ((2, 3, 3), (1, 4, 0), (2, 5, 0), "wrap", 0.0),
        ((3, 4, 40), (1, 2, 0), (1, 0, 0), "constant", 0.0), ((2, 5), (-1, -2), (0, -1), "constant", 0.0),
        ((1, 6), (2, 1), (2, 2), "reflect", 0.0), ((0, 3), (1, 0), (2, 0), "constant", 1.0),
    )  # fmt: skip
    found: list[OpDesc] = []
    for dims, left, right, mode, value in shapes:
        dst = tuple(size + before + behind for size, before, behind in zip(dims, left, right, strict=True))
        found.append(Pad(MemoryDesc(dims, dtype), MemoryDesc(dst, dtype), left, right, mode, value))
    return found


def scatters(prop: str, dtype: str) -> list[OpDesc]:
    """Indices are s32 and s64 in turn, some out of range."""
    shapes: tuple[tuple[str, int, Sizes, Sizes, Sizes, str], ...] = (
        # algorithm, axis, src, indices, updates, reduction
        ("elements", 1, (3, 6, 5), (2, 9, 4), (2, 9, 4), "none"), ("nd", 0, (5, 6, 17), (3, 2), (3, 17), "add"),
        ("elements", 0, (6, 5), (4, 5), (4, 5), "max"), ("nd", 0, (5, 4), (2, 7, 2), (2, 7), "none"),
        ("elements", 0, (7,), (9,), (9,), "mul"), ("nd", 0, (4, 3, 2), (2, 2, 1), (2, 2, 3, 2), "min"),
        ("nd", 0, (2, 3), (0, 1), (0, 3), "none"), ("nd", 0, (0, 3), (2, 1), (2, 3), "none"),
    )  # fmt: skip
    found: list[OpDesc] = []
    for number, (algorithm, axis, src, indices, updates, reduction) in enumerate(shapes):
        md, chosen = MemoryDesc(src, dtype), MemoryDesc(indices, ("s32", "s64")[number % 2])
        found.append(Scatter(md, chosen, MemoryDesc(updates, dtype), md, algorithm, axis, reduction))
    return found


def cumulative_sums(prop: str, dtype: str) -> list[OpDesc]:
    found: list[OpDesc] = []
    for number, dims in enumerate(SHAPES):
        md = MemoryDesc(dims, dtype)
        found.append(CumulativeSum(md, md, (number + 1) % len(dims), number % 2 == 1, number % 3 == 1))
    return found


_BACKWARD: Final = (*FORWARD, "backward_data")
#: Of operations that know no propagation kind.
_ANY: Final = ("forward",)
#: Kind -> its propagation kinds, and what makes its descriptors.
MAKERS: Final[dict[str, tuple[tuple[str, ...], Callable[[str, str], list[OpDesc]]]]] = {
    "convolution": ((*_BACKWARD, "backward_weights"), convolutions),
    "deconvolution": (FORWARD, deconvolutions),
    "inner_product": ((*_BACKWARD, "backward_weights"), inner_products),
    "matmul": (_ANY, matmuls),
    "pooling": (_BACKWARD, poolings),
    "eltwise": (_BACKWARD, eltwises),
    "binary": (_ANY, binaries),
    "sum": (_ANY, sums),
    "concat": (_ANY, concats),
    "reorder": (_ANY, reorders),
    "batch_normalization": ((*_BACKWARD, "backward"), batch_normalizations),
    "layer_normalization": ((*_BACKWARD, "backward"), layer_normalizations),
    "group_normalization": (FORWARD, group_normalizations),
    "lrn": (FORWARD, lrns),
    "softmax": (_BACKWARD, softmaxes),
    "reduction": (_ANY, reductions),
    "resampling": (FORWARD, resamplings),
    "grid_sample": (_ANY, grid_samples),
    "roi_align": (_ANY, roi_aligns),
    "fold": (_ANY, folds),
    "tree_leaves": (_ANY, trees_of),
    "prelu": (FORWARD, prelus),
    "shuffle": (FORWARD, shuffles),
    "rnn": (FORWARD, rnns),
    "lstm": (FORWARD, lstms),
    "gru": (FORWARD, grus),
    "attention": (_ANY, attentions),
    "gather": (_ANY, gathers),
    "rotary": (_ANY, rotaries),
    "select": (_ANY, selects),
    "arg_reduction": (_ANY, arg_reductions),
    "pad": (_ANY, pads),
    "scatter": (_ANY, scatters),
    "cumulative_sum": (_ANY, cumulative_sums),
    "top_k": (_ANY, top_ks),
    "non_max_suppression": (_ANY, non_max_suppressions),
    "non_zero": (_ANY, non_zeros),
    "matmul_nbits": (_ANY, matmuls_nbits),
    "dynamic_quantise": (_ANY, dynamic_quantises),
    "determinant": (_ANY, determinants),
    "dynamic_lstm": (_ANY, dynamic_lstms),
    "dft": (_ANY, dfts),
}
