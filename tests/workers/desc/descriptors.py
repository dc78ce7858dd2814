"""Random operation descriptors and attributes of every kind, and the smallest changes that make others of them."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any, Final

from poolrt.workers.desc import (
    OPERATIONS,
    Arg,
    ArgReduction,
    Attention,
    BatchNormalization,
    Binary,
    Concat,
    CumulativeSum,
    DynamicQuantise,
    Eltwise,
    Gather,
    GridSample,
    GroupNormalization,
    Gru,
    InnerProduct,
    LayerNormalization,
    Lrn,
    Lstm,
    Matmul,
    MatmulNbits,
    MemoryDesc,
    NonMaxSuppression,
    NonZero,
    OpDesc,
    Pad,
    PostOp,
    Prelu,
    PrimitiveAttr,
    Quantisation,
    Reduction,
    Reorder,
    Resampling,
    Rnn,
    Scatter,
    Select,
    Shuffle,
    Softmax,
    Sum,
    TopK,
    op_from_wire,
)
from poolrt.workers.desc.attributes import BINARY_ALGORITHMS, ELTWISE_ALGORITHMS, FPMATH_MODES, SCRATCHPAD_MODES
from poolrt.workers.desc.operations.arg_reduction import ARG_ALGORITHMS
from poolrt.workers.desc.operations.eltwise import FROM_DST
from poolrt.workers.desc.operations.gather import GATHER_ALGORITHMS, INDEX_TYPES, gathered_dims
from poolrt.workers.desc.operations.grid_sample import GRID_TYPES, SAMPLE_ALGORITHMS, SAMPLE_PADDINGS
from poolrt.workers.desc.operations.normalization_flags import FLAGS, RMS
from poolrt.workers.desc.operations.pad import PAD_MODES, padded_dims
from poolrt.workers.desc.operations.pooling import POOLING_ALGORITHMS
from poolrt.workers.desc.operations.recurrent import DIRECTIONS
from poolrt.workers.desc.operations.reduction import REDUCTION_ALGORITHMS
from poolrt.workers.desc.operations.resampling import COORDINATES, NEAREST, RESAMPLING_ALGORITHMS
from poolrt.workers.desc.operations.scatter import SCATTER_REDUCTIONS
from tests.workers.support.mixed_types import random_determinant, random_dft
from tests.workers.support.quantised_states import random_dynamic_lstm
from tests.workers.support.regions import random_fold, random_roi_align
from tests.workers.support.rotations import random_rotary
from tests.workers.support.trees import random_descriptor

from . import windows
from .layouts import GIVEN, laid_out, placed
from .windows import Channels, Window

Random = random.Random
_TRAINING: Final = ("forward_inference", "forward_training")
_TYPES: Final = ("f32", "f32", "f64", "f16", "bf16")


def dims(rng: Random, rank: int, empty: bool = True) -> tuple[int, ...]:
    """Return sizes of tensors, of which few have no elements unless ``empty`` says that none may."""
    return tuple(rng.choice((0,) * empty + (1, 2, 3, 5, 16, 17) * 4) for _ in range(rank))


def _md(sizes: tuple[int, ...], dtype: str = "f32") -> MemoryDesc:
    return MemoryDesc(sizes, dtype)


def _window(rng: Random, form: str = "") -> Window:
    return windows.drawn(rng.randint, rng.choice((1, 1, 2, 2, 2, 3)), rng.choice((4, 4, 9)), form)


def _channels(rng: Random) -> Channels:
    """Return channels of one group or of several: a few each, whole blocks, or a single one."""
    some = rng.choice(((1, 3, 8, 17, 32), (16, 32), (1,)))
    groups = rng.choice((1, 1, 2, 3, 17) if some == (1,) else (1, 1, 2, 3))
    return Channels(rng.choice((0, 1, 1, 1, 2, 2)), groups, rng.choice(some), rng.choice(some))


def convolution(rng: Random) -> OpDesc:
    prop = rng.choice((*_TRAINING, "backward_data", "backward_weights"))
    bias = prop != "backward_data" and rng.random() < 0.5
    window = _window(rng, rng.choice(("point", *("",) * 9)))
    return windows.convolution(window, _channels(rng), prop, bias=bias)


def deconvolution(rng: Random) -> OpDesc:
    bias = rng.random() < 0.5
    window = _window(rng, rng.choice(("long", "", "", "", "")))
    return windows.deconvolution(window, _channels(rng), rng.choice(_TRAINING), bias=bias)


def pooling(rng: Random) -> OpDesc:
    algorithm, prop = rng.choice(POOLING_ALGORITHMS), rng.choice((*_TRAINING, "backward_data"))
    batch, channels = dims(rng, 2)
    return windows.pooling(_window(rng), batch, channels, algorithm, prop, "f32")


def matmul(rng: Random) -> OpDesc:
    batch = dims(rng, rng.choice((0, 0, 1, 2)))
    (m, k), n = dims(rng, 2), dims(rng, 1)[0]
    types = rng.choice((("f32",) * 3, ("f32",) * 3, ("u8", "s8", "s32"), ("bf16", "bf16", "f32"), ("f64",) * 3))
    left = tuple(rng.choice((1, b)) for b in batch)
    right = tuple(b if a != b else rng.choice((1, b)) for a, b in zip(left, batch, strict=True))
    out = tuple(a if b == 1 else b for a, b in zip(left, right, strict=True))
    bias = MemoryDesc((*(1,) * (len(batch) + 1), n), "f32") if rng.random() < 0.3 else None
    if rng.random() < 0.2:
        bias = _md(tuple(rng.choice((1, size)) for size in (*out, m, n)))
    src, weights, dst = (_md(d, t) for d, t in zip(((*left, m, k), (*right, k, n), (*out, m, n)), types, strict=True))
    return Matmul(src, weights, bias, dst)


def inner_product(rng: Random) -> OpDesc:
    n, oc, rest = dims(rng, 1)[0], dims(rng, 1)[0], dims(rng, rng.choice((1, 1, 2, 3)))
    prop = rng.choice((*_TRAINING, "backward_data", "backward_weights"))
    bias = MemoryDesc((oc,), "f32") if prop != "backward_data" and rng.random() < 0.5 else None
    src, weights, dst = (_md(d) for d in ((n, *rest), (oc, *rest), (n, oc)))
    return InnerProduct(src, weights, bias, dst, prop)


def eltwise(rng: Random) -> OpDesc:
    sizes, dtype = dims(rng, rng.choice((1, 2, 4))), rng.choice(_TYPES)
    prop, use_dst = rng.choice((*_TRAINING, "backward_data")), rng.random() < 0.2
    algorithm = rng.choice(FROM_DST if use_dst else ELTWISE_ALGORITHMS)
    src, dst = _md(sizes, dtype), _md(sizes, dtype)
    return Eltwise(src, dst, algorithm, rng.choice((0.5, 1.0)), rng.choice((0.0, 0.25, 2.0)), prop, use_dst=use_dst)


def binary(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 3, 4)))
    left = tuple(rng.choice((1, s, s)) for s in sizes)
    right = tuple(s if a != s else rng.choice((1, s)) for a, s in zip(left, sizes, strict=True))
    out = tuple(a if b == 1 else b for a, b in zip(left, right, strict=True))
    types = rng.choice((("f32",), _TYPES))
    src0, src1, dst = (_md(d, rng.choice(types)) for d in (left, right, out))
    return Binary(src0, src1, dst, rng.choice(BINARY_ALGORITHMS))


def summed(rng: Random) -> OpDesc:
    sizes, count = dims(rng, rng.choice((1, 2, 4))), rng.choice((1, 2, 3))
    scales = tuple(rng.choice((1.0, 0.5, 2.0)) for _ in range(count)) if rng.random() < 0.5 else ()
    return Sum(tuple(_md(sizes) for _ in range(count)), _md(sizes), scales)


def concat(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)))
    axis = rng.randrange(len(sizes))
    parts = [dims(rng, 1)[0] for _ in range(rng.choice((1, 2, 3)))]

    def joined(extent: int) -> MemoryDesc:
        return _md((*sizes[:axis], extent, *sizes[axis + 1 :]))

    return Concat(tuple(joined(part) for part in parts), joined(sum(parts)), axis)


def _normalized(rng: Random, known: tuple[str, ...], backward: bool) -> dict[str, Any]:
    flags = tuple(flag for flag in known if rng.random() < 0.5) if rng.random() < 0.7 else FLAGS[1:]
    props = (*_TRAINING, "backward_data", "backward") if backward else _TRAINING
    return {"epsilon": rng.choice((1e-5, 1e-3)), "flags": flags, "prop": rng.choice(props)}


def batch_normalization(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((2, 3, 4)))
    return BatchNormalization(_md(sizes), _md(sizes), **_normalized(rng, FLAGS, True))


def layer_normalization(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 3)))
    return LayerNormalization(_md(sizes), _md(sizes), **_normalized(rng, (*FLAGS[1:], RMS), True))


def group_normalization(rng: Random) -> OpDesc:
    groups = rng.choice((1, 2, 3))
    sizes = (rng.choice((1, 2)), groups * rng.choice((1, 2)), *dims(rng, rng.choice((0, 1, 2))))
    src, dst = _md(sizes), _md(sizes)
    return GroupNormalization(src, dst, groups, **_normalized(rng, FLAGS[1:], False))


def lrn(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((2, 3, 4)))
    numbers = (rng.choice((3, 5)), rng.choice((1e-4, 0.5)), rng.choice((0.75, 1.0)), rng.choice((1.0, 2.0)))
    algorithm = rng.choice(("across_channels", "within_channel"))
    return Lrn(_md(sizes), _md(sizes), *numbers, algorithm, rng.choice(_TRAINING))


def softmax(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)))
    axis, algorithm = rng.randrange(len(sizes)), rng.choice(("accurate", "log"))
    prop = rng.choice((*_TRAINING, "backward_data"))
    return Softmax(_md(sizes), _md(sizes), axis, algorithm, prop)


def reorder(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)))
    types = rng.choice((("f32",), ("f32", "f64", "f16", "bf16", "s32", "s8", "u8"), ("s64", "s32", "s8", "u64", "u16")))
    engines = rng.choice((("", ""), ("", ""), ("cpu", "opencl"), ("opencl", "cpu"), ("opencl", "opencl")))
    wraps = types[0] == "s64" and rng.random() < 0.5
    return Reorder(_md(sizes, rng.choice(types)), _md(sizes, rng.choice(types)), *engines, wraps)


def reduction(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)), False)
    out = tuple(rng.choice((1, s)) for s in sizes)
    algorithm = rng.choice(REDUCTION_ALGORITHMS)
    p, eps = (rng.choice((1.0, 2.0, 3.0)), rng.choice((0.0, 0.1))) if algorithm.startswith("norm") else (0.0, 0.0)
    return Reduction(_md(sizes), _md(out), algorithm, p, eps)


def resampling(rng: Random) -> OpDesc:
    outer, spatial = dims(rng, 2), rng.choice((1, 2, 3))
    src, dst = (_md((*outer, *dims(rng, spatial, False))) for _ in range(2))
    coordinates = rng.choice(COORDINATES)
    roi = tuple(rng.choice((-0.25, 0.0, 0.5, 1.0)) for _ in range(2 * spatial))
    return Resampling(
        src, dst, rng.choice(RESAMPLING_ALGORITHMS), rng.choice(_TRAINING), coordinates, rng.choice(NEAREST),
        rng.choice((-0.75, -0.5)), rng.random() < 0.5, roi=roi if coordinates == "tf_crop_and_resize" else (),
        extrapolation=rng.choice((0.0, 2.0)), factors=rng.choice(((), tuple(rng.choice((0.5, 2.0)) for _ in range(spatial)))),
    )  # fmt: skip


def grid_sample(rng: Random) -> OpDesc:
    (images, channels), count = dims(rng, 2), rng.choice((1, 2, 3))
    src, dst = (_md((images, channels, *dims(rng, count, False))) for _ in range(2))
    grid = _md((images, *dst.dims[2:], count), rng.choice(GRID_TYPES))
    return GridSample(
        src, grid, dst, rng.choice(SAMPLE_ALGORITHMS), rng.choice(SAMPLE_PADDINGS), rng.random() < 0.5
    )  # fmt: skip


def prelu(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((2, 3, 4)))
    weights = tuple(rng.choice((1, s)) for s in sizes)
    return Prelu(_md(sizes), _md(weights), _md(sizes), rng.choice(_TRAINING))


def shuffle(rng: Random) -> OpDesc:
    sizes = list(dims(rng, rng.choice((2, 3, 4))))
    axis, group = rng.randrange(len(sizes)), rng.choice((1, 2, 3))
    sizes[axis] = group * rng.choice((1, 2, 4))
    src, dst = (_md(tuple(sizes)) for _ in range(2))
    return Shuffle(src, dst, axis, group, rng.choice(_TRAINING))


def _recurrent(rng: Random, gates: int, bias_gates: int) -> dict[str, Any]:
    steps, batch, channels, hidden = (rng.choice((1, 2, 3, 5)) for _ in range(4))
    direction = rng.choice(DIRECTIONS)
    directions = 2 if direction.startswith("bidirectional") else 1
    width = 2 * hidden if direction == "bidirectional_concat" else hidden
    layers = rng.choice((1, 2))
    channels = hidden if layers > 1 else channels

    def maybe(*sizes: int) -> MemoryDesc | None:
        return MemoryDesc(sizes, "f32") if rng.random() < 0.5 else None

    return {
        "src_layer": MemoryDesc((steps, batch, channels), "f32"),
        "src_iter": maybe(layers, directions, batch, hidden),
        "weights_layer": MemoryDesc((layers, directions, channels, gates, hidden), "f32"),
        "weights_iter": MemoryDesc((layers, directions, hidden, gates, hidden), "f32"),
        "bias": maybe(layers, directions, bias_gates, hidden),
        "dst_layer": MemoryDesc((steps, batch, width), "f32"),
        "dst_iter": maybe(layers, directions, batch, hidden),
        "direction": direction,
        "prop": rng.choice(_TRAINING),
        "clip": rng.choice((0.0, 0.0, 0.5)),
    }


def rnn(rng: Random) -> OpDesc:
    return Rnn(
        **_recurrent(rng, 1, 1), activation=rng.choice(("tanh", "relu", "logistic")), alpha=rng.choice((0.0, 0.5))
    )


def functions(rng: Random, count: int) -> dict[str, Any]:
    choices = {"activations": ("logistic", "tanh", "relu", "hardsigmoid"), "alphas": (0.0, 0.25), "betas": (0.0, 0.5)}
    found: dict[str, Any] = {name: tuple(rng.choice(values) for _ in range(count)) for name, values in choices.items()}
    return found | ({"clip": 0.5} if found["activations"][0] == "relu" else {})  # without a bound errors grow


def lstm(rng: Random) -> OpDesc:
    tensors = _recurrent(rng, 4, 4)
    layers, directions, _, _, hidden = tensors["weights_iter"].dims
    state, peephole = (MemoryDesc((layers, directions, n, hidden), "f32") for n in (tensors["src_layer"].dims[1], 3))
    cells: dict[str, Any] = {name: state if rng.random() < 0.5 else None for name in ("src_iter_c", "dst_iter_c")}
    return Lstm(**cells, weights_peephole=rng.choice((peephole, None)), **(tensors | functions(rng, 3)))


def gru(rng: Random) -> OpDesc:
    linear = rng.random() < 0.5
    return Gru(**(_recurrent(rng, 3, 4 if linear else 3) | functions(rng, 2)), linear_before_reset=linear)


def attention(rng: Random) -> OpDesc:
    (groups,), (batch, rows, keys, depth, width) = dims(rng, 1, False), dims(rng, 5)
    heads = groups * rng.choice((1, 2, 3))
    mask = None
    if rng.random() < 0.5:
        mask = _md(tuple(rng.choice((1, s)) for s in (batch, heads, rows, keys)), rng.choice(("f32", "bool")))
    query, dst = _md((batch, heads, rows, depth)), _md((batch, heads, rows, width))
    key, value = _md((batch, groups, keys, depth)), _md((batch, groups, keys, width))
    return Attention(query, key, value, mask, dst, rng.choice((None, 0.5, 1.0)), rng.random() < 0.5)


def matmul_nbits(rng: Random) -> OpDesc:
    (columns, rows, depth), bits = dims(rng, 3, False), rng.choice((4, 8))
    nbytes = rng.choice((2, 4, 8, 16))
    blocks = -(-depth * bits // (8 * nbytes))
    points = rng.choice((None, _md((columns, blocks)), _md((columns, -(-blocks * bits // 8)), "u8")))
    bias = _md((columns,)) if rng.random() < 0.5 else None
    weights, scales = _md((columns, blocks, nbytes), "u8"), _md((columns, blocks))
    return MatmulNbits(_md((rows, depth)), weights, scales, points, bias, _md((rows, columns)), bits)


def gather(rng: Random) -> OpDesc:
    algorithm, sizes = rng.choice(GATHER_ALGORITHMS), dims(rng, rng.choice((1, 2, 3)))
    axis, batch = 0, 0
    indices = dims(rng, rng.choice((0, 1, 2)))
    if algorithm == "nd":
        batch = rng.randrange(len(sizes) + 1)
        indices = (*sizes[:batch], *indices, rng.randrange(len(sizes) - batch + 1))
    else:
        axis = rng.randrange(len(sizes))
    if algorithm == "elements":
        indices = tuple(rng.choice((1, 5)) if dim == axis else rng.randint(0, size) for dim, size in enumerate(sizes))
    src, chosen = _md(sizes, rng.choice(("f32", "s8"))), _md(indices, rng.choice(INDEX_TYPES))
    dst = MemoryDesc(gathered_dims(src, chosen, algorithm, axis, batch), src.dtype)
    return Gather(src, chosen, dst, algorithm, axis, batch)


def select(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)))
    condition, src0, src1 = (_md(tuple(rng.choice((1, s)) for s in sizes), kind) for kind in ("bool", "f32", "f32"))
    return Select(condition, src0, src1, _md(sizes))


def arg_reduction(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)), False)
    axis = rng.randrange(len(sizes))
    dst = _md((*sizes[:axis], 1, *sizes[axis + 1 :]), rng.choice(("s32", "s64")))
    return ArgReduction(_md(sizes), dst, rng.choice(ARG_ALGORITHMS), axis, rng.random() < 0.5)


def pad(rng: Random) -> OpDesc:
    sizes, mode = dims(rng, rng.choice((1, 2, 4)), False), rng.choice(PAD_MODES)
    left, right = (tuple(rng.choice((0, 1, 3)) for _ in sizes) for _ in range(2))
    if rng.random() < 0.5:
        left = tuple(rng.choice((1 - size, 0, 2)) for size in sizes)
    dst = _md(padded_dims(sizes, left, right, mode))
    return Pad(_md(sizes), dst, left, right, mode, rng.choice((0.0, -1.5)))


def scatter(rng: Random) -> OpDesc:
    sizes, reduction = dims(rng, rng.choice((1, 2, 3))), rng.choice(SCATTER_REDUCTIONS)
    src, dst = _md(sizes), _md(sizes)
    if rng.random() < 0.5:
        axis = rng.randrange(len(sizes))
        along = tuple(rng.choice((1, 5)) if dim == axis else rng.randint(0, size) for dim, size in enumerate(sizes))
        return Scatter(src, _md(along, rng.choice(INDEX_TYPES)), _md(along), dst, "elements", axis, reduction)
    outer, count = dims(rng, rng.choice((0, 1, 2))), rng.randrange(len(sizes) + 1)
    indices, updates = _md((*outer, count), rng.choice(INDEX_TYPES)), _md((*outer, *sizes[count:]))
    return Scatter(src, indices, updates, dst, "nd", 0, reduction)


def cumulative_sum(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)))
    axis = rng.randrange(len(sizes))
    return CumulativeSum(_md(sizes), _md(sizes), axis, rng.random() < 0.5, rng.random() < 0.5)


def top_k(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)), False)
    axis = rng.randrange(len(sizes))
    k = rng.randint(1, sizes[axis])
    out = (*sizes[:axis], k, *sizes[axis + 1 :])
    return TopK(_md(sizes), _md(out), _md(out, rng.choice(("s32", "s64"))), k, axis, rng.random() < 0.5)


def non_max_suppression(rng: Random) -> OpDesc:
    images, classes, size = dims(rng, 3, False)
    most = rng.randint(1, size)
    kinds = rng.choice(("s32", "s64")), rng.choice(("s32", "s64"))
    rows, count = _md((images * classes * most, 3), kinds[0]), _md((1,), kinds[1])
    sources = _md((images, size, 4)), _md((images, classes, size)), _md((3,))
    return NonMaxSuppression(*sources, rows, count, most, rng.random() < 0.5)


def non_zero(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)))
    indices, count = (
        _md((len(sizes), math.prod(sizes)), rng.choice(("s32", "s64"))),
        _md((1,), rng.choice(("s32", "s64"))),
    )
    return NonZero(_md(sizes), indices, count)


def dynamic_quantise(rng: Random) -> OpDesc:
    sizes = dims(rng, rng.choice((1, 2, 4)))
    return DynamicQuantise(_md(sizes), _md(sizes, "u8"), _md(()), _md((), rng.choice(("u8", "s32"))))


#: Kind -> what draws a row-major descriptor of it.
_DRAWN: Final[dict[str, Callable[[Random], OpDesc]]] = {
    "convolution": convolution, "deconvolution": deconvolution, "pooling": pooling, "eltwise": eltwise, "binary": binary,
    "sum": summed, "concat": concat, "batch_normalization": batch_normalization, "lrn": lrn, "matmul": matmul,
    "inner_product": inner_product, "softmax": softmax, "reorder": reorder, "layer_normalization": layer_normalization,
    "group_normalization": group_normalization, "reduction": reduction, "resampling": resampling, "prelu": prelu,
    "shuffle": shuffle, "rnn": rnn, "lstm": lstm, "gru": gru,
    "attention": attention, "rotary": random_rotary, "gather": gather, "grid_sample": grid_sample, "roi_align": random_roi_align,
    "tree_leaves": random_descriptor, "fold": random_fold,
    "select": select, "arg_reduction": arg_reduction,
    "pad": pad, "scatter": scatter,
    "cumulative_sum": cumulative_sum, "top_k": top_k, "non_max_suppression": non_max_suppression,
    "non_zero": non_zero,
    "matmul_nbits": matmul_nbits, "dynamic_quantise": dynamic_quantise, "dynamic_lstm": random_dynamic_lstm, "dft": random_dft,
    "determinant": random_determinant,
}  # fmt: skip
assert _DRAWN.keys() == OPERATIONS.keys()


def drawn(kind: str, rng: Random, layouts: tuple[str, ...] = GIVEN) -> OpDesc:
    """Return a random descriptor of a kind in one of some layouts."""
    return laid_out(_DRAWN[kind](rng), rng.choice(layouts), rng)


def operation(rng: Random) -> OpDesc:
    """Return a random descriptor of a random kind."""
    return drawn(rng.choice(list(_DRAWN)), rng)


def constants(rng: Random, item: Quantisation, quantised: MemoryDesc) -> tuple[float, ...]:
    """Return constant scales or zero points, or none."""
    count = item.desc(quantised, "f32").elements if rng.random() < 0.5 else 0
    return tuple(rng.choice((0, 1, 2.0, -3)) for _ in range(count))


def attributes(rng: Random, op: OpDesc) -> PrimitiveAttr:
    """Return random attributes; their tensors fit the operation's, whether an implementation takes them or not."""
    described = op.memories()
    dst = described.get(Arg.DST)
    chain: list[PostOp] = []
    if dst is not None:
        for _ in range(rng.choice((0, 0, 1, 2))):
            kind = rng.choice(("eltwise", "binary", "sum"))
            if kind == "eltwise":
                chain.append(
                    PostOp(kind, rng.choice(ELTWISE_ALGORITHMS), rng.choice((0.5, 1.0)), rng.choice((0.0, 2.0)))
                )
            elif kind == "binary":
                chain.append(
                    PostOp(kind, rng.choice(BINARY_ALGORITHMS), src1=placed(MemoryDesc(dst.dims, "f32"), "mixed", rng))
                )
            else:
                chain.append(PostOp.accumulate(rng.choice((1.0, 0.5)), rng.choice((0, 3))))

    def some() -> tuple[Quantisation, ...]:
        known = [arg for arg in (Arg.SRC, Arg.SRC_1, Arg.WEIGHTS, Arg.DST) if arg in described and described[arg].ndims]
        chosen = (Quantisation(arg, rng.choice((0, 1))) for arg in known if rng.random() < 0.15)
        return tuple(dataclasses.replace(item, values=constants(rng, item, described[item.arg])) for item in chosen)

    return PrimitiveAttr(
        tuple(chain), some(), some(), rng.choice(FPMATH_MODES), rng.choice(SCRATCHPAD_MODES), rng.random() < 0.5,
        rng.choice((0, 0, 3)),
    )  # fmt: skip


def rebuilt(op: OpDesc) -> OpDesc:
    """Return an equal descriptor that shares nothing with ``op``."""
    return op_from_wire(op.to_wire())


def changed(rng: Random, op: OpDesc) -> OpDesc:
    """Return a descriptor that differs from ``op`` in one field where that makes a valid one, else another draw."""
    for name in rng.sample([f.name for f in dataclasses.fields(op)], len(dataclasses.fields(op))):
        other = drawn(op.kind, rng)
        try:
            return dataclasses.replace(op, **{name: getattr(other, name)})
        except (ValueError, TypeError):
            continue
    return drawn(op.kind, rng)
